// Gaussian processes with many kernels for the same few observations: a kernel to each lane of a vector of doubles.
//
//     C_ij = (1 − ρ) k(r_ij / ℓ) + ρ exp(−2 s_ij / c² − ½ r_ij² / λ²) + t_ij + (σ² + e_i²) [i = j],  C = L Lᵀ, w = L⁻¹ y
//     k(u) = (1 + a u + b u²) exp(−m u − h u²)
//     ln p(y | kernel) = −Σ_i ln L_ii − ½ (n − 1 + ν) ln(ν + ‖w‖²) + constant
//
// t is the covariance of a level and a slope with a wide prior, which take up d values. A kernel without a slope has
// a level alone, of constant covariance, which takes up one, and its y are the values before the slope was subtracted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "lanes.h"

namespace fillin {

constexpr int K = L / 2;  // doubles in a vector

typedef double dvec __attribute__((vector_size(8 * K)));
typedef uint64_t longs __attribute__((vector_size(8 * K)));

inline dvec both(double x) { return x - dvec{}; }

// exp(x) for x ≤ 0, to about 1e-15: 2^n e^r with |r| ≤ ½ ln 2, by a polynomial of degree 12.
inline dvec decay(dvec x) {
  const double shift = 6755399441055744.0;  // 1.5 · 2^52: adding it rounds to an integer
  x = x > -700.0 ? x : both(-700.0);
  dvec rounded = x * 1.4426950408889634 + shift, n = rounded - shift;
  dvec r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
  dvec p = both(1.0 / 479001600);
  const double terms[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                          1.0 / 120,      1.0 / 24,      1.0 / 6,      0.5,         1.0,        1.0};
#pragma GCC unroll 12
  for (double term : terms) p = p * r + term;
  longs scale = ((longs)rounded + 1023u) << 52;  // the low bits of the rounded sum are n
  return p * (dvec)scale;
}

inline dvec square_root(dvec a) {
  dvec r;
  for (int l = 0; l < K; l++) r[l] = std::sqrt(a[l]);
  return r;
}

// The observations of one column: distances and sin² of half the phase between them (nullptr: no period), in rows of
// `stride`, those of queries after them; the covariance of the trend; values, the line that was subtracted from them
// (nullptr: none), also of queries, squared errors, and which rows are there.
struct Observations {
  const double *distance, *wave, *trend, *y, *line, *error;
  const uint8_t *there;
  int rows, stride;

  dvec value(size_t row, dvec no_slope) const { return line ? y[row] + no_slope * line[row] : both(y[row]); }
};

struct Prior {
  double level, freedom, fixed, jitter;  // t at distance 0, ν, d, and the least variance

  // ν + the number of n values that a trend leaves which takes up `taken`
  double left(int n, double taken) const { return freedom + std::max(0.0, n - taken); }
  double taken(double no_slope) const { return no_slope > 0 ? std::min(1.0, fixed) : fixed; }
};

constexpr int THETA = 7;  // kind, ℓ, σ, ρ, c, λ, no_slope

struct Kernels {  // K kernels, one to a lane
  dvec a, b, m, h, inverse_length, noise, share, cycle, far, no_slope;
  bool waves = false;

  Kernels(const double *theta, int count, bool periodic, double jitter) {
    for (int l = 0; l < K; l++) {
      const double *t = theta + (size_t)std::min(l, count - 1) * THETA;
      int kind = (int)t[0];
      const double root3 = 1.7320508075688772, root5 = 2.23606797749979;
      a[l] = kind == 1 ? root5 : kind == 2 ? root3 : 0;
      b[l] = kind == 1 ? 5.0 / 3 : 0;
      m[l] = kind == 0 ? 0 : kind == 1 ? root5 : kind == 2 ? root3 : 1;
      h[l] = kind == 0 ? 0.5 : 0;
      inverse_length[l] = 1 / t[1], noise[l] = t[2] * t[2] + jitter;
      share[l] = periodic ? t[3] : 0, cycle[l] = 2 / (t[4] * t[4]), far[l] = 0.5 / (t[5] * t[5]);
      no_slope[l] = t[6];
      waves = waves || share[l] > 0;
    }
  }

  // The correlation of rows at distance r, where s = sin² of half their difference in phase.
  dvec operator()(dvec r, dvec s) const {
    dvec u = r * inverse_length;
    dvec c = (1 + (a + b * u) * u) * decay(-(m + h * u) * u);
    return waves ? c + share * (decay(-s * cycle - r * r * far) - c) : c;
  }
  // The covariance of two rows, with the trend t, whose variance is `level`.
  dvec operator()(double r, const double *s, double t, double level) const {
    return (*this)(both(r), both(*s)) + t + no_slope * (level - t);
  }
};

// The correlations at `count` distances by one kernel.
inline void correlate(const double *distance, const double *wave, const double *theta, size_t count, double *out) {
  Kernels kernel(theta, 1, wave, 0);
  size_t i = 0;
  auto part = [&](size_t size) {
    dvec r = {}, s = {};
    memcpy(&r, distance + i, size * sizeof(double));
    if (wave) memcpy(&s, wave + i, size * sizeof(double));
    dvec c = kernel(r, s);
    memcpy(out + i, &c, size * sizeof(double));
  };
  for (; i + K <= count; i += K) part(K);
  if (i < count) part(count - i);
}

struct Space {
  std::vector<int> rows;
  std::vector<dvec> factor, inverse, white, alpha, cross;
};

// Σ_k a_k b_k
inline dvec product(const dvec *a, const dvec *b, int count) {
  dvec first = {}, second = {};
  int k = 0;
  for (; k + 2 <= count; k += 2) first += a[k] * b[k], second += a[k + 1] * b[k + 1];
  if (k < count) first += a[k] * b[k];
  return first + second;
}

struct Fit {
  dvec square, logs;  // ‖w‖² and Σ ln L_ii
  int n;
};

// Factor the covariance of the rows that are there: L, the inverses of its diagonal, and w.
inline Fit factorise(const Observations &o, const Kernels &kernels, const Prior &prior, Space &space) {
  double jitter = prior.jitter;
  space.rows.clear();
  for (int i = 0; i < o.rows; i++)
    if (o.there[i]) space.rows.push_back(i);
  int n = (int)space.rows.size();
  space.factor.resize((size_t)n * (n + 1) / 2);
  space.inverse.resize(n), space.white.resize(n);
  Fit fit = {{}, {}, n};
  dvec determinant = both(1);
  for (int i = 0; i < n; i++) {
    size_t row = space.rows[i];
    const double *apart = o.distance + row * o.stride, *phase = o.wave ? o.wave + row * o.stride : apart;
    const double *trend = o.trend + row * o.stride;
    dvec *own = space.factor.data() + (size_t)i * (i + 1) / 2;
    for (int j = 0; j <= i; j++) {
      int at = space.rows[j];
      dvec c = kernels(apart[at], phase + at, trend[at], prior.level);
      if (j == i) c += kernels.noise + o.error[row];
      c -= product(own, space.factor.data() + (size_t)j * (j + 1) / 2, j);
      if (j < i) own[j] = c * space.inverse[j];
      else {
        c = c > jitter ? c : both(jitter);
        own[i] = square_root(c);
        space.inverse[i] = 1 / own[i];
        determinant *= own[i];
      }
    }
    space.white[i] = (o.value(row, kernels.no_slope) - product(own, space.white.data(), i)) * space.inverse[i];
    fit.square += space.white[i] * space.white[i];
    if (i % 16 == 15 || i == n - 1) {  // a product of 16 factors neither overflows nor underflows
      for (int l = 0; l < K; l++) fit.logs[l] += std::log(determinant[l]);
      determinant = both(1);
    }
  }
  return fit;
}

// ln p(y | kernel) of `count` ≤ K kernels, up to a constant.
inline void evidence(const Observations &o, const double *theta, int count, const Prior &prior, Space &space,
                     double *out) {
  Fit fit = factorise(o, Kernels(theta, count, o.wave, prior.jitter), prior, space);
  double left = prior.left(fit.n, prior.taken(1));  // the same of all: their values are compared
  for (int l = 0; l < count; l++)
    out[l] = -fit.logs[l] - 0.5 * left * std::log(prior.freedom + fit.square[l]);
}

// v = L⁻¹ c, in place
inline void whiten(const Space &space, int n, dvec *c, int from = 0) {
  for (int i = from; i < n; i++) {
    const dvec *row = space.factor.data() + (size_t)i * (i + 1) / 2;
    c[i] = (c[i] - product(row + from, c + from, i - from)) * space.inverse[i];
  }
}

// Add the predictions of `count` kernels: Σ mean, Σ (variance of the latent function + mean²) and Σ variance of the
// noise, of every row that is there from the others, and then of `queries` rows, whose distances follow.
inline void predict(const Observations &o, int queries, const double *theta, int count, const Prior &prior,
                    Space &space, double *mean, double *second, double *noise) {
  double jitter = prior.jitter;
  Kernels kernels(theta, count, o.wave, jitter);
  Fit fit = factorise(o, kernels, prior, space);
  int n = fit.n;
  dvec scale = prior.freedom + fit.square;
  for (int l = 0; l < K; l++) scale[l] /= prior.left(n, prior.taken(kernels.no_slope[l]));
  auto add = [&](size_t row, dvec m, dvec variance) {
    if (o.line) m -= kernels.no_slope * o.line[row];
    variance = variance > jitter ? variance : both(jitter);
    dvec moment = scale * variance + m * m, rest = scale * (kernels.noise - jitter);
    for (int l = 0; l < count; l++) mean[row] += m[l], second[row] += moment[l], noise[row] += rest[l];
  };
  space.alpha.assign(space.white.begin(), space.white.end());
  for (int i = n - 1; i >= 0; i--) {
    const dvec *row = space.factor.data() + (size_t)i * (i + 1) / 2;
    space.alpha[i] *= space.inverse[i];
    for (int k = 0; k < i; k++) space.alpha[k] -= row[k] * space.alpha[i];
  }
  space.cross.resize(n);
  dvec *c = space.cross.data();
  for (int i = 0; i < n; i++) {  // [C⁻¹]_ii = ‖L⁻¹ e_i‖²
    for (int k = i; k < n; k++) c[k] = both(k == i);
    whiten(space, n, c, i);
    dvec left_out = 1 / product(c + i, c + i, n - i);
    size_t row = space.rows[i];
    add(row, o.value(row, kernels.no_slope) - space.alpha[i] * left_out, left_out - (kernels.noise - jitter) - o.error[row]);
  }
  for (int q = 0; q < queries; q++) {
    size_t row = (size_t)o.rows + q;
    const double *apart = o.distance + row * o.stride, *phase = o.wave ? o.wave + row * o.stride : apart;
    const double *trend = o.trend + row * o.stride;
    for (int i = 0; i < n; i++) {
      int at = space.rows[i];
      c[i] = kernels(apart[at], phase + at, trend[at], prior.level);
    }
    dvec m = product(c, space.alpha.data(), n);
    whiten(space, n, c);
    add(row, m, 1 + prior.level - product(c, c, n));
  }
}

}  // namespace fillin
