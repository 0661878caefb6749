// Closed forms of F(Δ) for the rows of a tile, and their gradients: nothing is read from a table.
#pragma once

#include "window.h"

namespace fillin {

// One form of one head. In `add` it leaves its value without the amplitude in `value`, which `back` reads.
template <int D>
struct Form {
  int kind, dims;
  float amplitude, inverse[D];

  Form() = default;
  Form(const FillinForm &form, int head)
      : kind(form.kind), dims(form.dims), amplitude(form.amplitude ? form.amplitude[head] : 1.f) {
    for (int d = 0; d < D; d++) inverse[d] = std::exp(-form.log_scale[head * dims + (dims == 1 ? 0 : d)]);
  }

  // Whether F is finite for finite Δ.
  bool tame() const {
    float all_of_it = amplitude * amplitude;
    for (int d = 0; d < D; d++) all_of_it += inverse[d];
    return all_of_it < 1e30f;
  }

  // s += a · φ(Δ) for every row.
  void add(const Block<D> &block, const float *x, bool wild, Rows &r, float *value) const {
    switch (kind) {
      case FILLIN_RBF: return add_kind<FILLIN_RBF>(block, x, wild, r, value);
      case FILLIN_GAUSSIAN: return add_kind<FILLIN_GAUSSIAN>(block, x, wild, r, value);
      case FILLIN_LAPLACE: return add_kind<FILLIN_LAPLACE>(block, x, wild, r, value);
      default: return add_kind<FILLIN_RADIAL>(block, x, wild, r, value);
    }
  }

  // Add dL/d ln ℓ and dL/da to their sums, lane by lane, and dL/dx to `dxq` [BLOCK, D, L] and `dxk` [D, L] unless NULL.
  void back(const Block<D> &block, const float *x, const Rows &r, const float *value, vec *d_log_scale,
            vec &d_amplitude, float *dxq, float *dxk) const {
    switch (kind) {
      case FILLIN_RBF: return back_kind<FILLIN_RBF>(block, x, r, value, d_log_scale, d_amplitude, dxq, dxk);
      case FILLIN_GAUSSIAN: return back_kind<FILLIN_GAUSSIAN>(block, x, r, value, d_log_scale, d_amplitude, dxq, dxk);
      case FILLIN_LAPLACE: return back_kind<FILLIN_LAPLACE>(block, x, r, value, d_log_scale, d_amplitude, dxq, dxk);
      default: return back_kind<FILLIN_RADIAL>(block, x, r, value, d_log_scale, d_amplitude, dxq, dxk);
    }
  }

 private:
  template <int KIND>
  void add_kind(const Block<D> &block, const float *x, bool wild, Rows &r, float *value) const {
    const int rows = r.rows;
    const float a = amplitude;
    float factor[D];
    vec place[D];
    for (int d = 0; d < D; d++) place[d] = load(x + d * L), factor[d] = inverse[d];
    for (int i = 0; i < rows; i++) {
      const float *query = block.x[r.query[i]];
      vec distance = {};
#pragma GCC unroll 4
      for (int d = 0; d < D; d++) {
        vec u = (query[d] - place[d]) * factor[d];
        distance += KIND == FILLIN_LAPLACE ? absolute(u) : u * u;
      }
      vec f;
      if constexpr (KIND == FILLIN_RBF) f = exponential(-0.5f * distance);
      else if constexpr (KIND == FILLIN_GAUSSIAN) f = -0.5f * distance;
      else if constexpr (KIND == FILLIN_LAPLACE) f = -distance;
      else f = -root(distance);
      if (wild) f = distance == distance ? f : distance;  // NaN stays NaN
      store(value + i * L, f);
      store(r.s + i * L, load(r.s + i * L) + a * f);
    }
  }

  // dF/d ln ℓ_d and −dF/dΔ_d · ℓ_d are the same factor times u_d² and u_d; for the L1 norm |u_d| and sign(u_d).
  template <int KIND>
  void back_kind(const Block<D> &block, const float *x, const Rows &r, const float *value, vec *d_log_scale,
                 vec &d_amplitude, float *dxq, float *dxk) const {
    const int rows = r.rows;
    const float a = amplitude;
    float scale[D];
    vec place[D], d_scale[D], d_key[D] = {}, d_a = d_amplitude;
    for (int d = 0; d < D; d++) place[d] = load(x + d * L), d_scale[d] = d_log_scale[d], scale[d] = inverse[d];
    for (int i = 0; i < rows; i++) {
      const float *query = block.x[r.query[i]];
      vec ds = load(r.ds + i * L), f = load(value + i * L), factor;
      d_a += ds * f;
      if constexpr (KIND == FILLIN_RBF) factor = a * ds * f;
      else if constexpr (KIND == FILLIN_RADIAL) factor = f < 0.f ? a * ds / -f : vec{};
      else factor = a * ds;
#pragma GCC unroll 4
      for (int d = 0; d < D; d++) {
        vec u = (query[d] - place[d]) * scale[d];
        if constexpr (KIND == FILLIN_LAPLACE) {
          d_scale[d] += factor * absolute(u);
          u = u > 0.f ? all(1.f) : u < 0.f ? all(-1.f) : vec{};
        } else {
          d_scale[d] += factor * u * u;
        }
        if (!dxq && !dxk) continue;
        vec pull = factor * u * scale[d];
        d_key[d] += pull;
        if (!dxq) continue;
        float *at = dxq + ((size_t)r.query[i] * D + d) * L;
        store(at, load(at) - pull);
      }
    }
    for (int d = 0; d < D; d++) {
      d_log_scale[d] = d_scale[d];
      if (dxk) store(dxk + d * L, load(dxk + d * L) + d_key[d]);
    }
    d_amplitude = d_a;
  }
};

}  // namespace fillin
