// A vector of L floats, in the vector types of the compiler: operators act on all lanes.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace fillin {

constexpr int L = FILLIN_LANES;

typedef float vec __attribute__((vector_size(4 * L)));
typedef float loose __attribute__((vector_size(4 * L), aligned(4), may_alias));  // unaligned
typedef int32_t ints __attribute__((vector_size(4 * L)));
typedef uint32_t bits __attribute__((vector_size(4 * L)));

inline vec load(const float *p) { return *reinterpret_cast<const loose *>(p); }
inline void store(float *p, vec v) { *reinterpret_cast<loose *>(p) = v; }
inline vec all(float x) { return x - vec{}; }
inline vec larger(vec a, vec b) { return a > b ? a : b; }
inline vec absolute(vec a) { return (vec)((bits)a & 0x7FFFFFFFu); }
inline vec root(vec a) {
  vec r;
  for (int l = 0; l < L; l++) r[l] = std::sqrt(a[l]);
  return r;
}

// Reduce a vector by repeated halving.
template <class Join>
inline float folded(vec v, Join join) {
  alignas(64) float part[L];
  store(part, v);
#pragma GCC unroll 4
  for (int half = L / 2; half > 0; half /= 2)
    for (int l = 0; l < half; l++) part[l] = join(part[l], part[l + half]);
  return part[0];
}

inline float sum(vec v) {
  return folded(v, [](float a, float b) { return a + b; });
}
inline float largest(vec v) {
  return folded(v, [](float a, float b) { return a > b ? a : b; });
}

// Lanes with bit HALF clear hold the sum of the two lanes of a that differ in this bit; other lanes, that of b.
template <int HALF>
inline vec joined(vec a, vec b) {
  ints same, other;
  for (int l = 0; l < L; l++) same[l] = l + (l & HALF ? L : 0), other[l] = (l ^ HALF) + (l & HALF ? L : 0);
  return __builtin_shuffle(a, b, same) + __builtin_shuffle(a, b, other);
}

// Lane l of the result is the sum over the lanes of v[l]; v is overwritten.
template <int HALF = L / 2>
inline vec sums(vec *v) {
#pragma GCC unroll 8
  for (int i = 0; i < HALF; i++) v[i] = joined<HALF>(v[i], v[i + HALF]);
  if constexpr (HALF > 1) return sums<HALF / 2>(v);
  else return v[0];
}

// Transpose the L × L matrix of the vectors v: bit HALF of the number of a vector changes place with that of a lane.
template <int HALF = L / 2>
inline void transpose(vec *v) {
  ints low, high;
  for (int l = 0; l < L; l++) low[l] = l & HALF ? (l ^ HALF) + L : l, high[l] = l & HALF ? l + L : l ^ HALF;
#pragma GCC unroll 16
  for (int i = 0; i < L; i++)
    if (!(i & HALF)) {
      vec a = v[i], b = v[i + HALF];
      v[i] = __builtin_shuffle(a, b, low), v[i + HALF] = __builtin_shuffle(a, b, high);
    }
  if constexpr (HALF > 1) transpose<HALF / 2>(v);
}

// Replace `count` vectors by the sums over their lanes: lanes[i] = Σ_l lanes[i · L + l], L vectors at a time.
inline void sum_lanes(float *lanes, int count) {
  int i = 0;
  for (; i + L <= count; i += L) {
    vec v[L];
#pragma GCC unroll 16
    for (int l = 0; l < L; l++) v[l] = load(lanes + (size_t)(i + l) * L);
    store(lanes + i, sums(v));
  }
  for (; i < count; i++) lanes[i] = sum(load(lanes + (size_t)i * L));
}

// Σ_c a_c b_c, left in lanes
inline vec product_lanes(const float *a, const float *b, int count) {
  vec lanes = {};
  float rest = 0;
  int c = 0;
  for (; c + L <= count; c += L) lanes += load(a + c) * load(b + c);
  for (; c < count; c++) rest += a[c] * b[c];
  lanes[0] += rest;
  return lanes;
}

// Σ_c a_c², which is NaN or infinite where an element is.
inline float squares(const float *a, size_t count) {
  vec lanes = {};
  float rest = 0;
  size_t c = 0;
  for (; c + L <= count; c += L) lanes += load(a + c) * load(a + c);
  for (; c < count; c++) rest += a[c] * a[c];
  return rest + sum(lanes);
}

inline bool any(ints mask) {
#if defined(__AVX512F__)
  if constexpr (L == 16) return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX2__)
  if constexpr (L == 8) return _mm256_movemask_ps((__m256)mask) != 0;
#endif
  int64_t parts[L / 2], found = 0;
  memcpy(parts, &mask, sizeof parts);
  for (int64_t part : parts) found |= part;
  return found != 0;
}

// Bit l is set where lane l of `mask` is.
inline uint32_t bits_of(ints mask) {
#if defined(__AVX512F__)
  if constexpr (L == 16) return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask);
#elif defined(__AVX2__)
  if constexpr (L == 8) return (uint32_t)_mm256_movemask_ps((__m256)mask);
#endif
  uint32_t found = 0;
  for (int l = 0; l < L; l++) found |= mask[l] ? 1u << l : 0;
  return found;
}

// Store `value` where distance < limit, and `other` elsewhere; return whether any lane is inside. NaN is outside.
inline bool store_inside(float *p, vec distance, float limit, vec value, float other) {
#if defined(__AVX512F__)
  if constexpr (L == 16) {
    __mmask16 inside = _mm512_cmp_ps_mask((__m512)distance, _mm512_set1_ps(limit), _CMP_LT_OQ);
    _mm512_storeu_ps(p, _mm512_mask_blend_ps(inside, _mm512_set1_ps(other), (__m512)value));
    return inside != 0;
  }
#endif
  ints inside = distance < limit;
  store(p, inside ? value : all(other));
  return any(inside);
}

// Deinterleave 2L floats a0 b0 a1 b1 … into two vectors, and back.
inline void apart(const float *p, vec &a, vec &b) {
  ints even, odd;
  for (int l = 0; l < L; l++) even[l] = 2 * l, odd[l] = 2 * l + 1;
  vec low = load(p), high = load(p + L);
  a = __builtin_shuffle(low, high, even);
  b = __builtin_shuffle(low, high, odd);
}
inline void together(float *p, vec a, vec b) {
  ints low, high;
  for (int l = 0; l < L; l++) low[l] = l / 2 + (l % 2) * L, high[l] = L / 2 + l / 2 + (l % 2) * L;
  store(p, __builtin_shuffle(a, b, low));
  store(p + L, __builtin_shuffle(a, b, high));
}

// e^x for x ≤ 88. It is 0 below −60, where a weight is negligible beside the largest and products would be denormal,
// and for NaN.
inline vec exponential(vec x) {
  vec t = x * 1.44269504088896341f;
  vec shifted = t + 12582912.f;  // 1.5 · 2²³: rounds t to an integer, which is then in the lowest bits
  bits whole = (bits)shifted - 0x4B400000u;
  vec f = t - (shifted - 12582912.f);
  vec p = f * 1.32647273e-3f + 9.67151299e-3f;  // 2^f on [−½, ½] within 1e-7: minimax with p(0) = 1
  p = p * f + 5.55073358e-2f;
  p = p * f + 2.40222424e-1f;
  p = p * f + 6.93147004e-1f;
  p = p * f + 1.f;
  vec e = (vec)((bits)p + (whole << 23));
  return x > -60.f ? e : vec{};
}

// e^(−z) for 0 ≤ z ≤ 0.6 within 4e-8, in fewer operations than `exponential`.
inline vec bounded_exponential(vec z) {
  vec p = z * -6.18801e-3f + 4.029387e-2f;  // minimax of the relative error with p(0) = 1
  p = p * z + -1.6625396e-1f;
  p = p * z + 4.999447e-1f;
  p = p * z + -9.9999754e-1f;
  return p * z + 1.f;
}

// e^(−z · 2^doublings).
inline vec bounded_exponential(vec z, int doublings) {
  vec p = bounded_exponential(z);
  for (int i = 0; i < doublings; i++) p *= p;
  return p;
}

}  // namespace fillin
