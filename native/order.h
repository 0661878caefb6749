// The order of the leaves of a kd-tree, which halves sets of points across their longest side.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace fillin {

struct Order {
  const float *x;
  int dim_x;

  // NaN is sorted last.
  float at(int32_t point, int d) const {
    float value = x[(size_t)point * dim_x + d];
    return std::isnan(value) ? INFINITY : value;
  }

  // Size of the first half of `count` points: a multiple of the size of a block of queries or of a tile of keys.
  static int middle(int count) {
    int unit = count > 64 ? 64 : count > 32 ? 32 : count > 16 ? 16 : count > 8 ? 8 : 4;
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
    // ties by index, so that the order does not depend on the previous one
    std::nth_element(points, points + cut, points + count, [&](int32_t a, int32_t b) {
      float va = at(a, widest), vb = at(b, widest);
      return va < vb || (va == vb && a < b);
    });
    sort(points, cut);
    sort(points + cut, count - cut);
  }
};

// Write the indices of the points to `order`, neighbours in space close to each other.
inline void order_points(const float *x, int points, int dim_x, int32_t *order) {
  for (int i = 0; i < points; i++) order[i] = i;
  Order{x, dim_x}.sort(order, points);
}

}  // namespace fillin
