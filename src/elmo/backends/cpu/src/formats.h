// How weights are stored and multiplied: each format is a struct with the same members.
//
// GROUP inputs lie side by side in a lane of 32 bits; `spread` copies the group of a row's inputs
// to all lanes, `add` multiplies and adds.
// EXPANDS: weights are expanded to float32 as they are loaded, and for many rows once for all of
// them.
// WHOLE: sums are whole numbers, or are kept by the matrix unit, and cannot be continued in `out`.
// MATRIX_UNIT: a unit of its own multiplies 16 rows, 16 groups and 16 outputs at a time (AMX).
// ROUNDS: rows are rounded to Input first, by `convert`, which returns the scale of the row. The
// values of cells lie between -1 and 1; `cells` rounds them by `cell_scale`, which is known
// beforehand. Most of them are near 0: where 8 bits are too few for them, they have two DIGITS, and
// `rests` returns the second: the rounding error, FINER times as large, to be multiplied, too.

#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "vectors.h"

namespace {

// As many inputs as a vector has lanes.
template <class Input>
struct Lanes {
  typedef Input Vector __attribute__((vector_size(LANES * sizeof(Input))));
};

// Rounds a row to whole numbers from -bound to bound, adds `shift` to each, and returns its scale.
template <class Input>
float round_row(const float* from, Input* to, int64_t n, float bound, int32_t shift = 0) {
  const float most = largest_magnitude(from, n);
  const float scale = most > 0 ? most / bound : 1.f, factor = 1.f / scale;
  int64_t k = 0;
  for (; k + LANES <= n; k += LANES) {
    const auto rounded = __builtin_convertvector(nearest(load(from + k) * factor) + shift,
                                                 typename Lanes<Input>::Vector);
    std::memcpy(to + k, &rounded, sizeof rounded);
  }
  for (; k < n; ++k) to[k] = Input(int32_t(std::nearbyint(from[k] * factor)) + shift);
  return scale;
}

struct Float32 {
  using Weight = float;
  using Input = float;
  using Sum = Floats;
  using Loaded = Floats;
  static constexpr int GROUP = 1;
  static constexpr bool EXPANDS = false, ROUNDS = false, WHOLE = false, MATRIX_UNIT = false;
  static constexpr int DIGITS = 1;
  static Loaded load_weights(const Weight* from) { return load(from); }
  static Loaded spread(const Input* from) { return all(*from); }
  static Sum add(Sum sum, Loaded x, Loaded w) { return sum + x * w; }
  static float cell_scale(int64_t) { return 1.f; }
  static Floats cells(Floats values, int64_t) { return values; }
};

struct Float16 : Float32 {  // stored in half the memory, multiplied as float32
  using Weight = uint16_t;
  static constexpr bool EXPANDS = true;
  static Loaded load_weights(const Weight* from) { return load_half(from); }
};

struct Bfloat16 : Float32 {  // the same for bfloat16, which is the upper half of a float32
  using Weight = uint16_t;
  static constexpr bool EXPANDS = true;
  static Loaded load_weights(const Weight* from) {
#if defined(__AVX512F__)
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)from));
    return (Floats)_mm512_slli_epi32(wide, 16);
#else
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)from));
    return (Floats)_mm256_slli_epi32(wide, 16);
#endif
  }
};

#if defined(__AVX512BF16__)
struct Bfloat16Pairs {  // products of pairs of bfloat16 in one instruction
  using Weight = uint16_t;
  using Input = uint16_t;
  using Sum = Floats;
  using Loaded = __m512i;
  static constexpr int GROUP = 2;
  static constexpr bool EXPANDS = false, ROUNDS = true, WHOLE = false, MATRIX_UNIT = false;
  static constexpr int DIGITS = 1;
  static Loaded load_weights(const Weight* from) { return _mm512_loadu_si512(from); }
  static Loaded spread(const Input* from) {
    int32_t pair;
    std::memcpy(&pair, from, sizeof pair);
    return _mm512_set1_epi32(pair);
  }
  static Sum add(Sum sum, Loaded x, Loaded w) {
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)w);
  }
  static Input rounded(float value) {  // to nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
  static float convert(const float* from, Input* to, int64_t n, int64_t) {
    for (int64_t k = 0; k < n; ++k) to[k] = rounded(from[k]);
    return 1.f;
  }
  static float cell_scale(int64_t) { return 1.f; }
  static auto cells(Floats values, int64_t) {
    typedef uint32_t Bits __attribute__((vector_size(LANES * 4)));
    const Bits bits = (Bits)values;
    return __builtin_convertvector((bits + 0x7fff + ((bits >> 16) & 1)) >> 16,
                                   Lanes<Input>::Vector);
  }
};
#endif

struct Int8Words {  // 8-bit weights times 16-bit inputs: the rounding of inputs is negligible
  using Weight = int8_t;
  using Input = int16_t;
  using Sum = Ints;
  static constexpr int GROUP = 2;
  static constexpr bool EXPANDS = false, ROUNDS = true, WHOLE = true, MATRIX_UNIT = false;
  static constexpr int DIGITS = 1;
#if defined(__AVX512BW__)
  using Loaded = __m512i;
  static Loaded load_weights(const Weight* from) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)from));
  }
  static Loaded spread(const Input* from) {
    int32_t pair;
    std::memcpy(&pair, from, sizeof pair);
    return _mm512_set1_epi32(pair);
  }
  static Sum add(Sum sum, Loaded x, Loaded w) {
#if defined(__AVX512VNNI__)
    return (Ints)_mm512_dpwssd_epi32((__m512i)sum, x, w);
#else
    return sum + (Ints)_mm512_madd_epi16(x, w);
#endif
  }
#elif !defined(__AVX512F__)
  using Loaded = __m256i;
  static Loaded load_weights(const Weight* from) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)from));
  }
  static Loaded spread(const Input* from) {
    int32_t pair;
    std::memcpy(&pair, from, sizeof pair);
    return _mm256_set1_epi32(pair);
  }
  static Sum add(Sum sum, Loaded x, Loaded w) { return sum + (Ints)_mm256_madd_epi16(x, w); }
#endif
  // The largest input with which a sum over n products cannot leave 32 bits.
  static int64_t limit(int64_t n) {
    return std::min<int64_t>(32767, (int64_t(1) << 31) / (127 * (n + 1)) - 1);
  }
  static float convert(const float* from, Input* to, int64_t n, int64_t inputs) {
    return round_row(from, to, n, float(limit(inputs)));
  }
  static float cell_scale(int64_t inputs) { return 1.f / float(limit(inputs)); }
  static auto cells(Floats values, int64_t inputs) {
    return __builtin_convertvector(nearest(values * float(limit(inputs))), Lanes<Input>::Vector);
  }
};

#if defined(__AVX512VNNI__)
// The error of rounding values to multiples of 1/127, in steps that are FINER times smaller.
Ints rest(Floats values) {
  const Floats steps = values * 127.f;
  return nearest((steps - ((steps + ROUNDING) - ROUNDING)) * FINER);
}

struct Int8Bytes {  // 8-bit weights times 8-bit inputs, four at a time
  using Weight = int8_t;
  using Input = uint8_t;  // 128 is added: the instruction wants one operand unsigned
  using Sum = Ints;
  using Loaded = __m512i;
  static constexpr int GROUP = 4;
  static constexpr bool EXPANDS = false, ROUNDS = true, WHOLE = true, MATRIX_UNIT = false;
  static constexpr int DIGITS = 2;
  static Loaded load_weights(const Weight* from) { return _mm512_loadu_si512(from); }
  static Loaded spread(const Input* from) {
    int32_t four;
    std::memcpy(&four, from, sizeof four);
    return _mm512_set1_epi32(four);
  }
  static Sum add(Sum sum, Loaded x, Loaded w) {
    return (Ints)_mm512_dpbusd_epi32((__m512i)sum, x, w);
  }
  static float convert(const float* from, Input* to, int64_t n, int64_t) {
    return round_row(from, to, n, 127.f, 128);
  }
  static float cell_scale(int64_t) { return 1.f / 127.f; }
  static auto cells(Floats values, int64_t) {
    return __builtin_convertvector(nearest(values * 127.f) + 128, Lanes<Input>::Vector);
  }
  static auto rests(Floats values) {
    return __builtin_convertvector(rest(values) + 128, Lanes<Input>::Vector);
  }
};
#endif

#if defined(__AMX_BF16__) && defined(__AVX512BF16__)
struct Bfloat16Tiles : Bfloat16Pairs {
  static constexpr bool WHOLE = true, MATRIX_UNIT = true;
  using Sum = float;
  // Tiles 0 to 3 are the sums of two times 16 rows and two times 16 outputs; 4 and 5 hold rows, 6
  // and 7 weights. Only constants may name them.
  static void add_tiles() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  static void add_lower_tiles() {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
};
#endif

#if defined(__AMX_INT8__) && defined(__AVX512VNNI__)
struct Int8Tiles {
  using Weight = int8_t;
  using Input = int8_t;
  using Sum = int32_t;
  static constexpr int GROUP = 4;
  static constexpr bool EXPANDS = false, ROUNDS = true, WHOLE = true, MATRIX_UNIT = true;
  static constexpr int DIGITS = 2;
  static void add_tiles() {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
  }
  static void add_lower_tiles() {
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  static float convert(const float* from, Input* to, int64_t n, int64_t) {
    return round_row(from, to, n, 127.f);
  }
  static float cell_scale(int64_t) { return 1.f / 127.f; }
  static auto cells(Floats values, int64_t) {
    return __builtin_convertvector(nearest(values * 127.f), Lanes<Input>::Vector);
  }
  static auto rests(Floats values) {
    return __builtin_convertvector(rest(values), Lanes<Input>::Vector);
  }
};
#endif

}  // namespace
