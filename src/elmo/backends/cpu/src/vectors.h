// Vectors of numbers, as wide as the registers of the CPU, and functions of them: LANES values at a
// time, with operators of the compiler wherever it has them. Here, too, is how much of a product is
// kept in registers at once, which follows from their number.

#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16;
constexpr int REGISTERS = 32;
constexpr int MAX_ROWS = 12;  // 24 registers for sums
#else
constexpr int LANES = 8;
constexpr int REGISTERS = 16;
constexpr int MAX_ROWS = 6;  // 12 registers for sums
#endif
constexpr int VECTORS = 2;  // of a panel
constexpr int COLUMNS = VECTORS * LANES;
constexpr int64_t LINE = 64;  // bytes of a line of the cache
constexpr int GATES = 4;
constexpr int UNIT_PANELS = 4;  // the smallest part of a layer that a thread computes: all gates of
constexpr int UNIT_CELLS = UNIT_PANELS * COLUMNS / GATES;  // so many cells

typedef float Floats __attribute__((vector_size(LANES * 4)));
typedef int32_t Ints __attribute__((vector_size(LANES * 4)));

Floats load(const float* from) {
  Floats values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

void store(float* to, Floats values) { std::memcpy(to, &values, sizeof values); }

Floats load_half(const uint16_t* from) {
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from));
#else
  return (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
#endif
}

template <class Number>  // of 32 bits
Floats load_numbers(const Number* from) {
  typedef Number Numbers __attribute__((vector_size(LANES * 4)));
  Numbers values;
  std::memcpy(&values, from, sizeof values);
  return __builtin_convertvector(values, Floats);
}

Floats all(float value) { return value - Floats{}; }

constexpr float ROUNDING = 12582912.f;  // 1.5 * 2^23: adding it leaves the nearest whole number

Ints nearest(Floats values) {
  return __builtin_convertvector((values + ROUNDING) - ROUNDING, Ints);
}

constexpr float FINER = 254.f;  // half a step is at most 127 finer ones

// By intrinsics: from most portable forms the compiler makes a comparison and a choice.
Floats bounded(Floats values, float bound) {
#if defined(__AVX512F__)
  return (Floats)_mm512_max_ps(_mm512_min_ps((__m512)values, (__m512)all(bound)),
                               (__m512)all(-bound));
#else
  return (Floats)_mm256_max_ps(_mm256_min_ps((__m256)values, (__m256)all(bound)),
                               (__m256)all(-bound));
#endif
}

// p 2^n for whole numbers n from -126 to 127.
Floats times_power_of_2(Floats p, Floats n) {
#if defined(__AVX512F__)
  return (Floats)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
  return p * (Floats)((__builtin_convertvector(n, Ints) + 127) << 23);
#endif
}

// exp by Cephes: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]; error about one unit in the last
// place. Arguments beyond +-87 give what +-87 gives, which no sigmoid can tell from 0 or infinity.
Floats exponential(Floats x) {
  x = bounded(x, 87.f);
  const Floats shifted = x * 1.44269504088896341f + ROUNDING;
  const Floats n = shifted - ROUNDING;
  const Floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + (r + 1.f);
  return times_power_of_2(p, n);
}

Floats sigmoid(Floats x) { return 1.f / (1.f + exponential(-x)); }

// With one division instead of two: they are the slowest part.
Floats sigmoid_times_tanh(Floats x, Floats y) {
  const Floats e = exponential(-2.f * y);
  return (1.f - e) / ((1.f + exponential(-x)) * (1.f + e));
}

// The largest absolute value of n values.
float largest_magnitude(const float* values, int64_t n) {
  float most[LANES] = {};  // independent of each other, so that the compiler uses vectors
  int64_t k = 0;
  for (; k + LANES <= n; k += LANES)
    for (int lane = 0; lane < LANES; ++lane) {
      const float size = std::fabs(values[k + lane]);
      most[lane] = size > most[lane] ? size : most[lane];
    }
  for (; k < n; ++k) most[0] = std::max(most[0], std::fabs(values[k]));
  return *std::max_element(most, most + LANES);
}

}  // namespace
