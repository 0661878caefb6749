// The most frequent window, an axis-aligned ball that multiplies weights, without tables, closed forms or a mask over
// pairs: scores, window and weights of four rows at a time, in registers from the dot product to the weight.
#pragma once

#include "item.h"

namespace fillin {

// The running maximum m of the exponents may be approximate, as long as e^(e − m) neither overflows nor underflows. So
// it is updated, and the sums are rescaled, only where a row exceeds it by this much, which is rare.
constexpr float SLACK = 30;

constexpr int GROUP = 4;  // rows that are computed together

// Σ_c a_n[c] · column c for the rows a of a group, in two chains each. WIDTH 0: known only at run time.
template <int WIDTH>
inline void group_dot(const float *const *a, int width, const float *columns, vec *s) {
  vec odd[GROUP] = {};
  auto add = [&](int c, vec *to) __attribute__((always_inline)) {
    const vec column = load(columns + c * L);
#pragma GCC unroll 4
    for (int n = 0; n < GROUP; n++) to[n] += a[n][c] * column;
  };
  if constexpr (WIDTH > 0) {
#pragma GCC unroll 16
    for (int c = 0; c < WIDTH; c += 2) add(c, s), add(c + 1, odd);
  } else {
    int c = 0;
    for (; c + 1 < width; c += 2) add(c, s), add(c + 1, odd);
    if (c < width) add(c, s);
  }
#pragma GCC unroll 4
  for (int n = 0; n < GROUP; n++) s[n] += odd[n];
}

// Pad the rows of a tile to whole groups. The rows added have no pair inside.
inline int pad_rows(Rows &r) {
  const int padded = up(r.rows, GROUP) * GROUP;
  for (int n = r.rows; n < padded; n++) r.query[n] = r.query[r.rows - 1], store(r.base + n * L, all(NEVER));
  return padded;
}

template <int D>
struct PlainWindow {
  const Window<D> &window;
  const float least, unit, shift, share;

  explicit PlainWindow(const Window<D> &w)
      : window(w), least(-0.5f * w.limit), unit(-1.f / (1 << std::max(0, w.doublings))),
        shift(-w.t / (1 - w.t)), share(1 / (1 - w.t)) {}

  static bool fits(const FillinProblem &p, const Window<D> &w) {
    return !w.open && !w.scores && !w.box && !w.full && !w.causal && !p.pairs && !p.forms && !p.bias.values &&
           !p.features.values && w.doublings >= 0;
  }

  // G of a group, and e^s · W from the exponents s; 0 outside. `base` is −½ r², or NEVER outside.
  template <bool CONTINUOUS>
  inline void weights(const float *base, const vec *s, vec *g, vec *plain, vec *weight) const {
    vec half[GROUP];
#pragma GCC unroll 4
    for (int n = 0; n < GROUP; n++) half[n] = load(base + n * L);
    if constexpr (CONTINUOUS) {
#pragma GCC unroll 4
      for (int n = 0; n < GROUP; n++) {
        g[n] = bounded_exponential(unit * larger(half[n], all(least)), window.doublings);
        vec w = larger(share * g[n] + shift, all(SLIVER * share));
        plain[n] = half[n] > 0.5f * NEVER ? exponential(s[n]) : vec{};
        weight[n] = plain[n] * w;
      }
    } else {
#pragma GCC unroll 4
      for (int n = 0; n < GROUP; n++) weight[n] = plain[n] = exponential(s[n] + half[n]);
    }
  }
};

// Call `use` with the width, where it is a usual one, and the cut as constants.
template <class Use>
inline void in_kind(bool continuous, int width, Use use) {
  if (width == 16) continuous ? use.template operator()<16, true>() : use.template operator()<16, false>();
  else continuous ? use.template operator()<0, true>() : use.template operator()<0, false>();
}

// r.p = W e^(exponent − maximum) for the rows of a tile; `total` sums them up for each query, lane by lane.
template <int WIDTH, bool CONTINUOUS, int D>
void plain_forward(const PlainWindow<D> &plain, const float *q, int width, const float *columns, Rows &r, float *most,
                   vec *total, Accumulated &out) {
  const int padded = pad_rows(r);
  for (int i = 0; i < padded; i += GROUP) {
    const float *a[GROUP];
    vec s[GROUP] = {}, g[GROUP], e[GROUP], weight[GROUP];
#pragma GCC unroll 4
    for (int n = 0; n < GROUP; n++) a[n] = opaque(q + (size_t)r.query[i + n] * width);
    group_dot<WIDTH>(a, width, columns, s);
    ints above = {};
#pragma GCC unroll 4
    for (int n = 0; n < GROUP; n++) {
      const float peak = most[r.query[i + n]];
      vec inside = load(r.base + (i + n) * L) > 0.5f * NEVER ? s[n] : all(NEVER);
      above |= inside > peak + SLACK;
    }
    if (any(above))
      for (int n = 0; n < GROUP; n++) {
        const int query = r.query[i + n];
        const float now = largest(load(r.base + (i + n) * L) > 0.5f * NEVER ? s[n] : all(NEVER)), peak = most[query];
        if (!(now > peak + SLACK) || now < 0.5f * NEVER) continue;
        if (peak > -INFINITY) {
          const float factor = std::exp(peak - now);
          total[query] *= factor;
          out.scale(query, factor);
        }
        most[query] = now;
      }
#pragma GCC unroll 4
    for (int n = 0; n < GROUP; n++) s[n] -= most[r.query[i + n]];
    plain.template weights<CONTINUOUS>(r.base + i * L, s, g, e, weight);
#pragma GCC unroll 4
    for (int n = 0; n < GROUP; n++) {
      total[r.query[i + n]] += weight[n];  // 0 in the rows that were added
      store(r.p + (i + n) * L, weight[n]);
    }
  }
}

// r.p = the weights again, r.ds = the gradients to the scores; adds the sums of `Window::back` to `grad`.
template <int WIDTH, bool CONTINUOUS, int D>
void plain_backward(const PlainWindow<D> &plain, const Block<D> &block, const float *x, const float *q, int width,
                    const float *k_columns, const float *d_out, int value_width, const float *v_columns,
                    const float *lse, const float *start, Rows &r, vec *grad) {
  const int padded = pad_rows(r);
  vec place[D], along[D];
  for (int d = 0; d < D; d++) place[d] = load(x + d * L), along[d] = grad[d];
  for (int i = 0; i < padded; i += GROUP) {
    const float *a[GROUP], *o[GROUP];
    vec s[GROUP], d_log[GROUP] = {}, g[GROUP], e[GROUP], weight[GROUP];
#pragma GCC unroll 4
    for (int n = 0; n < GROUP; n++) {
      const int query = r.query[i + n];
      a[n] = opaque(q + (size_t)query * width), o[n] = opaque(d_out + (size_t)query * value_width);
      s[n] = all(-lse[query]);
    }
    group_dot<WIDTH>(a, width, k_columns, s);
    group_dot<WIDTH>(o, value_width, v_columns, d_log);
    plain.template weights<CONTINUOUS>(r.base + i * L, s, g, e, weight);
#pragma GCC unroll 4
    for (int n = 0; n < GROUP; n++) {
      d_log[n] += start[r.query[i + n]];
      store(r.p + (i + n) * L, weight[n]);
      store(r.ds + (i + n) * L, weight[n] * d_log[n]);
    }
#pragma GCC unroll 4
    for (int n = 0; n < GROUP; n++) {
      vec part = e[n] * d_log[n];
      if constexpr (CONTINUOUS) part *= plain.share * g[n];
#pragma GCC unroll 4
      for (int d = 0; d < D; d++) {
        vec delta = block.x[r.query[i + n]][d] - place[d];
        along[d] += part * delta * delta;
      }
    }
  }
  for (int d = 0; d < D; d++) grad[d] = along[d];
}

}  // namespace fillin
