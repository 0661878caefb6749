// Keys in tiles of L with a hierarchy of bounding boxes, and the search for the tiles within reach.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <new>
#include <vector>

#include "lanes.h"
#include "span.h"

namespace fillin {

constexpr int BLOCK = 64;  // queries that share a search and a pass over tiles
constexpr int FAN = 8;     // boxes under one box

inline int up(int count, int unit) { return (count + unit - 1) / unit; }

// An aligned buffer of floats that grows and never shrinks: the scratch memory of one thread.
class Scratch {
 public:
  float *get(size_t count) {
    if (count > held_) {
      release();
      data_ = static_cast<float *>(operator new(count * sizeof(float), std::align_val_t(64)));
      held_ = count;
    }
    return data_;
  }
  Scratch() = default;
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;
  ~Scratch() { release(); }

 private:
  void release() {
    if (data_) operator delete(data_, std::align_val_t(64));
    data_ = nullptr, held_ = 0;
  }
  float *data_ = nullptr;
  size_t held_ = 0;
};

// An axis-parallel box in the coordinates of the window, A·x.
template <int D>
struct Box {
  float low[D], high[D];

  void clear() {
    for (int d = 0; d < D; d++) low[d] = INFINITY, high[d] = -INFINITY;
  }
  void add(const Box &other) {
    for (int d = 0; d < D; d++) {
      low[d] = other.low[d] < low[d] ? other.low[d] : low[d];
      high[d] = other.high[d] > high[d] ? other.high[d] : high[d];
    }
  }
  // Whether a point of one box may lie within √limit of a point of the other (a box-shaped window: in every dimension).
  bool near(const Box &other, float limit, bool box_shaped) const {
    float distance = 0;
    for (int d = 0; d < D; d++) {
      float gap = std::max(0.f, std::max(other.low[d] - high[d], low[d] - other.high[d]));
      distance = box_shaped ? std::max(distance, gap * gap) : distance + gap * gap;
    }
    return !(distance > limit);  // true for NaN, which is tested pair by pair
  }
};

// The window of one head for boxes: coordinates A·(x − origin), and the squared distance of its edge.
template <int D>
struct Frame {
  double inverse[D][D], origin[D];
  float limit;  // r² of the edge, with a margin for rounding; ∞ without a threshold
  bool box_shaped;

  // Enlarge `box` by the point x, of which `u` are the coordinates.
  void add(Box<D> &box, const float *x, float *u) const {
    for (int d = 0; d < D; d++) {
      double at = 0;
      for (int c = 0; c <= d; c++) at += inverse[d][c] * ((double)x[c] - origin[c]);
      u[d] = (float)at;
      box.low[d] = u[d] < box.low[d] ? u[d] : box.low[d];
      box.high[d] = u[d] > box.high[d] ? u[d] : box.high[d];
      if (!(at == at)) box.low[d] = -INFINITY, box.high[d] = INFINITY;
    }
  }
  void widen(Box<D> &box) const {  // by the rounding of a double to a float
    for (int d = 0; d < D; d++) {
      box.low[d] -= 1e-6f * std::fabs(box.low[d]) + 1e-30f;
      box.high[d] += 1e-6f * std::fabs(box.high[d]) + 1e-30f;
    }
  }
};

// Keys of one batch and head, in tiles.
template <int D>
struct Tiles {
  int count = 0;              // tiles
  int keys = 0;               // keys in them, without masked keys
  std::vector<int32_t> index;  // [count, L] key in each lane; −1: none
  std::vector<float> x;        // [count, D, L]; 0 without a key
  std::vector<std::vector<Box<D>>> levels;  // boxes of tiles, of FAN tiles, of FAN² …

  void place(const float *xk, const int32_t *order, const uint8_t *keep, int n) {
    index.clear();
    for (int i = 0; i < n; i++)
      if (int32_t key = order ? order[i] : i; !keep || keep[key]) index.push_back(key);
    keys = (int)index.size(), count = up(keys, L);
    index.resize((size_t)count * L, -1);
    x.assign((size_t)count * D * L, 0.f);
    if (!xk) return;
    for (int t = 0; t < count; t++)
      for (int l = 0; l < L; l++)
        if (int32_t key = index[(size_t)t * L + l]; key >= 0)
          for (int d = 0; d < D; d++) x[((size_t)t * D + d) * L + l] = xk[(size_t)key * D + d];
  }

  void enclose(const float *xk, const Frame<D> &frame) {
    levels.assign(1, std::vector<Box<D>>(count));
    float u[D];
    for (int t = 0; t < count; t++) {
      Box<D> &box = levels[0][t];
      box.clear();
      for (int l = 0; l < L; l++)
        if (int32_t key = index[(size_t)t * L + l]; key >= 0) frame.add(box, xk + (size_t)key * D, u);
      frame.widen(box);
    }
    while (levels.back().size() > FAN) {
      const std::vector<Box<D>> &below = levels.back();
      std::vector<Box<D>> above(up((int)below.size(), FAN));
      for (Box<D> &box : above) box.clear();
      for (size_t i = 0; i < below.size(); i++) above[i / FAN].add(below[i]);
      levels.push_back(std::move(above));
    }
  }

  // Find the tiles that points in `box` may reach, in order.
  void find(const Box<D> &box, const Frame<D> &frame, std::vector<int32_t> &found) const {
    found.clear();
    for (size_t i = 0; i < levels.back().size(); i++) descend((int)levels.size() - 1, i, box, frame, found);
  }

 private:
  void descend(int level, size_t i, const Box<D> &box, const Frame<D> &frame, std::vector<int32_t> &found) const {
    if (!levels[level][i].near(box, frame.limit, frame.box_shaped)) return;
    if (level == 0) return found.push_back((int32_t)i);
    size_t end = std::min((i + 1) * FAN, levels[level - 1].size());
    for (size_t j = i * FAN; j < end; j++) descend(level - 1, j, box, frame, found);
  }
};

// Ask for the rows `index[0 … count)` of a matrix before they are read: points in order of space are scattered in memory.
inline void prefetch_rows(const float *data, int64_t stride, int width, const int32_t *index, int count) {
  for (int i = 0; i < count; i++)
    for (int c = 0; index[i] >= 0 && c < width; c += 16) __builtin_prefetch(data + index[i] * stride + c);
}

// rows[tile][l][0 … width): the row of each key, zeros in lanes without a key. The width fills whole vectors.
inline void pack_rows(const float *data, int64_t stride, int width, const std::vector<int32_t> &index, float *rows) {
  for (size_t i = 0; i < index.size(); i++, rows += width) {
    for (int c = 0; c < width; c += L) store(rows + c, index[i] < 0 ? vec{} : load(data + index[i] * stride + c));
  }
}

// columns[tile][c][l]: the transpose: column c of all keys of a tile is one vector.
inline void pack_columns(const float *data, int64_t stride, int width, const std::vector<int32_t> &index,
                         float *columns) {
  const int whole = width / L * L;
  for (size_t t = 0; t < index.size() / L; t++, columns += (size_t)width * L) {
    const int32_t *keys = index.data() + t * L;
    if ((t + 3) * L <= index.size()) prefetch_rows(data, stride, width, keys + 2 * L, L);
    for (int c0 = 0; c0 < whole; c0 += L) {
      vec v[L];
#pragma GCC unroll 16
      for (int l = 0; l < L; l++) v[l] = keys[l] < 0 ? vec{} : load(data + keys[l] * stride + c0);
      transpose(v);
#pragma GCC unroll 16
      for (int c = 0; c < L; c++) store(columns + (c0 + c) * L, v[c]);
    }
    for (int l = 0; l < L; l++)
      for (int c = whole; c < width; c++) columns[c * L + l] = keys[l] < 0 ? 0.f : data[keys[l] * stride + c];
  }
}

// The way back: the row of each key in `data` from columns[tile][c][l].
inline void unpack_columns(const float *columns, int width, const std::vector<int32_t> &index, float *data,
                           int64_t stride) {
  const int whole = width / L * L;
  for (size_t t = 0; t < index.size() / L; t++, columns += (size_t)width * L) {
    const int32_t *keys = index.data() + t * L;
    for (int c0 = 0; c0 < whole; c0 += L) {
      vec v[L];
#pragma GCC unroll 16
      for (int c = 0; c < L; c++) v[c] = load(columns + (c0 + c) * L);
      transpose(v);
#pragma GCC unroll 16
      for (int l = 0; l < L; l++)
        if (keys[l] >= 0) store(data + keys[l] * stride + c0, v[l]);
    }
    for (int l = 0; l < L; l++)
      for (int c = whole; keys[l] >= 0 && c < width; c++) data[keys[l] * stride + c] = columns[c * L + l];
  }
}

}  // namespace fillin
