// Products with constant weights, and LSTM layers that consist of them, on one CPU.
//
// Built on demand for the instructions that the CPU has (see compiler.py); the plain reference is
// PyTorch (products.py, model.py). Everything rests on one micro-kernel, `accumulate`: a few rows
// times a few panels of the weight, with all sums in registers. What differs between numbers
// (float32, float16, bfloat16, int8) is in the structs of formats.h.
//
// A sum runs over the inputs in their order, whatever the number of rows, panels or threads: the
// result of a row never depends, bit for bit, on what else is computed.
//
// From the bottom up, each resting on those above it:
//
//   vectors.h      vectors as wide as the registers, and functions of them
//   formats.h      how weights are stored and multiplied in each format
//   memory.h       memory that threads reuse
//   rows.h         how weights, rows of inputs, and what sums start from lie in memory
//   task.h         what is to be multiplied; prefetching it
//   vector_unit.h  products by vectors: the micro-kernel, and blocks that stay in the cache
//   matrix_unit.h  products by the matrix unit (AMX)
//   threads.h      a team of threads
//   products.h     products by either unit, and by many threads
//   words.h        filters over characters, highways
//   lstm_layer.h   an LSTM layer over a packed batch
//   reading.h      all layers of a few sentences
//
// All of it is one translation unit, so that the compiler sees through every call; here is only
// what Python calls.

#include <cstdint>
#include <memory>

#include "formats.h"
#include "lstm_layer.h"
#include "matrix_unit.h"
#include "products.h"
#include "reading.h"
#include "rows.h"
#include "threads.h"
#include "vectors.h"
#include "words.h"

namespace {

// --- formats by number --------------------------------------------------------------------------

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

// --- for Python ---------------------------------------------------------------------------------

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

// Keeps a team for what the calling thread asks for until `elmo_dismiss_team`.
void elmo_keep_team(int64_t threads) { Team::kept() = std::make_unique<Team>(threads); }
void elmo_dismiss_team() { Team::kept().reset(); }

// out (rows, panels * columns) = x (rows, inputs) W^T + bias
void elmo_product(int format, const Matrix* matrix, const float* x, int64_t rows, const float* bias,
                  float* out, int64_t out_stride, int64_t threads) {
  with_format(format, [&](auto kind) {
    product<decltype(kind)>(*matrix, x, rows, bias, out, out_stride, threads);
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
void elmo_filters(const Responses* responses, const Words* words, float* out,
                  int64_t threads) {
  highest_responses(*responses, *words, out, threads);
}

void elmo_layer(int format, const Layer* layer, const Steps* steps, int64_t threads) {
  with_format(format, [&](auto kind) { run_layer<decltype(kind)>(*layer, *steps, threads); });
}

// Reads a few sentences in both directions.
void elmo_read(int format, const Layer* forward, const Layer* backward,
               const Reading* reading, int64_t threads) {
  const Order order(*reading);
  with_format(format, [&](auto kind) {
    read_direction<decltype(kind)>(forward, 0, *reading, order, threads);
    read_direction<decltype(kind)>(backward, 1, *reading, order, threads);
  });
}
}
