// The order of a kd-tree's leaves: halves of halves, each cut across its longest side.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace fillin {

struct Order {
  const float *x;
  int dim_x;

  // NaN has no place in an order: it goes last.
  float at(int32_t point, int d) const {
    float value = x[(size_t)point * dim_x + d];
    return std::isnan(value) ? INFINITY : value;
  }

  // Where to cut `count` points: near the middle, at a multiple of what a block of queries or a tile of keys holds.
  static int middle(int count) {
    int unit = count > 32 ? 32 : count > 16 ? 16 : count > 8 ? 8 : 4;
    return std::max(unit, count / 2 / unit * unit);
  }

  void sort(int32_t *points, int count) {
    if (count <= 4) return;
    int widest = 0;
    float extent = -1;
    for (int d = 0; d < dim_x; d++) {
      float low = INFINITY, high = -INFINITY;
      for (int i = 0; i < count; i++) {
        float value = at(points[i], d);
        low = std::min(low, value), high = std::max(high, value);
      }
      if (high - low > extent) extent = high - low, widest = d;  // false for ∞ − ∞
    }
    int cut = middle(count);
    // ties by number, so that the order is one and the same whatever it was before
    std::nth_element(points, points + cut, points + count, [&](int32_t a, int32_t b) {
      float va = at(a, widest), vb = at(b, widest);
      return va < vb || (va == vb && a < b);
    });
    sort(points, cut);
    sort(points + cut, count - cut);
  }
};

// order[0 … points): the points, neighbours next to one another.
inline void order_points(const float *x, int points, int dim_x, int32_t *order) {
  for (int i = 0; i < points; i++) order[i] = i;
  Order{x, dim_x}.sort(order, points);
}

}  // namespace fillin
