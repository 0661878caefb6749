// Functions of Δ from tables: F(Δ), one number per node, and R(Δ), a vector per node.
#pragma once

#include "window.h"

namespace fillin {

// The cell of each pair in a table: its lowest corner, and the fractional position along each axis.
struct Cells {
  alignas(64) int32_t first[BLOCK * L];
  alignas(64) float part[3][BLOCK * L];
  alignas(64) float pairs[2 * BLOCK * L];  // values of neighbours along the last axis, adjacent in memory
};

typedef float two __attribute__((vector_size(8), aligned(4), may_alias));

template <int D, int T>
struct Grid {
  bool radial, exact;
  int size[T], corner[1 << T];  // bit 0 of a corner: upper along the last axis, bit 1: along the one before …
  float low[T], inverse_step[T];

  explicit Grid(const FillinTable &table) : radial(table.radial), exact(table.exact) {
    for (int d = 0; d < T; d++) size[d] = table.size[d], low[d] = table.low[d], inverse_step[d] = table.inverse_step[d];
    for (int c = 0; c < 1 << T; c++) {
      corner[c] = 0;
      for (int d = T - 1, stride = 1; d >= 0; stride *= size[d--]) corner[c] += c >> (T - 1 - d) & 1 ? stride : 0;
    }
  }

  // Find the cells of all rows.
  void locate(const Block<D> &block, const float *x, const Rows &r, Cells &cells) const {
    vec place[D];
    for (int d = 0; d < D; d++) place[d] = load(x + d * L);
    for (int i = 0; i < r.rows; i++) {
      const float *query = block.x[r.query[i]];
      vec at[T] = {};
      if (radial) {
        alignas(64) float distance[L];
        vec square = {};
        for (int d = 0; d < D; d++) square += (query[d] - place[d]) * (query[d] - place[d]);
        store(distance, square);
        for (int l = 0; l < L; l++) distance[l] = std::sqrt(distance[l]);
        at[0] = load(distance);
      } else {
#pragma GCC unroll 3
        for (int d = 0; d < T; d++) at[d] = query[d] - place[d];
      }
      ints first = {};
#pragma GCC unroll 3
      for (int d = 0; d < T; d++) {
        vec scaled = (at[d] - low[d]) * inverse_step[d], last = all((float)(size[d] - 1));
        scaled = scaled > 0.f ? scaled : vec{};  // NaN too
        scaled = scaled < last ? scaled : last;
        if (exact) scaled = __builtin_convertvector(__builtin_convertvector(scaled + 0.5f, ints), vec);
        ints whole = __builtin_convertvector(scaled, ints);
        whole = whole < size[d] - 2 ? whole : size[d] - 2 + ints{};
        store(cells.part[d] + i * L, scaled - __builtin_convertvector(whole, vec));
        first = first * size[d] + whole;
      }
      memcpy(cells.first + i * L, &first, sizeof first);
    }
  }

  // Interpolation weights of row i for the corners `c` (bit 0 excepted): the product over all axes but the last.
  vec share(const Cells &cells, int i, int c) const {
    vec product = all(1.f);
#pragma GCC unroll 2
    for (int d = 0; d < T - 1; d++) {
      vec part = load(cells.part[d] + i * L);
      product *= c >> (T - 1 - d) & 1 ? part : 1.f - part;
    }
    return product;
  }
};

// s += F(Δ) for every row.
template <int D, int T>
void add_bias(const Grid<D, T> &grid, const float *values, Cells &cells, Rows &r) {
#pragma GCC unroll 4
  for (int c = 0; c < 1 << T; c += 2) {
    const float *base = values + grid.corner[c];
    for (int i = 0; i < r.rows * L; i++) memcpy(cells.pairs + 2 * i, base + cells.first[i], 2 * sizeof(float));
    for (int i = 0; i < r.rows; i++) {
      vec lower, upper, part = load(cells.part[T - 1] + i * L);
      apart(cells.pairs + 2 * i * L, lower, upper);
      store(r.s + i * L, load(r.s + i * L) + grid.share(cells, i, c) * (lower + part * (upper - lower)));
    }
  }
}

// Gradient to the table: a pair adds to all corners of its cell, by their interpolation weights.
template <int D, int T>
void bias_back(const Grid<D, T> &grid, Cells &cells, const Rows &r, float *grad) {
#pragma GCC unroll 4
  for (int c = 0; c < 1 << T; c += 2) {
    float *base = grad + grid.corner[c];
    for (int i = 0; i < r.rows; i++) {
      vec all_of_it = load(r.ds + i * L) * grid.share(cells, i, c), upper = all_of_it * load(cells.part[T - 1] + i * L);
      together(cells.pairs + 2 * i * L, all_of_it - upper, upper);
    }
    for (int i = 0; i < r.rows * L; i++) {
      two *at = reinterpret_cast<two *>(base + cells.first[i]);
      *at += *reinterpret_cast<const two *>(cells.pairs + 2 * i);
    }
  }
}

// Σ_f a_f · R_f(Δ) for one pair, and its gradients to a and R. Lanes are features here: R is as wide as a query.
template <int T>
float features_dot(const float *a, const float *values, int width, const int *corner, const float *share) {
  vec lanes = {};
  float total = 0;
  int f = 0;
  for (; f + L <= width; f += L) {
    vec node = {};
    for (int c = 0; c < 1 << T; c++) node += share[c] * load(values + (size_t)corner[c] * width + f);
    lanes += node * load(a + f);
  }
  for (; f < width; f++)
    for (int c = 0; c < 1 << T; c++) total += share[c] * values[(size_t)corner[c] * width + f] * a[f];
  return total + sum(lanes);
}

template <int T>
void features_spread(float ds, const float *a, const float *values, int width, const int *corner, const float *share,
                     float *d_a, float *d_values) {
  for (int c = 0; c < 1 << T; c++) {
    const float *node = values + (size_t)corner[c] * width;
    float *d_node = d_values + (size_t)corner[c] * width, part = ds * share[c];
    int f = 0;
    for (; f + L <= width; f += L) {
      store(d_a + f, load(d_a + f) + part * load(node + f));
      store(d_node + f, load(d_node + f) + part * load(a + f));
    }
    for (; f < width; f++) d_a[f] += part * node[f], d_node[f] += part * a[f];
  }
}

// The same for the L pairs of a row whose Δ are nodes of the table; `width` is a multiple of L. Masked pairs are
// computed as well, at any node.
inline void nodes_dot(const float *a, const float *values, int width, const int32_t *node, float *s) {
  vec each[L];
#pragma GCC unroll 16
  for (int l = 0; l < L; l++) {
    const float *row = values + (size_t)node[l] * width;
    each[l] = load(a) * load(row);
    for (int f = L; f < width; f += L) each[l] += load(a + f) * load(row + f);
  }
  store(s, load(s) + sums(each));
}

inline void nodes_spread(const float *ds, const float *a, const float *values, int width, const int32_t *node,
                         float *d_a, float *d_values) {
  for (int f = 0; f < width; f += L) {
    vec own = load(a + f), total = load(d_a + f);
#pragma GCC unroll 16
    for (int l = 0; l < L; l++) {
      size_t at = (size_t)node[l] * width + f;
      total += ds[l] * load(values + at);
      store(d_values + at, load(d_values + at) + ds[l] * own);
    }
    store(d_a + f, total);
  }
}

// Call `use(row, lane, corners, weights)` for every allowed pair.
template <int D, int T, class Use>
void each_pair(const Grid<D, T> &grid, const Cells &cells, const Rows &r, Use use) {
  for (int i = 0; i < r.rows * L; i++) {
    if (r.base[i] < 0.5f * NEVER) continue;
    int corner[1 << T];
    float share[1 << T];
    for (int c = 0; c < 1 << T; c++) {
      corner[c] = cells.first[i] + grid.corner[c], share[c] = 1;
      for (int d = 0; d < T; d++) share[c] *= c >> (T - 1 - d) & 1 ? cells.part[d][i] : 1 - cells.part[d][i];
    }
    use(i / L, i % L, corner, share);
  }
}

// Call `use` with the grid of a table and its number of axes; do nothing without a table.
template <int D, class Use>
void with_grid(const FillinTable &table, Use use) {
  if (!table.values) return;
  if (table.radial || table.dims == 1) return use(Grid<D, 1>(table));
  if constexpr (D >= 2)
    if (table.dims == 2) return use(Grid<D, 2>(table));
  if constexpr (D >= 3)
    if (table.dims == 3) return use(Grid<D, 3>(table));
}

}  // namespace fillin
