// Stands before the compiler's own immintrin.h when the kernel is built for a CPU that is not there:
// the few AVX-512 and AMX instructions that the kernel names, written out in plain C++ after their
// definitions in Intel's manual. It makes code for newer CPUs run, slowly, on any AVX2 machine.
#pragma once

#include_next <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512VNNI__ 1
#define __AVX512BF16__ 1
#define __AMX_TILE__ 1
#define __AMX_BF16__ 1
#define __AMX_INT8__ 1

namespace emulated {

struct Register {  // 64 bytes, whatever they are
  alignas(64) unsigned char bytes[64];
  template <class T>
  T get(int place) const {
    T value;
    std::memcpy(&value, bytes + place * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  void set(int place, T value) { std::memcpy(bytes + place * sizeof(T), &value, sizeof(T)); }
  template <class V>
  static Register of(V vector) {
    static_assert(sizeof(V) == 64);
    Register result;
    std::memcpy(result.bytes, &vector, 64);
    return result;
  }
  template <class V>
  V as() const {
    V vector;
    std::memcpy(&vector, bytes, 64);
    return vector;
  }
};

inline float wide(uint16_t bfloat) {
  const uint32_t bits = uint32_t(bfloat) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline __m512i load(const void* from) {
  __m512i values;
  std::memcpy(&values, from, 64);
  return values;
}

inline __m512i spread(int32_t value) {
  Register result;
  for (int n = 0; n < 16; ++n) result.set(n, value);
  return result.as<__m512i>();
}

inline __m512 half_to_float(__m256i halves) {
  Register result;
  uint16_t values[16];
  std::memcpy(values, &halves, 32);
  for (int n = 0; n < 16; ++n) result.set(n, _cvtsh_ss(values[n]));
  return result.as<__m512>();
}

inline __m512i words_to_ints(__m256i words) {
  Register result;
  uint16_t values[16];
  std::memcpy(values, &words, 32);
  for (int n = 0; n < 16; ++n) result.set(n, int32_t(values[n]));
  return result.as<__m512i>();
}

inline __m512i bytes_to_words(__m256i bytes) {
  Register result;
  int8_t values[32];
  std::memcpy(values, &bytes, 32);
  for (int n = 0; n < 32; ++n) result.set(n, int16_t(values[n]));
  return result.as<__m512i>();
}

template <class Choose>
inline __m512 each(__m512 a, __m512 b, const Choose& choose) {
  Register result, x = Register::of(a), y = Register::of(b);
  for (int n = 0; n < 16; ++n) result.set<float>(n, choose(x.get<float>(n), y.get<float>(n)));
  return result.as<__m512>();
}

// The second one where one of them is not a number.
inline __m512 smaller(__m512 a, __m512 b) {
  return each(a, b, [](float x, float y) { return x < y ? x : y; });
}

inline __m512 larger(__m512 a, __m512 b) {
  return each(a, b, [](float x, float y) { return x > y ? x : y; });
}

inline __m512 times_power_of_2(__m512 a, __m512 b) {
  return each(a, b, [](float x, float y) { return std::ldexp(x, int(std::floor(y))); });
}

inline __m512i shift_left(__m512i values, int bits) {
  Register result = Register::of(values);
  for (int n = 0; n < 16; ++n) result.set(n, uint32_t(result.get<uint32_t>(n) << bits));
  return result.as<__m512i>();
}

inline __m512i multiply_words(__m512i a, __m512i b) {
  const Register x = Register::of(a), y = Register::of(b);
  Register result;
  for (int n = 0; n < 16; ++n)
    result.set(n, int32_t(x.get<int16_t>(2 * n)) * y.get<int16_t>(2 * n) +
                      int32_t(x.get<int16_t>(2 * n + 1)) * y.get<int16_t>(2 * n + 1));
  return result.as<__m512i>();
}

inline __m512i add_word_products(__m512i sum, __m512i a, __m512i b) {
  const Register products = Register::of(multiply_words(a, b));
  Register result = Register::of(sum);
  for (int n = 0; n < 16; ++n)
    result.set(n, result.get<int32_t>(n) + products.get<int32_t>(n));
  return result.as<__m512i>();
}

inline __m512i add_byte_products(__m512i sum, __m512i a, __m512i b) {  // unsigned times signed
  const Register x = Register::of(a), y = Register::of(b);
  Register result = Register::of(sum);
  for (int n = 0; n < 16; ++n) {
    int32_t value = result.get<int32_t>(n);
    for (int k = 0; k < 4; ++k)
      value += int32_t(x.get<uint8_t>(4 * n + k)) * y.get<int8_t>(4 * n + k);
    result.set(n, value);
  }
  return result.as<__m512i>();
}

template <class A, class B>
inline __m512 add_bfloat_products(__m512 sum, A a, B b) {
  const Register x = Register::of(a), y = Register::of(b);
  Register result = Register::of(sum);
  for (int n = 0; n < 16; ++n) {
    float value = result.get<float>(n);
    for (int k = 0; k < 2; ++k)
      value += wide(x.get<uint16_t>(2 * n + k)) * wide(y.get<uint16_t>(2 * n + k));
    result.set(n, value);
  }
  return result.as<__m512>();
}

// --- AMX: eight tiles of 16 rows of 64 bytes --------------------------------------------------------

struct Tiles {
  bool configured = false;
  Register rows[8][16];
};
inline thread_local Tiles unit;

inline void configure(const void* config) {
  const unsigned char* const bytes = (const unsigned char*)config;
  unit.configured = bytes[0] == 1;
  for (int tile = 0; tile < 8; ++tile) {
    uint16_t row_bytes;
    std::memcpy(&row_bytes, bytes + 16 + 2 * tile, 2);
    unit.configured &= row_bytes == 64 && bytes[48 + tile] == 16;
  }
}

inline void require() {
  if (!unit.configured) __builtin_trap();  // as the CPU would
}

inline void zero(int tile) {
  require();
  std::memset(unit.rows[tile], 0, sizeof unit.rows[tile]);
}

inline void load_tile(int tile, const void* from, int64_t stride) {
  require();
  for (int r = 0; r < 16; ++r)
    std::memcpy(unit.rows[tile][r].bytes, (const char*)from + r * stride, 64);
}

inline void store_tile(int tile, void* to, int64_t stride) {
  require();
  for (int r = 0; r < 16; ++r) std::memcpy((char*)to + r * stride, unit.rows[tile][r].bytes, 64);
}

template <class Sum, class Product>
inline void add_tile_products(int to, int a, int b, const Product& product) {
  require();
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 16; ++n) {
      Sum sum = unit.rows[to][m].get<Sum>(n);
      for (int k = 0; k < 16; ++k) sum += product(unit.rows[a][m], k, unit.rows[b][k], n);
      unit.rows[to][m].set(n, sum);
    }
}

inline void add_bfloat_tiles(int to, int a, int b) {
  add_tile_products<float>(to, a, b, [](const Register& x, int k, const Register& w, int n) {
    return wide(x.get<uint16_t>(2 * k)) * wide(w.get<uint16_t>(2 * n)) +
           wide(x.get<uint16_t>(2 * k + 1)) * wide(w.get<uint16_t>(2 * n + 1));
  });
}

inline void add_byte_tiles(int to, int a, int b) {
  add_tile_products<int32_t>(to, a, b, [](const Register& x, int k, const Register& w, int n) {
    int32_t sum = 0;
    for (int part = 0; part < 4; ++part)
      sum += int32_t(x.get<int8_t>(4 * k + part)) * w.get<int8_t>(4 * n + part);
    return sum;
  });
}

}  // namespace emulated

#define syscall(...) 0L  // the only one asks whether the matrix unit may be used
#define _mm512_loadu_si512 emulated::load
#define _mm512_set1_epi32 emulated::spread
#define _mm512_cvtph_ps emulated::half_to_float
#define _mm512_cvtepu16_epi32 emulated::words_to_ints
#define _mm512_cvtepi8_epi16 emulated::bytes_to_words
#define _mm512_min_ps emulated::smaller
#define _mm512_max_ps emulated::larger
#define _mm512_scalef_ps emulated::times_power_of_2
#define _mm512_slli_epi32 emulated::shift_left
#define _mm512_madd_epi16 emulated::multiply_words
#define _mm512_dpwssd_epi32 emulated::add_word_products
#define _mm512_dpbusd_epi32 emulated::add_byte_products
#define _mm512_dpbf16_ps emulated::add_bfloat_products
#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#define _tile_loadconfig emulated::configure
#define _tile_release() emulated::unit.configured = false
#define _tile_zero emulated::zero
#define _tile_loadd emulated::load_tile
#define _tile_stored emulated::store_tile
#define _tile_dpbf16ps emulated::add_bfloat_tiles
#define _tile_dpbssd emulated::add_byte_tiles
