// The window of one head: the pairs inside, G and W for the rows of a tile, and the gradient to A.
#pragma once

#include "rows.h"

namespace fillin {

constexpr float SLIVER = 1e-12f;  // G − t where it rounds to 0: a key at the edge that is alone still has weight

// One block of queries: their indices, locations, and coordinates of the window, A·(x − origin).
template <int D>
struct Block {
  int count;
  int32_t index[BLOCK];
  float x[BLOCK][D];
  alignas(64) float u[D][BLOCK] = {};
};

// The exponent of row i, where the window multiplies `scores` or not.
inline vec exponent(const Rows &r, int i, bool scores) {
  vec s = load(r.s + i * L);
  return (scores ? s * load(r.gauss + i * L) : s) + load(r.base + i * L);
}

// The mask over pairs of one batch and head: row i at data + i · row; NULL: no mask.
struct PairMask {
  const uint8_t *data;
  int64_t row;

  // Whether the keys of a tile follow one another, so that their bytes are read at once.
  static bool adjacent(ints index) {
    ints step;
    for (int l = 0; l < L; l++) step[l] = l;
    return index[0] >= 0 && !any(index - step != index[0]);
  }

  // Lanes of query i that may be attended, for the keys `index` of a tile.
  ints allowed(int32_t i, const int32_t *index, bool adjacent) const {
    const uint8_t *at = data + i * row;
    ints mask;
    if (adjacent) {
      memcpy_bytes(at + index[0], mask);
    } else {
      for (int l = 0; l < L; l++) mask[l] = index[l] >= 0 && at[index[l]] ? -1 : 0;
    }
    return mask;
  }

 private:
  static void memcpy_bytes(const uint8_t *from, ints &mask) {
    typedef uint8_t bytes __attribute__((vector_size(L)));
    bytes b;
    memcpy(&b, from, sizeof b);
    mask = __builtin_convertvector(b, ints) != 0;
  }
};

template <int D>
struct Window {
  bool open, scores, continuous, box, full, causal;
  int doublings;  // G = e^(−z · 2^doublings) with z ≤ 0.6 inside; −1: too many
  float t, limit, a[D][D];

  Window(const FillinProblem &p, int head)
      : open(p.window == FILLIN_OPEN), scores(p.window == FILLIN_SCORES), continuous(p.cut == FILLIN_CONTINUOUS),
        box(p.shape == FILLIN_BOX), full(p.full), causal(p.causal), t(p.threshold) {
    continuous = continuous && t > 0 && !open;
    limit = t > 0 && !open ? -2 * std::log(t) : INFINITY;
    doublings = 0;
    while (doublings >= 0 && 0.5f * limit > 0.6f * (1 << doublings)) doublings = doublings < 4 ? doublings + 1 : -1;
    if (box) doublings = -1;  // r² of a corner is beyond the limit
    for (int d = 0; d < D; d++)
      for (int c = 0; c < D; c++) a[d][c] = open ? 0.f : p.inverse[(head * D + d) * D + c];
  }

  Frame<D> frame(const float *origin) const {
    Frame<D> f;
    f.limit = limit * 1.00001f, f.box_shaped = box;
    for (int d = 0; d < D; d++) {
      f.origin[d] = origin[d];
      for (int c = 0; c < D; c++) f.inverse[d][c] = a[d][c];
    }
    return f;
  }

  // u = A Δ for one query and the L keys at x [D, L].
  void coordinates(const float *query, const float *x, vec *delta, vec *u) const {
#pragma GCC unroll 4
    for (int d = 0; d < D; d++) delta[d] = query[d] - load(x + d * L);
#pragma GCC unroll 4
    for (int d = 0; d < D; d++) {
      u[d] = a[d][d] * delta[d];
      for (int c = 0; c < d; c++) u[d] += a[d][c] * delta[c];
    }
  }

  // Find the rows of this tile with a pair inside, with base, gauss and weight where they are needed. `around` is the
  // box of the tile.
  void enter(const Block<D> &block, const Box<D> *around, const float *x, const int32_t *index, const PairMask &pairs,
             Rows &r) const {
    if (open) return admit(block, index, pairs, r);
    if (box || full || causal || pairs.data) find(block, x, index, pairs, r);
    else find_plain(block, *around, x, index, r);
    if (scores || continuous) weigh(block, x, r);
  }

  // The queries of a block that may reach a point of the box, a vector of queries at a time; bit i for query i.
  static uint64_t within_reach(const Block<D> &block, const Box<D> &around, float limit) {
    uint64_t near = 0;
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK; i += L) {
      vec distance = {};
#pragma GCC unroll 4
      for (int d = 0; d < D; d++) {
        const vec u = load(block.u[d] + i), gap = larger(larger(around.low[d] - u, u - around.high[d]), vec{});
        distance += gap * gap;
      }
      near |= (uint64_t)bits_of(~(distance > limit)) << i;  // set for NaN, which is tested pair by pair
    }
    return near & (~(uint64_t)0 >> (64 - block.count));
  }

  // base = −½ r² inside: an axis-aligned ball without masks over pairs and without causal order. A row is written first
  // and counted only if it has a pair inside, without a branch.
  void find_plain(const Block<D> &block, const Box<D> &around, const float *x, const int32_t *index, Rows &r) const {
    int n = 0;
    ints at;
    memcpy(&at, index, sizeof at);
    vec place[D];
    float diagonal[D];
    for (int d = 0; d < D; d++) place[d] = at >= 0 ? load(x + d * L) : all(NAN), diagonal[d] = a[d][d];
    const float limit_ = limit;
    for (uint64_t near = within_reach(block, around, limit * 1.00001f); near; near &= near - 1) {
      const int i = __builtin_ctzll(near);
      vec distance = {};
#pragma GCC unroll 4
      for (int d = 0; d < D; d++) {
        vec u = diagonal[d] * (block.x[i][d] - place[d]);
        distance += u * u;
      }
      r.query[n] = i;
      n += store_inside(r.base + n * L, distance, limit_, -0.5f * distance, NEVER);
    }
    r.rows = n;
  }

 private:
  // Without a window: base = 0 for the pairs that mask and order allow.
  void admit(const Block<D> &block, const int32_t *index, const PairMask &pairs, Rows &r) const {
    ints at, real;
    memcpy(&at, index, sizeof at);
    real = at >= 0;
    const bool adjacent = PairMask::adjacent(at);
    const int count = block.count;
    if (!causal && !pairs.data) {
      const vec base = real ? vec{} : all(NEVER);
      for (int i = 0; i < count; i++) store(r.base + i * L, base), r.query[i] = i;
      r.rows = count;
      return;
    }
    int n = 0;
    for (int i = 0; i < count; i++) {
      r.query[n] = i;
      ints inside = real;
      if (causal) inside &= at <= block.index[i];
      if (pairs.data) inside &= pairs.allowed(block.index[i], index, adjacent);
      store(r.base + n * L, inside ? vec{} : all(NEVER));
      n += any(inside);
    }
    r.rows = n;
  }

  // The same for every window.
  void find(const Block<D> &block, const float *x, const int32_t *index, const PairMask &pairs, Rows &r) const {
    int n = 0;
    ints at, real;
    memcpy(&at, index, sizeof at);
    real = at >= 0;
    const bool adjacent = PairMask::adjacent(at);
    const float limit_ = limit;
    for (int i = 0; i < block.count; i++) {
      ints inside = real;
      vec distance = {}, delta[D], u[D];
      coordinates(block.x[i], x, delta, u);
      for (int d = 0; d < D; d++) {
        distance += u[d] * u[d];
        if (box) inside &= u[d] * u[d] < limit_;
      }
      if (!box) inside &= distance < limit_;
      if (causal) inside &= at <= block.index[i];
      if (pairs.data) inside &= pairs.allowed(block.index[i], index, adjacent);
      r.query[n] = i;
      store(r.base + n * L, inside ? -0.5f * distance : all(NEVER));
      n += any(inside);
    }
    r.rows = n;
  }

  // Compute G and W from −½ r², which is then removed from the exponent.
  void weigh(const Block<D> &block, const float *x, Rows &r) const {
    const float share = 1 / (1 - t), t_ = t;
    if (doublings >= 0) {
      const float least = -0.5f * limit, unit = -1.f / (1 << doublings);
      const int times = doublings;
      for (int i = 0; i < r.rows; i++) {
        vec exponent = load(r.base + i * L), g = bounded_exponential(unit * larger(exponent, all(least)), times);
        store(r.base + i * L, exponent < least ? all(NEVER) : vec{});
        store(r.gauss + i * L, g);
        store(r.weight + i * L, larger(g - t_, all(SLIVER)) * share);
      }
      return;
    }
    for (int i = 0; i < r.rows; i++) {
      vec exponent = load(r.base + i * L), g = exponential(exponent);
      store(r.base + i * L, exponent > 0.5f * NEVER ? vec{} : all(NEVER));
      store(r.gauss + i * L, g);
      store(r.weight + i * L, larger(g - t_, all(SLIVER)) * share);
    }
    if (!continuous || !box) return;
    for (int i = 0; i < r.rows; i++) {  // a box: the product over dimensions
      vec delta[D], u[D], w = all(1.f);
      coordinates(block.x[r.query[i]], x, delta, u);
      for (int d = 0; d < D; d++) w *= larger(exponential(-0.5f * u[d] * u[d]) - t, all(SLIVER)) * share;
      store(r.weight + i * L, w);
    }
  }

 public:

  // The same where scores may be infinite or NaN: masked keys get −∞.
  vec wild_exponent(const Rows &r, int i) const {
    return load(r.base + i * L) > 0.5f * NEVER ? exponent(r, i, scores) : all(-INFINITY);
  }

  // e^x for those: NaN stays NaN, so that it reaches the output.
  vec wild_exponential(const Rows &r, int i, vec x) const {
    vec e = x == x ? exponential(x > 88.f ? all(88.f) : x) : x;
    return load(r.base + i * L) > 0.5f * NEVER ? e : vec{};
  }

  // Add dL/dA to `grad`, up to a factor that `finish` applies. With pull = dL/d(ln W) / W:
  //
  //     dL/d(r_d²) = −½ · pull · (s · G · W where scores are multiplied + G_d ∂W/∂G_d)
  //     dL/dA_dc   = Σ 2 u_d Δ_c · dL/d(r_d²)
  void back(const Block<D> &block, const float *x, const Rows &r, vec (*grad)[D]) const {
    const float share = 1 / (1 - t);
    if (!box && !full && !scores) {  // u_d Δ_d = a_dd Δ_d²
      vec place[D], along[D];
      for (int d = 0; d < D; d++) place[d] = load(x + d * L), along[d] = grad[d][d];
      for (int i = 0; i < r.rows; i++) {
        vec part = load(r.pull + i * L);
        if (continuous) part *= share * load(r.gauss + i * L);
        ints inside = load(r.base + i * L) > 0.5f * NEVER;
#pragma GCC unroll 4
        for (int d = 0; d < D; d++) {
          vec delta = block.x[r.query[i]][d] - place[d];
          along[d] += inside ? part * delta * delta : vec{};
        }
      }
      for (int d = 0; d < D; d++) grad[d][d] = along[d];
      return;
    }
    for (int i = 0; i < r.rows; i++) {
      vec delta[D], u[D], g = load(r.gauss + i * L), pull = load(r.pull + i * L);
      ints inside = load(r.base + i * L) > 0.5f * NEVER;
      coordinates(block.x[r.query[i]], x, delta, u);
      vec common = {};  // the same in all dimensions
      if (scores) common += load(r.s + i * L) * g * (continuous ? load(r.weight + i * L) : all(1.f));
      if (!continuous && !scores) common += 1.f;
      if (continuous && !box) common += g * share;
      for (int d = 0; d < D; d++) {
        vec factor = common;
        if (continuous && box) {
          vec others = all(share);
          for (int c = 0; c < D; c++)
            if (c != d) others *= larger(exponential(-0.5f * u[c] * u[c]) - t, all(SLIVER)) * share;
          factor += exponential(-0.5f * u[d] * u[d]) * others;
        }
        for (int c = 0; c <= d; c++) grad[d][c] += inside ? pull * factor * u[d] * delta[c] : vec{};
      }
    }
  }

  // dL/dA_dc from the sums of `back`.
  double finish(int d, int c, double total) const {
    if (!box && !full && !scores) return d == c ? -total * a[d][d] : 0;
    return full || d == c ? -total : 0;
  }
};

}  // namespace fillin
