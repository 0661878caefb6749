// A row is one query of a block against the L keys of one tile. Operations on all rows of a tile:
//
//     dot      s_r  += Σ_c a_rc · tile column c        a content score, or dO · V
//     mix      o_r  += Σ_l p_rl · tile row l           the weighted average, or the gradient to q
//     spread   tile column c += Σ_r p_r · a_rc         the gradients to k and v
//
// Each keeps L columns by L keys of the tile in registers while it loops over the rows.
#pragma once

#include "tiles.h"

namespace fillin {

constexpr float NEVER = -1e30f;  // the exponent of a masked pair

// Buffers of a block and a tile. `rows` rows are in use; row r belongs to query[r] of the block.
struct Rows {
  int rows;
  int query[BLOCK];
  alignas(64) float base[BLOCK * L];    // added to the exponent: −½ r², 0, or NEVER
  alignas(64) float gauss[BLOCK * L];   // G
  alignas(64) float weight[BLOCK * L];  // W
  alignas(64) float s[BLOCK * L];       // the score
  alignas(64) float p[BLOCK * L];       // the weight of the pair
  alignas(64) float ds[BLOCK * L];      // the gradient to the score
  alignas(64) float pull[BLOCK * L];    // the gradient to ln W, without W
  alignas(64) float form[FILLIN_MAX_FORMS][BLOCK * L];  // the closed forms of F, without their amplitudes
};

// A matrix of `width` columns over the keys of all tiles: `columns` [tile, width, L] holds all columns, `full`
// [tile, L, …] by rows those that fill whole vectors.
struct Packed {
  int width = 0, whole = 0;
  float *columns = nullptr, *full = nullptr;

  const float *columns_of(int tile) const { return columns + (size_t)tile * width * L; }
  float *columns_of(int tile) { return columns + (size_t)tile * width * L; }
  const float *rows_of(int tile) const { return full + (size_t)tile * whole * L; }
};

// A sum [BLOCK, width] over keys for a block of queries. `mix` leaves the last few columns in lanes.
struct Accumulated {
  int width, whole;
  float *sums;   // [BLOCK, whole]
  float *lanes;  // [BLOCK, width − whole, L]

  void clear() {
    memset(sums, 0, (size_t)BLOCK * whole * sizeof(float));
    memset(lanes, 0, (size_t)BLOCK * (width - whole) * L * sizeof(float));
  }
  void scale(int query, float factor) {
    float *sum = sums + (size_t)query * whole, *lane = lanes + (size_t)query * (width - whole) * L;
    for (int c = 0; c < whole; c++) sum[c] *= factor;
    for (int c = 0; c < (width - whole) * L; c++) lane[c] *= factor;
  }
  // Add up the lanes of the first `queries` queries; then `write` returns their rows.
  void finish(int queries) { sum_lanes(lanes, queries * (width - whole)); }
  void write(int query, float factor, float *row) const {
    const float *from = sums + (size_t)query * whole, *rest = lanes + (size_t)query * (width - whole);
    for (int c = 0; c < whole; c += L) store(row + c, factor * load(from + c));
    for (int c = whole; c < width; c++) row[c] = factor * rest[c - whole];
  }
};

// A pointer that the compiler does not see as a sum. It would otherwise add base and index in every instruction that
// reads a broadcast operand, which many processors then split in two.
inline const float *opaque(const float *p) {
  __asm__("" : "+r"(p));
  return p;
}

// Sums begin at start[query], or at 0.
inline void dot(const float *a, const int width, const float *columns, const float *start, const Rows &r, float *s) {
  const int rows = r.rows;
  int c0 = 0;
  for (; c0 + L <= width; c0 += L) {
    vec column[L];
#pragma GCC unroll 16
    for (int c = 0; c < L; c++) column[c] = load(columns + (c0 + c) * L);
    for (int i = 0; i < rows; i++) {
      const float *row = opaque(a + (size_t)r.query[i] * width + c0);
      vec part[4] = {c0 ? load(s + i * L) : start ? all(start[r.query[i]]) : vec{}};  // four short chains
#pragma GCC unroll 16
      for (int c = 0; c < L; c++) part[c % 4] += row[c] * column[c];
      store(s + i * L, (part[0] + part[1]) + (part[2] + part[3]));
    }
  }
  if (c0 == width && width) return;
  for (int i = 0; i < rows; i++) {
    const float *row = a + (size_t)r.query[i] * width;
    vec total = c0 ? load(s + i * L) : start ? all(start[r.query[i]]) : vec{};
    for (int c = c0; c < width; c++) total += row[c] * load(columns + c * L);
    store(s + i * L, total);
  }
}

inline void mix(const float *p, const float *full, const float *columns, const Rows &r, Accumulated &out) {
  const int rows = r.rows, whole = out.whole, rest = out.width - out.whole;
  float *sums = out.sums, *lanes = out.lanes;
  int c0 = 0;
  if constexpr (L < 16)  // few registers: four rows by two vectors of columns share what they read
    for (; c0 + 2 * L <= whole; c0 += 2 * L) {
      int i = 0;
      for (; i + 4 <= rows; i += 4) {
        float *to[4];
        vec low[4], high[4];
#pragma GCC unroll 4
        for (int n = 0; n < 4; n++) {
          to[n] = sums + (size_t)r.query[i + n] * whole + c0;
          low[n] = load(to[n]), high[n] = load(to[n] + L);
        }
        const float *weight = opaque(p + i * L);
#pragma GCC unroll 8
        for (int l = 0; l < L; l++) {
          const vec a = load(full + (size_t)l * whole + c0), b = load(full + (size_t)l * whole + c0 + L);
#pragma GCC unroll 4
          for (int n = 0; n < 4; n++) low[n] += weight[n * L + l] * a, high[n] += weight[n * L + l] * b;
        }
#pragma GCC unroll 4
        for (int n = 0; n < 4; n++) store(to[n], low[n]), store(to[n] + L, high[n]);
      }
      for (; i < rows; i++) {
        float *to = sums + (size_t)r.query[i] * whole + c0;
        vec low[2] = {load(to)}, high[2] = {load(to + L)};
#pragma GCC unroll 8
        for (int l = 0; l < L; l++) {
          low[l % 2] += p[i * L + l] * load(full + (size_t)l * whole + c0);
          high[l % 2] += p[i * L + l] * load(full + (size_t)l * whole + c0 + L);
        }
        store(to, low[0] + low[1]), store(to + L, high[0] + high[1]);
      }
    }
  for (; c0 < whole; c0 += L) {
    vec row[L];
#pragma GCC unroll 16
    for (int l = 0; l < L; l++) row[l] = load(full + (size_t)l * whole + c0);
    for (int i = 0; i < rows; i++) {
      float *to = sums + (size_t)r.query[i] * whole + c0;
      const float *weight = opaque(p + i * L);
      vec part[4] = {load(to)};
#pragma GCC unroll 16
      for (int l = 0; l < L; l++) part[l % 4] += weight[l] * row[l];
      store(to, (part[0] + part[1]) + (part[2] + part[3]));
    }
  }
  for (int c = 0; c < rest; c++) {
    const vec column = load(columns + (whole + c) * L);
    for (int i = 0; i < rows; i++) {
      float *to = lanes + ((size_t)r.query[i] * rest + c) * L;
      store(to, load(to) + load(p + i * L) * column);
    }
  }
}

inline void spread(const float *p, const float *a, const int width, const Rows &r, float *columns) {
  const int rows = r.rows;
  int c0 = 0;
  for (; c0 + L <= width; c0 += L) {
    vec column[L];
#pragma GCC unroll 16
    for (int c = 0; c < L; c++) column[c] = load(columns + (c0 + c) * L);
    int i = 0;
    for (; i + 4 <= rows; i += 4) {  // a short sum first: each column is one chain of additions
      vec weight[4];
      const float *row[4];
#pragma GCC unroll 4
      for (int n = 0; n < 4; n++)
        weight[n] = load(p + (i + n) * L), row[n] = opaque(a + (size_t)r.query[i + n] * width + c0);
#pragma GCC unroll 16
      for (int c = 0; c < L; c++) {
        vec part = row[0][c] * weight[0];
#pragma GCC unroll 4
        for (int n = 1; n < 4; n++) part += row[n][c] * weight[n];
        column[c] += part;
      }
    }
    for (; i < rows; i++) {
      const vec weight = load(p + i * L);
      const float *row = opaque(a + (size_t)r.query[i] * width + c0);
#pragma GCC unroll 16
      for (int c = 0; c < L; c++) column[c] += row[c] * weight;
    }
#pragma GCC unroll 16
    for (int c = 0; c < L; c++) store(columns + (c0 + c) * L, column[c]);
  }
  for (; c0 < width; c0++) {
    vec even = load(columns + c0 * L), odd = {};
    int i = 0;
    for (; i + 1 < rows; i += 2) {
      even += a[(size_t)r.query[i] * width + c0] * load(p + i * L);
      odd += a[(size_t)r.query[i + 1] * width + c0] * load(p + (i + 1) * L);
    }
    if (i < rows) even += a[(size_t)r.query[i] * width + c0] * load(p + i * L);
    store(columns + c0 * L, even + odd);
  }
}

}  // namespace fillin
