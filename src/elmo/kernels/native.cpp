// Products with constant weights, and LSTM layers made of them, on one CPU.
//
// Built on demand for the instructions that the CPU has (see compiler.py); the plain reference is
// PyTorch (linear.py, packed.py). Everything rests on one micro-kernel, `accumulate`: a few rows
// times a few panels of the weight, with all sums in registers. What differs between numbers
// (float32, float16, bfloat16, int8) is in the structs of "formats" below.
//
// A sum runs over the inputs in their order, whatever the number of rows, panels or threads: the
// result of a row never depends, bit for bit, on what else is computed.

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

// --- vectors --------------------------------------------------------------------------------------

#if defined(__AVX512F__)
constexpr int LANES = 16;
constexpr int MAX_ROWS = 12;  // 24 of 32 registers for sums
#else
constexpr int LANES = 8;
constexpr int MAX_ROWS = 6;  // 12 of 16 registers for sums
#endif
constexpr int VECTORS = 2;  // of a panel
constexpr int COLUMNS = VECTORS * LANES;
constexpr int64_t LINE = 64;  // bytes that memory gives at once
constexpr int GATES = 4;
constexpr int UNIT_PANELS = 4;  // the least that a thread does of a layer: all gates of
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

Floats bounded(Floats values, float bound) {
  values = values < bound ? values : all(bound);
  return values > -bound ? values : all(-bound);
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
  const Ints exponent = (__builtin_convertvector(n, Ints) + 127) << 23;
  return p * (Floats)exponent;
}

Floats sigmoid(Floats x) { return 1.f / (1.f + exponential(-x)); }

// With one division instead of two: they are the slowest part.
Floats sigmoid_times_tanh(Floats x, Floats y) {
  const Floats e = exponential(-2.f * y);
  return (1.f - e) / ((1.f + exponential(-x)) * (1.f + e));
}

float largest_magnitude(const float* values, int64_t n) {
  float most[LANES] = {};  // side by side, for the compiler to see that they are independent
  int64_t k = 0;
  for (; k + LANES <= n; k += LANES)
    for (int lane = 0; lane < LANES; ++lane) {
      const float size = std::fabs(values[k + lane]);
      most[lane] = size > most[lane] ? size : most[lane];
    }
  for (; k < n; ++k) most[0] = std::max(most[0], std::fabs(values[k]));
  return *std::max_element(most, most + LANES);
}

// --- formats --------------------------------------------------------------------------------------
//
// A format says how weights are stored and multiplied. GROUP inputs stand side by side in a lane of
// 32 bits; `spread` copies the group of a row's inputs to all lanes, `add` multiplies and sums.
// Where EXPANDS, weights are turned into float32 on the way, and for many rows once for all of them.
// Where MATRIX_UNIT, a unit of its own multiplies 16 rows, 16 groups and 16 outputs at a time (AMX).
// Where ROUNDS, rows are rounded to Input first, by `convert`, which gives the scale of the row; the
// values of cells lie between -1 and 1, and `cells` rounds them by a scale known beforehand. Most of
// them are near 0: where 8 bits are too few for them, they have two DIGITS, and `rests` gives the
// second: what rounding left, FINER times as large, to be multiplied, too.

// As many inputs as a vector has lanes.
template <class Input>
struct Lanes {
  typedef Input Vector __attribute__((vector_size(LANES * sizeof(Input))));
};

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

struct Int8Words {  // 8-bit weights times 16-bit inputs: no rounding of inputs that would be felt
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
  static Sum add(Sum sum, Loaded x, Loaded w) { return sum + (Ints)_mm512_madd_epi16(x, w); }
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
    const float most = largest_magnitude(from, n), bound = float(limit(inputs));
    const float scale = most > 0 ? most / bound : 1.f, factor = 1.f / scale;
    for (int64_t k = 0; k < n; ++k) to[k] = Input(std::nearbyint(from[k] * factor));
    return scale;
  }
  static float cell_scale(int64_t inputs) { return 1.f / float(limit(inputs)); }
  static auto cells(Floats values, int64_t inputs) {
    return __builtin_convertvector(nearest(values * float(limit(inputs))), Lanes<Input>::Vector);
  }
};

#if defined(__AVX512VNNI__)
// What is left of values in steps of 1/127 when they are rounded to these, in finer steps.
Ints rest(Floats values) {
  const Floats steps = values * 127.f;
  return nearest((steps - ((steps + ROUNDING) - ROUNDING)) * FINER);
}

struct Int8Bytes {  // 8-bit weights times 8-bit inputs, four at a time
  using Weight = int8_t;
  using Input = uint8_t;  // 128 more than meant: the instruction wants one side unsigned
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
    const float most = largest_magnitude(from, n);
    const float scale = most > 0 ? most / 127.f : 1.f, factor = 1.f / scale;
    for (int64_t k = 0; k < n; ++k) to[k] = Input(int(std::nearbyint(from[k] * factor)) + 128);
    return scale;
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
  // Tiles 0 to 3 are the sums of two times 16 rows and two times 16 outputs; 4 and 5 hold rows, 6 and
  // 7 weights. Only constants may name them.
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
    const float most = largest_magnitude(from, n);
    const float scale = most > 0 ? most / 127.f : 1.f, factor = 1.f / scale;
    for (int64_t k = 0; k < n; ++k) to[k] = Input(std::nearbyint(from[k] * factor));
    return scale;
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

// --- the micro-kernel -----------------------------------------------------------------------------

// Adds to R x (PANELS * VECTORS) vectors of sums the products of R rows and some groups of inputs.
template <class F, int R, int PANELS>
inline __attribute__((always_inline)) void accumulate(
    typename F::Sum (&sums)[R][PANELS * VECTORS], const typename F::Input* x,
    const typename F::Weight* weights, int64_t panel_stride, int64_t groups) {
  constexpr int VECTOR = LANES * F::GROUP;  // weights of a vector
  for (int64_t g = 0; g < groups; ++g) {
    typename F::Loaded w[PANELS * VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < PANELS * VECTORS; ++v)
      w[v] = F::load_weights(weights + (v / VECTORS) * panel_stride +
                             (g * VECTORS + v % VECTORS) * VECTOR);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const typename F::Loaded value = F::spread(x + (g * R + r) * F::GROUP);
#pragma GCC unroll 8
      for (int v = 0; v < PANELS * VECTORS; ++v) sums[r][v] = F::add(sums[r][v], value, w[v]);
    }
  }
}

// --- memory ---------------------------------------------------------------------------------------

// Memory of one thread of a team, used again by the next call: fresh memory has to be cleared by the
// system, page by page, which costs as much as a small product. What is taken begins with a line of
// the cache and is zero.
class Room {
 public:
  void begin() { next_ = 0; }

  template <class T>
  T* take(int64_t n) {
    if (next_ == blocks_.size()) blocks_.emplace_back();
    auto& block = blocks_[next_++];
    const size_t lines = (n * sizeof(T) + sizeof(Line) - 1) / sizeof(Line);
    if (block.size() < lines) block = std::vector<Line>(lines);
    std::memset(block.data(), 0, lines * sizeof(Line));
    return (T*)block.data();
  }

 private:
  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<std::vector<Line>> blocks_;
  size_t next_ = 0;
};

// The rooms of a call's threads, and one more for what they share. They belong to the thread that
// calls and go with it.
std::vector<Room>& rooms(int64_t threads) {
  static thread_local std::vector<Room> kept;
  if (int64_t(kept.size()) <= threads) kept.resize(threads + 1);
  for (Room& room : kept) room.begin();
  return kept;
}

// --- products -------------------------------------------------------------------------------------

// A weight as linear.py lays it out: panels of COLUMNS outputs, in each of them group after group of
// inputs, in each group one output after another.
struct Matrix {
  const void* weights;
  const float* scales;   // of the outputs of an int8 weight, else null
  const float* offsets;  // what the sums of `Int8Bytes` have too much, else null
  int64_t inputs, groups, panels;
};

// What sums start from: row r of a table, or one row for all (stride 0), or zero (null). Between an
// input product and the layer that wants it, the formats of the matrix unit keep it as float16: the
// unit is so fast that reading and writing such tables would take longer than all products.
struct Start {
  const void* table;
  const int64_t* index;  // which row of the table, or null: the r-th
  int64_t stride;
  int64_t half;  // whether it is float16

  int64_t place(int64_t r, int64_t column) const { return (index ? index[r] : r) * stride + column; }
  const float* floats(int64_t r, int64_t column) const {
    return (const float*)table + place(r, column);
  }
  const uint16_t* halves(int64_t r, int64_t column) const {
    return (const uint16_t*)table + place(r, column);
  }
  void skip(int64_t rows) {
    if (index) index += rows;
    else table = (const char*)table + rows * stride * value_bytes();
  }
  int64_t value_bytes() const { return half ? 2 : 4; }
};

constexpr int64_t UNIT_SIDE = 16;  // rows, groups and outputs of the matrix unit's tiles

// How rows are cut into tiles: of at most MAX_ROWS, all of nearly the same height; or, for the matrix
// unit, of 16, the last of them not filled.
template <class F>
struct Tiles {
  int64_t rows;
  int64_t count() const {
    const int64_t most = F::MATRIX_UNIT ? UNIT_SIDE : MAX_ROWS;
    return (rows + most - 1) / most;
  }
  int64_t begin(int64_t tile) const {
    return F::MATRIX_UNIT ? std::min(rows, tile * UNIT_SIDE) : rows * tile / count();
  }
  int64_t filled(int64_t tile) const { return begin(tile + 1) - begin(tile); }
  int64_t height(int64_t tile) const { return F::MATRIX_UNIT ? UNIT_SIDE : filled(tile); }

  // Where a row is.
  struct Spot {
    int64_t first, height;  // of its tile
    int64_t row;            // in its tile
  };
  Spot spot(int64_t row) const {
    const int64_t tile = F::MATRIX_UNIT ? row / UNIT_SIDE : ((row + 1) * count() - 1) / rows;
    return {begin(tile), height(tile), row - begin(tile)};
  }
};

// Rows as the micro-kernel reads them: tile after tile, in a tile group after group of inputs (for
// the matrix unit 16 groups after 16 groups), in a group row after row. Side by side they come from
// memory together; a stride of a power of two between them would make them wait for each other.
template <class F>
class Rows {
 public:
  using Input = typename F::Input;
  using Spot = typename Tiles<F>::Spot;
  static constexpr int64_t DEPTH = F::GROUP * (F::MATRIX_UNIT ? UNIT_SIDE : 1);

  Rows(int64_t groups, int64_t rows, Room& room)
      : scales(room.take<float>(F::ROUNDS ? rows : 0)), width_(groups * F::GROUP),
        values_(room.take<Input>(room_for(rows) * width_)),
        row_(room.take<Input>(F::ROUNDS ? width_ : 0)) {}

  // Takes over `rows` rows of `inputs` values.
  void set(const float* from, int64_t stride, int64_t inputs, int64_t rows) {
    const Tiles<F> tiles{rows};
    for (int64_t r = 0; r < rows; ++r) {
      const Spot spot = tiles.spot(r);
      Input* const to = place(spot, 0);
      const float* const row = from + r * stride;
      if constexpr (F::ROUNDS) {
        scales[r] = F::convert(row, row_, inputs, inputs);
        for (int64_t k = 0; k < width_; k += DEPTH)
          std::copy_n(&row_[k], DEPTH, to + k * spot.height);
      } else {
        for (int64_t k = 0; k < inputs; ++k) to[k * spot.height] = row[k];
      }
    }
  }

  // Where the input `k` of a row is.
  Input* place(const Spot& spot, int64_t k) {
    return &values_[spot.first * width_ + k / DEPTH * DEPTH * spot.height + spot.row * DEPTH +
                    k % DEPTH];
  }

  // Puts an aligned run of LANES inputs there.
  template <class Vector>
  void put(const Spot& spot, int64_t k, Vector values) {
    Input* const to = place(spot, k);
    if constexpr (DEPTH >= LANES) std::memcpy(to, &values, sizeof values);
    else
      for (int n = 0; n < LANES; n += DEPTH)
        std::memcpy(to + apart(n, spot.height), (const Input*)&values + n, DEPTH * sizeof(Input));
  }

  // How far from a place the input `n` further on is, for an aligned run of LANES inputs; where
  // DEPTH is no less, they are side by side.
  static int64_t apart(int64_t n, int64_t height) {
    return n / DEPTH * DEPTH * height + n % DEPTH;
  }

  const Input* tile(int64_t first, int64_t height, int64_t group) const {
    return &values_[first * width_ + group * F::GROUP * height];
  }

  float* const scales;  // of the rows, where the format rounds them

 private:
  static int64_t room_for(int64_t rows) {
    return F::MATRIX_UNIT ? Tiles<F>{rows}.count() * UNIT_SIDE : rows;
  }

  const int64_t width_;
  Input* const values_;
  Input* const row_;
};

// out[r, columns of panels] = start[r] + x[r] W^T for some rows and panels.
struct Task {
  const Matrix& matrix;
  int64_t rows;
  Start start;
  void* out;
  int64_t out_stride;
  int64_t first_panel, end_panel;
  int64_t out_column;  // where the columns of the first panel go
  bool half = false;   // whether results are rounded to float16; only with the matrix unit

  int64_t place(int64_t row, int64_t panel) const {
    return row * out_stride + out_column + (panel - first_panel) * COLUMNS;
  }
  float* floats(int64_t row, int64_t panel) const { return (float*)out + place(row, panel); }
  uint16_t* halves(int64_t row, int64_t panel) const { return (uint16_t*)out + place(row, panel); }

  // Asks for what some rows start from, and for where their results go: rows are far apart, and
  // nothing else would tell the CPU in time.
  void expect(int64_t first_row, int64_t end_row, int64_t panel, int64_t end) const {
    const int64_t columns = (std::min(end, end_panel) - panel) * COLUMNS;
    const int64_t out_bytes = half ? 2 : 4;
    for (int64_t row = first_row; row < std::min(end_row, rows); ++row) {
      if (start.stride)
        expect_bytes<0>((const char*)start.table +
                            start.place(row, panel * COLUMNS) * start.value_bytes(),
                        columns * start.value_bytes());
      expect_bytes<1>((const char*)out + place(row, panel) * out_bytes, columns * out_bytes);
    }
  }

 private:
  template <int WRITTEN>
  static void expect_bytes(const char* from, int64_t bytes) {
    for (int64_t k = 0; k < bytes; k += LINE) __builtin_prefetch(from + k, WRITTEN, 2);
  }
};

// Asks for one part of some bytes, so that they are in the cache when they are needed.
void fetch(const void* from, int64_t bytes, int64_t part, int64_t parts) {
  const int64_t lines = (bytes + LINE - 1) / LINE;
  for (int64_t n = lines * part / parts; n < lines * (part + 1) / parts; ++n)
    __builtin_prefetch((const char*)from + n * LINE, 0, 2);
}

// The block that comes after the one at hand: while a tile of rows is multiplied, its share of that
// block is asked for, little by little, as a CPU can wait for a few dozen lines only.
struct Ahead {
  const void* weights;  // null: nothing is asked for
  int64_t panel_bytes, panel_stride;  // the latter in bytes, too
  int64_t tile, tiles;

  void fetch_part(int64_t panel, int64_t panels, int64_t part, int64_t parts) const {
    if (!weights) return;
    for (int64_t n = panel; n < panel + panels; ++n)
      fetch((const char*)weights + n * panel_stride, panel_bytes, tile * parts + part,
            tiles * parts);
  }
};

// Some panels of a weight, and in them some groups of inputs.
template <class F>
struct Block {
  const typename F::Weight* weights;
  int64_t panel_stride;
  int64_t first_panel, end_panel;
  int64_t first_group, groups;
  Ahead ahead;
};

constexpr int64_t GROUPS_BETWEEN_FETCHES = 16;

// Adds to sums the products of R rows and a few panels of a block, from the n-th on.
template <class F, int R, int PANELS>
inline __attribute__((always_inline)) void accumulate_block(
    typename F::Sum (&sums)[R][PANELS * VECTORS], const typename F::Input* x,
    const Block<F>& block, int64_t n) {
  const auto* const weights = block.weights + n * block.panel_stride;
  const int64_t part = block.ahead.weights ? GROUPS_BETWEEN_FETCHES : block.groups;
  for (int64_t g = 0; g < block.groups; g += part) {
    block.ahead.fetch_part(n, PANELS, g / part, (block.groups + part - 1) / part);
    accumulate<F, R, PANELS>(sums, x + g * R * F::GROUP, weights + g * COLUMNS * F::GROUP,
                             block.panel_stride, std::min(part, block.groups - g));
  }
}

// What sums of whole numbers mean, from a column of the weight on.
Floats meaning(Ints sums, const Matrix& matrix, int64_t column, float row_scale) {
  Floats values = __builtin_convertvector(sums, Floats);
  if (matrix.offsets) values -= load(matrix.offsets + column);
  return values * (row_scale * load(matrix.scales + column));
}

// Multiplies R rows with a few panels of a block. Sums go on from where the block before it ended.
template <class F, int R, int PANELS>
void multiply_tile(const Task& task, const Block<F>& block, int64_t panel,
                   const typename F::Input* x, const float* scales, int64_t row) {
  constexpr int N = PANELS * VECTORS;
  typename F::Sum sums[R][N];
  const int64_t column = panel * COLUMNS;
  float* const to = task.floats(row, panel);
  if constexpr (F::WHOLE) {
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < N; ++v) sums[r][v] = typename F::Sum{};
    accumulate_block<F, R, PANELS>(sums, x, block, panel - block.first_panel);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < N; ++v) {
        const int64_t place = column + v * LANES;
        Floats sum = meaning(sums[r][v], task.matrix, place, scales[row + r]);
        if (task.start.table) sum += load(task.start.floats(row + r, place));
        store(to + r * task.out_stride + v * LANES, sum);
      }
  } else {
    const bool begins = block.first_group == 0;
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < N; ++v) {
        if (!begins) sums[r][v] = load(to + r * task.out_stride + v * LANES);
        else if (task.start.table)
          sums[r][v] = load(task.start.floats(row + r, column + v * LANES));
        else sums[r][v] = Floats{};
      }
    accumulate_block<F, R, PANELS>(sums, x, block, panel - block.first_panel);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < N; ++v) store(to + r * task.out_stride + v * LANES, sums[r][v]);
  }
}

template <int N>
using Constant = std::integral_constant<int, N>;

// Calls `work` with the number of rows, at most MAX_ROWS, as a constant.
template <int R = MAX_ROWS, class Work>
void with_rows(int64_t rows, const Work& work) {
  if constexpr (R > 1)
    if (rows < R) return with_rows<R - 1>(rows, work);
  work(Constant<R>{});
}

// Calls `work` for one panel after another, with a panel and how many from there on, as a constant.
// Few rows leave registers free: they take several panels at once, for enough independent sums.
template <int R, class Work>
void with_panels(int64_t first, int64_t end, const Work& work) {
  constexpr int MANY = R == 1 ? 4 : R == 2 ? 2 : 1;
  int64_t panel = first;
  for (; panel + MANY <= end; panel += MANY) work(panel, Constant<MANY>{});
  if constexpr (MANY > 1)
    for (; panel < end; ++panel) work(panel, Constant<1>{});
}

// Multiplies some rows with all panels of a block.
template <class F>
void multiply_some(int64_t rows, const Task& task, const Block<F>& block,
                   const typename F::Input* x, const float* scales, int64_t row) {
  with_rows(rows, [&](auto height) {
    with_panels<height>(block.first_panel, block.end_panel, [&](int64_t panel, auto panels) {
      multiply_tile<F, height, panels>(task, block, panel, x, scales, row);
    });
  });
}

constexpr int64_t BLOCK_PANELS = UNIT_PANELS;
constexpr int64_t BLOCK_GROUPS = 512;  // with 4 panels 128 or 256 KB: half of a second-level cache

// Gives the block of a format as float32, in memory that holds BLOCK_PANELS times BLOCK_GROUPS.
template <class F>
Block<Float32> expanded(const Block<F>& block, float* memory) {
  const int64_t stride = block.groups * COLUMNS;
  for (int64_t panel = 0; panel < block.end_panel - block.first_panel; ++panel)
    for (int64_t k = 0; k < stride; k += LANES)
      store(memory + panel * stride + k,
            F::load_weights(block.weights + panel * block.panel_stride + k));
  return {memory, stride, block.first_panel, block.end_panel, block.first_group, block.groups,
          block.ahead};
}

// The weight is cut into blocks that stay in the second-level cache while all rows pass by, tile by
// tile, each of which stays in the first-level cache for all panels of the block; meanwhile the next
// block is on its way. Between blocks of the same panels, sums wait in `out`.
template <class F>
void multiply_by_vectors(const Task& task, const Rows<F>& x) {
  using Weight = typename F::Weight;
  constexpr int64_t GROUP_WEIGHTS = COLUMNS * F::GROUP;
  const Matrix& matrix = task.matrix;
  const Tiles<F> tiles{task.rows};
  const bool alone = tiles.count() == 1;
  const int64_t step = F::WHOLE || alone ? matrix.groups : BLOCK_GROUPS;
  const int64_t panel_stride = matrix.groups * GROUP_WEIGHTS;
  alignas(64) float memory[F::EXPANDS ? BLOCK_PANELS * BLOCK_GROUPS * COLUMNS : 1];
  for (int64_t group = 0; group < matrix.groups; group += step)
    for (int64_t panel = task.first_panel; panel < task.end_panel; panel += BLOCK_PANELS) {
      const int64_t groups = std::min(step, matrix.groups - group);
      const int64_t end = std::min(panel + BLOCK_PANELS, task.end_panel);
      const Weight* const weights =
          (const Weight*)matrix.weights + panel * panel_stride + group * GROUP_WEIGHTS;
      Block<F> block{weights, panel_stride, panel, end, group, groups, {}};
      const bool expands = F::EXPANDS && tiles.count() > 2;
      Block<Float32> wide{};
      if constexpr (F::EXPANDS)
        if (expands) wide = expanded(block, memory);
      for (int64_t tile = 0; tile < tiles.count(); ++tile) {
        const int64_t row = tiles.begin(tile), height = tiles.height(tile);
        const typename F::Input* const values = x.tile(row, height, group);
        if (tile + 1 < tiles.count())
          task.expect(tiles.begin(tile + 1), tiles.begin(tile + 2), panel, end);
        else task.expect(0, tiles.begin(1), end, end + BLOCK_PANELS);
        const Ahead ahead{alone ? nullptr : weights + BLOCK_PANELS * panel_stride,
                          groups * int64_t(GROUP_WEIGHTS * sizeof(Weight)),
                          panel_stride * int64_t(sizeof(Weight)), tile, tiles.count()};
        block.ahead = wide.ahead = ahead;
        if constexpr (F::EXPANDS)
          if (expands) {
            multiply_some<Float32>(height, task, wide, values, nullptr, row);
            continue;
          }
        multiply_some<F>(height, task, block, values, x.scales, row);
      }
    }
}

// Whether sums are whole numbers in vectors: they are exact, in whatever order they are added.
template <class F>
constexpr bool ANY_ORDER = std::is_same_v<typename F::Sum, Ints>;

// Multiplies a few rows, a single tile, with all panels, but only some groups of inputs. `sums`,
// (rows, panels * COLUMNS), begin with this or go on; what they mean is left for later.
template <class F>
void multiply_groups(const Matrix& matrix, const Rows<F>& x, int64_t rows, int64_t first_group,
                     int64_t groups, bool begins, int32_t* sums) {
  constexpr int64_t GROUP_WEIGHTS = COLUMNS * F::GROUP;
  const int64_t panel_stride = matrix.groups * GROUP_WEIGHTS, stride = matrix.panels * COLUMNS;
  const auto* const weights =
      (const typename F::Weight*)matrix.weights + first_group * GROUP_WEIGHTS;
  const typename F::Input* const values = x.tile(0, rows, first_group);
  with_rows(rows, [&](auto height) {
    with_panels<height>(0, matrix.panels, [&](int64_t panel, auto panels) {
      constexpr int R = height, N = panels * VECTORS;
      typename F::Sum some[R][N] = {};
      int32_t* const to = sums + panel * COLUMNS;
      if (!begins)
        for (int r = 0; r < R; ++r) std::memcpy(some[r], to + r * stride, sizeof some[r]);
      accumulate<F, R, panels>(some, values, weights + panel * panel_stride, panel_stride, groups);
      for (int r = 0; r < R; ++r) std::memcpy(to + r * stride, some[r], sizeof some[r]);
    });
  });
}

#if defined(__AMX_TILE__)

// The compiler does not know that the unit's instructions read memory: what they read is written by
// now.
inline void finish_stores() { asm volatile("" ::: "memory"); }

void store_half(uint16_t* to, Floats values) {
  _mm256_storeu_si256((__m256i*)to, _mm512_cvtps_ph((__m512)values, _MM_FROUND_TO_NEAREST_INT));
}

// Tells a thread's matrix unit that all of its tiles are 16 rows of 64 bytes.
class MatrixUnit {
 public:
  MatrixUnit() {
    alignas(64) struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } shape;
    for (int tile = 0; tile < 8; ++tile) shape.row_bytes[tile] = 64, shape.rows[tile] = UNIT_SIDE;
    finish_stores();
    _tile_loadconfig(&shape);
  }
  ~MatrixUnit() { _tile_release(); }

  // Whether the system lets this process use the unit: its registers are large, so it wants to know.
  static bool allowed() {
    constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
    static const bool yes = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
    return yes;
  }
};

// The same as `multiply_by_vectors` for formats of the matrix unit.
template <class F>
void multiply_by_unit(const Task& task, const Rows<F>& x) {
  using Weight = typename F::Weight;
  constexpr int64_t GROUP_WEIGHTS = COLUMNS * F::GROUP, SIDE = UNIT_SIDE;
  constexpr int64_t ROW_BYTES = 64, WEIGHT_STRIDE = GROUP_WEIGHTS * sizeof(Weight);
  const Matrix& matrix = task.matrix;
  const int64_t panel_weights = matrix.groups * GROUP_WEIGHTS;
  const Tiles<F> tiles{task.rows};
  const int64_t pairs = (tiles.count() + 1) / 2;
  alignas(64) typename F::Sum sums[2 * SIDE][COLUMNS];
  for (int64_t panel = task.first_panel; panel < task.end_panel; ++panel) {
    const Weight* const weights = (const Weight*)matrix.weights + panel * panel_weights;
    const int64_t column = panel * COLUMNS;
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const int64_t row = 2 * pair * SIDE, some = std::min(2 * SIDE, task.rows - row);
      const bool both = some > SIDE;
      const bool more = pair + 1 < pairs;
      const int64_t next_row = more ? row + 2 * SIDE : 0, next_panel = more ? panel : panel + 1;
      finish_stores();
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t group = 0; group < matrix.groups; group += SIDE) {
        const int64_t part = group / SIDE, parts = matrix.groups / SIDE;
        fetch(weights + panel_weights, panel_weights * sizeof(Weight), pair * parts + part,
              pairs * parts);
        task.expect(next_row + 2 * SIDE * part / parts, next_row + 2 * SIDE * (part + 1) / parts,
                    next_panel, next_panel + 1);
        const char* const from = (const char*)(weights + group * GROUP_WEIGHTS);
        _tile_loadd(6, from, WEIGHT_STRIDE);
        _tile_loadd(7, from + ROW_BYTES, WEIGHT_STRIDE);
        _tile_loadd(4, x.tile(row, SIDE, group), ROW_BYTES);
        F::add_tiles();
        if (both) {
          _tile_loadd(5, x.tile(row + SIDE, SIDE, group), ROW_BYTES);
          F::add_lower_tiles();
        }
      }
      constexpr int64_t SUM_STRIDE = COLUMNS * sizeof(typename F::Sum);
      _tile_stored(0, &sums[0][0], SUM_STRIDE);
      _tile_stored(1, &sums[0][SIDE], SUM_STRIDE);
      _tile_stored(2, &sums[SIDE][0], SUM_STRIDE);
      _tile_stored(3, &sums[SIDE][SIDE], SUM_STRIDE);
      finish_stores();
      for (int64_t r = 0; r < some; ++r)
        for (int v = 0; v < COLUMNS; v += LANES) {
          Floats sum = load_numbers(&sums[r][v]);
          if (matrix.scales) sum *= x.scales[row + r] * load(matrix.scales + column + v);
          if (task.start.half) sum += load_half(task.start.halves(row + r, column + v));
          else if (task.start.table) sum += load(task.start.floats(row + r, column + v));
          if (task.half) store_half(task.halves(row + r, panel) + v, sum);
          else store(task.floats(row + r, panel) + v, sum);
        }
    }
  }
}

#endif

template <class F>
void multiply(const Task& task, const Rows<F>& x) {
#if defined(__AMX_TILE__)
  if constexpr (F::MATRIX_UNIT) return multiply_by_unit<F>(task, x);
  else
#endif
    multiply_by_vectors<F>(task, x);
}

// What a thread needs before it computes in a format.
template <class F>
class Ready {
#if defined(__AMX_TILE__)
  std::optional<MatrixUnit> unit_;

 public:
  Ready() {
    if constexpr (F::MATRIX_UNIT) unit_.emplace();
  }
#else
 public:
  Ready() {}
#endif
};

// --- threads --------------------------------------------------------------------------------------

// Threads that work on the same thing and wait for each other. Between two pieces of work they look
// out for the next one, most of the time without sleeping: to wake a thread takes as long as a small
// product. So whoever keeps a team should have work for it, and end it soon.
class Team {
 public:
  using Work = std::function<void(Team&, int64_t me)>;

  explicit Team(int64_t wanted) {
    try {
      for (int64_t n = 1; n < wanted; ++n) others_.emplace_back([this, n] { serve(n); });
    } catch (const std::system_error&) {
      // The system gives no more threads: go on with those there are.
    }
    size_ = 1 + int64_t(others_.size());
  }
  ~Team() {
    work_ = nullptr;
    begun_.fetch_add(1, std::memory_order_release);
    for (auto& thread : others_) thread.join();
  }
  Team(const Team&) = delete;

  // Runs with the team that the calling thread keeps, else with one that lives as long as the call.
  static void run(int64_t wanted, const Work& work) {
    if (kept() && kept()->size() == wanted) kept()->run(work);
    else Team(wanted).run(work);
  }

  // The team that the calling thread keeps, or null.
  static std::unique_ptr<Team>& kept() {
    static thread_local std::unique_ptr<Team> team;
    return team;
  }

  int64_t size() const { return size_; }

  // The share of n things that belongs to one thread.
  int64_t begin(int64_t n, int64_t me) const { return n * me / size_; }

  void wait() {
    if (size_ == 1) return;
    const int64_t round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    wait_for_change(round_, round);
  }

 private:
  void run(const Work& work) {
    work_ = &work;
    begun_.fetch_add(1, std::memory_order_release);
    work(*this, 0);
    wait();
  }

  void serve(int64_t me) {
    for (int64_t seen = 0;; ++seen) {
      wait_for_change(begun_, seen);
      if (!work_) return;
      (*work_)(*this, me);
      wait();
    }
  }

  // What is waited for comes within microseconds, unless the machine is busy with other things, which
  // then have the core; after some milliseconds it is no longer looked for all the time.
  static void wait_for_change(const std::atomic<int64_t>& number, int64_t from) {
    constexpr int64_t PATIENCE = 1 << 17;
    for (int64_t turn = 1; number.load(std::memory_order_acquire) == from; ++turn) {
      _mm_pause();
      if (turn % 256 == 0) std::this_thread::yield();
      if (turn > PATIENCE) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  std::vector<std::thread> others_;
  int64_t size_ = 1;
  const Work* work_ = nullptr;
  std::atomic<int64_t> begun_{0}, arrived_{0}, round_{0};
};

// --- a product for many threads -------------------------------------------------------------------

constexpr int64_t SLICE_ROWS = 512;  // whose inputs stay in the third-level cache

template <class F>
void product(const Matrix& matrix, const float* x, int64_t rows, const float* bias, void* out,
             int64_t out_stride, bool half, int64_t threads) {
  std::vector<Room>& own = rooms(threads);
  Team::run(threads, [&](Team& team, int64_t me) {
    const Ready<F> ready;
    const int64_t first = team.begin(matrix.panels, me), end = team.begin(matrix.panels, me + 1);
    Rows<F> slice(matrix.groups, std::min(rows, SLICE_ROWS), own[me]);
    for (int64_t row = 0; row < rows; row += SLICE_ROWS) {
      const int64_t some = std::min(SLICE_ROWS, rows - row);
      slice.set(x + row * matrix.inputs, matrix.inputs, matrix.inputs, some);
      char* const to = (char*)out + row * out_stride * (half ? 2 : 4);
      const Task task{matrix, some, {bias, nullptr, 0, 0}, to, out_stride,
                      first, end, first * COLUMNS, half};
      multiply<F>(task, slice);
    }
  });
}

// --- highways -------------------------------------------------------------------------------------

// out = x + gate (transform - x), all of them (rows, matrix.inputs). A panel gives the transforms and
// the gates, before their nonlinearities, of LANES outputs.
template <class F>
void highway(const Matrix& matrix, const float* bias, const float* x, int64_t rows, float* out,
             int64_t threads) {
  static_assert(VECTORS == 2);
  constexpr int64_t STRIDE = BLOCK_PANELS * COLUMNS;
  const int64_t width = matrix.inputs;
  std::vector<Room>& own = rooms(threads);
  Team::run(threads, [&](Team& team, int64_t me) {
    const Ready<F> ready;
    const int64_t first = team.begin(matrix.panels, me), end = team.begin(matrix.panels, me + 1);
    Rows<F> slice(matrix.groups, std::min(rows, SLICE_ROWS), own[me]);
    float* const products = own[me].take<float>(std::min(rows, SLICE_ROWS) * STRIDE);
    for (int64_t row = 0; row < rows; row += SLICE_ROWS) {
      const int64_t some = std::min(SLICE_ROWS, rows - row);
      slice.set(x + row * width, width, width, some);
      for (int64_t panel = first; panel < end; panel += BLOCK_PANELS) {
        const int64_t panels = std::min(BLOCK_PANELS, end - panel);
        multiply<F>(Task{matrix, some, {bias, nullptr, 0, 0}, products, STRIDE, panel,
                         panel + panels, 0},
                    slice);
        for (int64_t r = 0; r < some; ++r)
          for (int64_t n = 0; n < panels; ++n) {
            const int64_t column = (panel + n) * LANES, place = (row + r) * width + column;
            const size_t bytes = std::min<int64_t>(LANES, width - column) * sizeof(float);
            const Floats transform = load(products + r * STRIDE + n * COLUMNS);
            const Floats gate = sigmoid(load(products + r * STRIDE + n * COLUMNS + LANES));
            Floats values{};
            std::memcpy(&values, x + place, bytes);
            values += gate * ((transform > 0.f ? transform : all(0.f)) - values);
            std::memcpy(out + place, &values, bytes);
          }
      }
    }
  });
}

// --- an LSTM layer --------------------------------------------------------------------------------

struct Layer {
  Matrix recurrent;   // hidden -> gates; columns in units: i, f, g, o of LANES cells, twice
  Matrix projection;  // cells -> hidden; without weights: there is none
  int64_t cells;      // a multiple of UNIT_CELLS
  int64_t hidden;     // width of the output
  float cell_clip, projection_clip;  // infinity: none
};

// A packed batch: at each time step the rows of the sentences that still have a word.
struct Steps {
  const int64_t* sizes;  // rows of each step, never rising
  int64_t count;
  Start inputs;  // input products, a row for each place
  float* hidden;   // (rows, hidden): before and after
  float* memory;   // (rows, cells): before and after
  int64_t memory_stride;
  float* outputs;  // (places, hidden)
};


// Gates -> memory and cells of some units: `gates` is (rows, units * UNIT_PANELS * COLUMNS); in
// `cells` the digits of a row are rows that follow each other.
template <class F>
void update_cells(const Layer& layer, const Steps& steps, const float* gates, int64_t rows,
                  int64_t first_unit, int64_t units, Rows<F>& cells) {
  const Tiles<F> tiles{rows * F::DIGITS};
  for (int64_t r = 0; r < rows; ++r) {
    const auto spot = tiles.spot(r * F::DIGITS), next = tiles.spot((r + 1) * F::DIGITS - 1);
    for (int64_t part = 0; part < units * UNIT_CELLS; part += LANES) {
      const int64_t cell = first_unit * UNIT_CELLS + part;
      const float* from = gates + (r * units * UNIT_CELLS + part) * GATES;
      float* const kept = steps.memory + r * steps.memory_stride + cell;
      const Floats added = sigmoid_times_tanh(load(from), load(from + 2 * LANES));
      const Floats value =
          bounded(sigmoid(load(from + LANES)) * load(kept) + added, layer.cell_clip);
      store(kept, value);
      const Floats given = sigmoid_times_tanh(load(from + 3 * LANES), value);
      cells.put(spot, cell, F::cells(given, layer.cells));
      if constexpr (F::DIGITS == 2) cells.put(next, cell, F::rests(given));
    }
  }
}

// Rows times units that are multiplied before their cells are updated: enough for independent sums
// there, and few enough to turn back at the end of the weights while their last part is in the cache.
constexpr int64_t ROW_UNITS = 6;

// What the threads of a layer share.
template <class F>
struct Exchange {
  Exchange(const Layer& layer, const Steps& steps, int64_t threads, Room& room)
      : rows(steps.sizes[0] * F::DIGITS), stride(layer.projection.panels * COLUMNS),
        // Both round the number of cells up, each in its own way.
        cells(std::max(layer.projection.groups, layer.cells / F::GROUP), rows, room),
        projected(room.take<float>(rows * stride)),
        sums(room.take<int32_t>(ANY_ORDER<F> ? threads * MAX_ROWS * stride : 0)) {
    const float scale = F::cell_scale(layer.cells);
    if (F::ROUNDS)
      for (int64_t r = 0; r < rows; ++r) cells.scales[r] = r % F::DIGITS ? scale / FINER : scale;
  }

  // What the cells of one thread add to the outputs: (rows, stride).
  int32_t* sums_of(int64_t thread) const { return sums + thread * MAX_ROWS * stride; }

  const int64_t rows;  // of digits
  const int64_t stride;
  Rows<F> cells;
  float* const projected;  // (rows, stride)

 private:
  int32_t* const sums;
};

// What one thread has at hand while a layer runs.
template <class F>
class LayerThread {
 public:
  LayerThread(const Layer& layer, const Steps& steps, Exchange<F>& shared, Team& team, int64_t me,
              Room& room)
      : layer_(layer), steps_(steps), shared_(shared), team_(team), me_(me),
        first_unit_(team.begin(layer.cells / UNIT_CELLS, me)),
        end_unit_(team.begin(layer.cells / UNIT_CELLS, me + 1)),
        first_panel_(team.begin(layer.projection.panels, me)),
        end_panel_(team.begin(layer.projection.panels, me + 1)),
        gates_(room.take<float>(std::max(steps.sizes[0], ROW_UNITS) * UNIT_PANELS * COLUMNS)),
        hidden_(layer.recurrent.groups, steps.sizes[0], room) {}

  void run() {
    int64_t place = 0;
    const float* hidden = steps_.hidden;
    for (int64_t t = 0; t < steps_.count; ++t) {
      const int64_t rows = steps_.sizes[t];
      float* const out = steps_.outputs + place * layer_.hidden;
      // Each thread takes all rows over for itself: cheaper than waiting for the others.
      hidden_.set(hidden, layer_.hidden, layer_.hidden, rows);
      update(rows, place, t);
      team_.wait();  // for all cells
      if (layer_.projection.weights) project(rows, out);
      else give_cells(rows, out);
      team_.wait();  // for all of the hidden state
      hidden = out;
      place += rows;
    }
  }

 private:
  // Whether each thread multiplies its own cells with the projection's weights for them as soon as
  // it has them. One sweep then goes through all weights of a thread, and a third of them is still in
  // the second-level cache when it turns back; a separate sweep of the projection would drive that
  // out. Sums are added up in an order that depends on the threads.
  bool projects_own_cells(int64_t rows) const {
    return ANY_ORDER<F> && layer_.projection.weights && rows * F::DIGITS <= MAX_ROWS;
  }

  // With few rows, every other step goes through the weights backwards: what was read last is still
  // in the cache.
  void update(int64_t rows, int64_t place, int64_t t) {
    Start start = steps_.inputs;
    start.skip(place);
    const bool backwards = t % 2 && rows <= MAX_ROWS;
    const int64_t some = std::max<int64_t>(1, ROW_UNITS / rows);
    for (int64_t done = 0; done < end_unit_ - first_unit_; done += some) {
      const int64_t units = std::min(some, end_unit_ - first_unit_ - done);
      const int64_t unit = backwards ? end_unit_ - done - units : first_unit_ + done;
      const Task task{layer_.recurrent, rows, start, gates_, units * UNIT_PANELS * COLUMNS,
                      unit * UNIT_PANELS, (unit + units) * UNIT_PANELS, 0};
      multiply<F>(task, hidden_);
      update_cells<F>(layer_, steps_, gates_, rows, unit, units, shared_.cells);
      if constexpr (ANY_ORDER<F>)
        if (projects_own_cells(rows)) add_products_of_cells(rows, unit, units, done == 0);
    }
  }

  void add_products_of_cells(int64_t rows, int64_t unit, int64_t units, bool begins) {
    constexpr int64_t UNIT_GROUPS = UNIT_CELLS / F::GROUP;
    const int64_t first = unit * UNIT_GROUPS;
    const int64_t groups = std::min(units * UNIT_GROUPS, layer_.projection.groups - first);
    multiply_groups<F>(layer_.projection, shared_.cells, rows * F::DIGITS, first,
                       std::max<int64_t>(0, groups), begins, shared_.sums_of(me_));
  }

  void project(int64_t rows, float* out) {
    if (projects_own_cells(rows)) {
      add_sums(rows * F::DIGITS);
    } else {
      const Task task{layer_.projection, rows * F::DIGITS, {nullptr, nullptr, 0, 0},
                      shared_.projected, shared_.stride, first_panel_, end_panel_,
                      first_panel_ * COLUMNS};
      multiply<F>(task, shared_.cells);
    }
    const float bound = layer_.projection_clip;
    const int64_t end = std::min(end_panel_ * COLUMNS, layer_.hidden);
    for (int64_t r = 0; r < rows; ++r) {
      const float* const from = shared_.projected + r * F::DIGITS * shared_.stride;
      for (int64_t k = first_panel_ * COLUMNS; k < end; ++k) {
        const float value = F::DIGITS == 2 ? from[k] + from[k + shared_.stride] : from[k];
        out[r * layer_.hidden + k] = std::max(-bound, std::min(bound, value));
      }
    }
  }

  // Adds up what the cells of all threads give.
  void add_sums(int64_t rows) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = first_panel_ * COLUMNS; k < end_panel_ * COLUMNS; k += LANES) {
        Ints sum{};
        for (int64_t thread = 0; thread < team_.size(); ++thread) {
          Ints some;
          std::memcpy(&some, shared_.sums_of(thread) + r * shared_.stride + k, sizeof some);
          sum += some;
        }
        store(shared_.projected + r * shared_.stride + k,
              meaning(sum, layer_.projection, k, shared_.cells.scales[r]));
      }
  }

  // Without a projection the cells are the hidden state; only for formats that do not round them.
  void give_cells(int64_t rows, float* out) {
    const Tiles<F> tiles{rows};
    const int64_t end = std::min(end_unit_ * UNIT_CELLS, layer_.hidden);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = first_unit_ * UNIT_CELLS; k < end; ++k)
        out[r * layer_.hidden + k] = float(*shared_.cells.place(tiles.spot(r), k));
  }

  const Layer& layer_;
  const Steps& steps_;
  Exchange<F>& shared_;
  Team& team_;
  const int64_t me_;
  const int64_t first_unit_, end_unit_, first_panel_, end_panel_;
  float* const gates_;
  Rows<F> hidden_;
};

// Sentences end at different steps: the hidden state of each is its last output.
void keep_last_outputs(const Layer& layer, const Steps& steps) {
  int64_t place = 0;
  for (int64_t t = 0; t < steps.count; ++t) {
    const int64_t going_on = t + 1 < steps.count ? steps.sizes[t + 1] : 0;
    for (int64_t r = going_on; r < steps.sizes[t]; ++r)
      std::copy_n(steps.outputs + (place + r) * layer.hidden, layer.hidden,
                  steps.hidden + r * layer.hidden);
    place += steps.sizes[t];
  }
}

template <class F>
void run_layer(const Layer& layer, const Steps& steps, int64_t threads) {
  std::vector<Room>& own = rooms(threads);
  Exchange<F> shared(layer, steps, threads, own[threads]);
  Team::run(threads, [&](Team& team, int64_t me) {
    const Ready<F> ready;
    LayerThread<F>(layer, steps, shared, team, me, own[me]).run();
  });
  keep_last_outputs(layer, steps);
}

// --- all layers of a few sentences ----------------------------------------------------------------
//
// The same as bilm.py and packed.py do for any batch, in one call: between the layers of a short
// sentence, a few lines of Python take longer than a word.

// One layer of one direction with the product of its inputs.
struct WholeLayer {
  Matrix input;
  const float* bias;  // of the gates
  Layer layer;
};

// Sentences, and what becomes of them; directions are forward, backward.
struct Reading {
  const float* vectors;    // of the distinct words, (n, inputs of the first layer)
  int64_t n_vectors;
  const int64_t* tokens;   // which word stands at each place, one sentence after another
  const int64_t* lengths;  // of the sentences, each at least 1
  int64_t sentences;
  float* hidden;   // (depth, 2, sentences, width): before and after
  float* memory;   // (depth, 2, sentences, cells): before and after
  int64_t cells;   // without those that fill a layer's last unit
  float* outputs;  // (depth, places, 2 * width)
  Start products;  // memory for input products, a row for each place
  int64_t depth;
  int64_t residual;  // whether inputs are added to the outputs of all layers but the first
};

// In which order the words of sentences are read; see batching.py.
struct Order {
  explicit Order(const Reading& reading) : sentences(reading.sentences) {
    const int64_t* const lengths = reading.lengths;
    for (int64_t n = 0; n < reading.sentences; ++n) sentences[n] = n;
    std::stable_sort(sentences.begin(), sentences.end(),
                     [&](int64_t one, int64_t other) { return lengths[one] > lengths[other]; });
    std::vector<int64_t> begin(reading.sentences, 0);
    for (int64_t n = 1; n < reading.sentences; ++n) begin[n] = begin[n - 1] + lengths[n - 1];
    for (int64_t step = 0; step < lengths[sentences[0]]; ++step) {
      int64_t rows = 0;
      for (const int64_t n : sentences) {
        if (lengths[n] <= step) break;
        places[0].push_back(begin[n] + step);
        places[1].push_back(begin[n] + lengths[n] - 1 - step);
        ++rows;
      }
      sizes.push_back(rows);
    }
  }

  std::vector<int64_t> sentences;  // the longest first
  std::vector<int64_t> sizes;      // of the steps
  std::vector<int64_t> places[2];  // which place is read, step by step, in each direction
};

// Copies rows of (sentences, width) into the order in which they are read, or back.
template <bool BACK>
void copy_state(const Order& order, float* state, int64_t width, float* ordered, int64_t stride) {
  for (size_t row = 0; row < order.sentences.size(); ++row) {
    float* const own = state + order.sentences[row] * width;
    if (BACK) std::copy_n(ordered + row * stride, width, own);
    else std::copy_n(own, width, ordered + row * stride);
  }
}

template <class F>
void read_direction(const WholeLayer* layers, int64_t direction, const Reading& reading,
                    const Order& order, int64_t threads) {
  static thread_local Room room;
  room.begin();
  const std::vector<int64_t>& places = order.places[direction];
  const int64_t n = places.size(), width = layers->layer.hidden, cells = layers->layer.cells;
  int64_t* const words = room.take<int64_t>(n);
  for (int64_t k = 0; k < n; ++k) words[k] = reading.tokens[places[k]];
  float* inputs = room.take<float>(n * width);
  float* outputs = room.take<float>(n * width);
  float* const hidden = room.take<float>(reading.sentences * width);
  float* const memory = room.take<float>(reading.sentences * cells);
  for (int64_t number = 0; number < reading.depth; ++number) {
    const WholeLayer& whole = layers[number];
    const bool first = number == 0;
    Start products = reading.products;
    products.index = first ? words : nullptr;
    product<F>(whole.input, first ? reading.vectors : inputs, first ? reading.n_vectors : n,
               whole.bias, (void*)products.table, products.stride, products.half, threads);
    const int64_t before = (number * 2 + direction) * reading.sentences;
    float* const own_hidden = reading.hidden + before * width;
    float* const own_memory = reading.memory + before * reading.cells;
    copy_state<false>(order, own_hidden, width, hidden, width);
    copy_state<false>(order, own_memory, reading.cells, memory, cells);
    const int64_t steps = order.sizes.size();
    run_layer<F>(whole.layer,
                 Steps{order.sizes.data(), steps, products, hidden, memory, cells, outputs},
                 threads);
    copy_state<true>(order, own_hidden, width, hidden, width);
    copy_state<true>(order, own_memory, reading.cells, memory, cells);
    // What recurs is the output before the residual.
    if (!first && reading.residual)
      for (int64_t k = 0; k < n * width; ++k) outputs[k] += inputs[k];
    for (int64_t k = 0; k < n; ++k)
      std::copy_n(outputs + k * width, width,
                  reading.outputs + ((number * n + places[k]) * 2 + direction) * width);
    std::swap(inputs, outputs);
  }
}

// --- filters over characters ----------------------------------------------------------------------

// What each filter makes of each character at each offset of a window.
struct Responses {
  const float* table;      // a row of `filters` values for each; zero beyond a filter's width
  const int64_t* offsets;  // what is added to the row of a character at each offset
  const int32_t* widths;   // of the filters
  int64_t filters, widest;
  int64_t characters;  // of a word's row: where no window may reach beyond
};

// The characters of words, as rows of the table at offset 0: (words, windows + widest - 1).
struct Spellings {
  const int64_t* places;
  int64_t count, windows;
};

// Gives the highest response of N vectors of filters to the windows of a word; of a single vector only
// `some` filters need be there.
template <int N>
void highest_response(const Responses& responses, const int64_t* places, int64_t windows,
                      int64_t filter, int64_t some, float* out) {
  const size_t bytes = (N > 1 ? LANES : some) * sizeof(float);
  Ints widths[N] = {};
  Floats most[N];
  for (int v = 0; v < N; ++v) {
    std::memcpy(&widths[v], responses.widths + filter + v * LANES, bytes);
    most[v] = all(-INFINITY);
  }
  for (int64_t window = 0; window < windows; ++window) {
    Floats sums[N] = {};
    for (int64_t offset = 0; offset < responses.widest; ++offset) {
      const int64_t row = places[window + offset] + responses.offsets[offset];
      const float* const from = responses.table + row * responses.filters + filter;
      for (int v = 0; v < N; ++v) {
        Floats values{};
        std::memcpy(&values, from + v * LANES, bytes);
        sums[v] += values;
      }
    }
    for (int v = 0; v < N; ++v) {
      const Floats possible =
          widths[v] <= int32_t(responses.characters - window) ? sums[v] : all(-INFINITY);
      most[v] = possible > most[v] ? possible : most[v];
    }
  }
  for (int v = 0; v < N; ++v) std::memcpy(out + v * LANES, &most[v], bytes);
}

// Words go by for one part of the filters after another: that part of the table stays in the cache.
void highest_responses(const Responses& responses, const Spellings& words, float* out,
                       int64_t threads) {
  constexpr int SOME = 4;
  Team::run(threads, [&](Team& team, int64_t me) {
    const int64_t first = team.begin(words.count, me), end = team.begin(words.count, me + 1);
    for (int64_t filter = 0; filter < responses.filters;) {
      const int64_t left = responses.filters - filter;
      const bool many = left >= SOME * LANES;
      for (int64_t n = first; n < end; ++n) {
        const int64_t* const places = words.places + n * (words.windows + responses.widest - 1);
        float* const to = out + n * responses.filters + filter;
        if (many) highest_response<SOME>(responses, places, words.windows, filter, LANES, to);
        else
          highest_response<1>(responses, places, words.windows, filter,
                              std::min<int64_t>(LANES, left), to);
      }
      filter += many ? SOME * LANES : LANES;
    }
  });
}

// --- formats by number ----------------------------------------------------------------------------

enum Format {
  FLOAT32, FLOAT16, BFLOAT16, BFLOAT16_PAIRS, BFLOAT16_TILES, INT8_WORDS, INT8_BYTES, INT8_TILES
};

// Calls `work` with a value of the format's type; false if it was not built for this CPU.
template <class Work>
bool with_format(int format, const Work& work) {
  switch (format) {
    case FLOAT32: work(Float32{}); return true;
    case FLOAT16: work(Float16{}); return true;
    case BFLOAT16: work(Bfloat16{}); return true;
#if defined(__AVX512BF16__)
    case BFLOAT16_PAIRS: work(Bfloat16Pairs{}); return true;
#endif
#if defined(__AMX_BF16__) && defined(__AVX512BF16__)
    case BFLOAT16_TILES:
      if (MatrixUnit::allowed()) work(Bfloat16Tiles{});
      return MatrixUnit::allowed();
#endif
#if defined(__AVX512BW__) || !defined(__AVX512F__)
    case INT8_WORDS: work(Int8Words{}); return true;
#endif
#if defined(__AVX512VNNI__)
    case INT8_BYTES: work(Int8Bytes{}); return true;
#endif
#if defined(__AMX_INT8__) && defined(__AVX512VNNI__)
    case INT8_TILES:
      if (MatrixUnit::allowed()) work(Int8Tiles{});
      return MatrixUnit::allowed();
#endif
    default: return false;
  }
}

}  // namespace

// --- for Python -----------------------------------------------------------------------------------

extern "C" {

int elmo_columns() { return COLUMNS; }
int elmo_lanes() { return LANES; }
int elmo_unit_cells() { return UNIT_CELLS; }

// Inputs in a group of the format, or 0 if this CPU does not have it.
int elmo_group(int format) {
  int group = 0;
  with_format(format, [&](auto kind) { group = decltype(kind)::GROUP; });
  return group;
}

// What the number of groups is a multiple of.
int elmo_depth(int format) {
  int depth = 1;
  with_format(format, [&](auto kind) {
    depth = decltype(kind)::MATRIX_UNIT ? UNIT_SIDE : 1;
  });
  return depth;
}

// Whether input products of layers are kept as float16.
int elmo_keeps_half(int format) {
  int half = 0;
  with_format(format, [&](auto kind) { half = decltype(kind)::MATRIX_UNIT; });
  return half;
}

// Keeps a team for what the calling thread asks for until `elmo_dismiss_team`.
void elmo_keep_team(int64_t threads) { Team::kept() = std::make_unique<Team>(threads); }
void elmo_dismiss_team() { Team::kept().reset(); }

// out (rows, panels * columns) = x (rows, inputs) W^T + bias
void elmo_product(int format, const Matrix* matrix, const float* x, int64_t rows, const float* bias,
                  void* out, int64_t out_stride, int64_t half, int64_t threads) {
  with_format(format, [&](auto kind) {
    product<decltype(kind)>(*matrix, x, rows, bias, out, out_stride, half, threads);
  });
}

// out (rows, inputs) = what a highway makes of x (rows, inputs)
void elmo_highway(int format, const Matrix* matrix, const float* bias, const float* x, int64_t rows,
                  float* out, int64_t threads) {
  with_format(format, [&](auto kind) {
    highway<decltype(kind)>(*matrix, bias, x, rows, out, threads);
  });
}

// out (words, filters) = the highest response of each filter to the windows of each word
void elmo_filters(const Responses* responses, const Spellings* words, float* out,
                  int64_t threads) {
  highest_responses(*responses, *words, out, threads);
}

void elmo_layer(int format, const Layer* layer, const Steps* steps, int64_t threads) {
  with_format(format, [&](auto kind) { run_layer<decltype(kind)>(*layer, *steps, threads); });
}

// Reads a few sentences in both directions.
void elmo_read(int format, const WholeLayer* forward, const WholeLayer* backward,
               const Reading* reading, int64_t threads) {
  const Order order(*reading);
  with_format(format, [&](auto kind) {
    read_direction<decltype(kind)>(forward, 0, *reading, order, threads);
    read_direction<decltype(kind)>(backward, 1, *reading, order, threads);
  });
}
}
