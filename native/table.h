// Functions of Δ from tables: F(Δ), one number a node, and R(Δ), a vector of them.
#pragma once

#include "window.h"

namespace fillin {

// Where the L displacements of a row fall: 2^T corners of a cell, each with a share.
template <int T>
struct Cell {
  ints first;  // the index of the lowest corner
  vec part[T];

  // The share of corner c, whose bit d says "upper along axis d".
  vec share(int c) const {
    vec product = all(1.f);
#pragma GCC unroll 3
    for (int d = 0; d < T; d++) product *= c >> d & 1 ? part[d] : 1.f - part[d];
    return product;
  }
};

template <int D, int T>
struct Grid {
  bool radial;
  int size[T], corner[1 << T];
  float low[T], inverse_step[T];

  explicit Grid(const FillinTable &table) : radial(table.radial) {
    int stride[T], total = 1;
    for (int d = T - 1; d >= 0; d--) {
      size[d] = table.size[d], low[d] = table.low[d], inverse_step[d] = table.inverse_step[d];
      stride[d] = total, total *= size[d];
    }
    for (int c = 0; c < 1 << T; c++) {
      corner[c] = 0;
      for (int d = 0; d < T; d++) corner[c] += c >> d & 1 ? stride[d] : 0;
    }
  }

  Cell<T> cell(const float *query, const float *x) const {
    vec at[T] = {};
    if (radial) {
      vec square = {};
      for (int d = 0; d < D; d++) {
        vec delta = query[d] - load(x + d * L);
        square += delta * delta;
      }
      for (int l = 0; l < L; l++) at[0][l] = std::sqrt(square[l]);
    } else {
#pragma GCC unroll 3
      for (int d = 0; d < T; d++) at[d] = query[d] - load(x + d * L);
    }
    Cell<T> found;
    found.first = ints{};
#pragma GCC unroll 3
    for (int d = 0; d < T; d++) {
      vec place = (at[d] - low[d]) * inverse_step[d], last = all((float)(size[d] - 1));
      place = place > 0.f ? place : vec{};  // NaN too
      place = place < last ? place : last;
      ints whole = __builtin_convertvector(place, ints);
      whole = whole < size[d] - 2 ? whole : size[d] - 2 + ints{};
      found.part[d] = place - __builtin_convertvector(whole, vec);
      found.first = found.first * size[d] + whole;
    }
    return found;
  }
};

inline vec gather(const float *values, ints at) {
  vec found;
  for (int l = 0; l < L; l++) found[l] = values[at[l]];
  return found;
}

// s += F(Δ) for every row.
template <int D, int T>
void add_bias(const Grid<D, T> &grid, const float *values, const Block<D> &block, const float *x, Rows &r) {
  for (int i = 0; i < r.rows; i++) {
    Cell<T> cell = grid.cell(block.x[r.query[i]], x);
    vec total = load(r.s + i * L);
#pragma GCC unroll 8
    for (int c = 0; c < 1 << T; c++) total += cell.share(c) * gather(values + grid.corner[c], cell.first);
    store(r.s + i * L, total);
  }
}

// The gradient to the table: every corner of a pair's cell takes its share of the pair's.
template <int D, int T>
void bias_back(const Grid<D, T> &grid, const Block<D> &block, const float *x, const Rows &r, float *grad) {
  for (int i = 0; i < r.rows; i++) {
    Cell<T> cell = grid.cell(block.x[r.query[i]], x);
    vec ds = load(r.ds + i * L), part[1 << T];
#pragma GCC unroll 8
    for (int c = 0; c < 1 << T; c++) part[c] = ds * cell.share(c);
    for (int l = 0; l < L; l++) {
      float *at = grad + cell.first[l];
#pragma GCC unroll 8
      for (int c = 0; c < 1 << T; c++) at[grid.corner[c]] += part[c][l];
    }
  }
}

// Σ_f a_f · R_f(Δ) for one pair, and its two ways back. Here the lanes are features: R is as wide as a query.
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

// `use(row, lane, corners, shares)` for every pair that may be attended.
template <int D, int T, class Use>
void each_pair(const Grid<D, T> &grid, const Block<D> &block, const float *x, const Rows &r, Use use) {
  for (int i = 0; i < r.rows; i++) {
    Cell<T> cell = grid.cell(block.x[r.query[i]], x);
    vec shares[1 << T];
    for (int c = 0; c < 1 << T; c++) shares[c] = cell.share(c);
    for (int l = 0; l < L; l++) {
      if (r.base[i * L + l] < 0.5f * NEVER) continue;
      int corner[1 << T];
      float share[1 << T];
      for (int c = 0; c < 1 << T; c++) corner[c] = cell.first[l] + grid.corner[c], share[c] = shares[c][l];
      use(i, l, corner, share);
    }
  }
}

// Calls `use` with the grid of a table, of as many axes as it has; not at all where there is no table.
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
