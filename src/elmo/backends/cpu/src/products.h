// Products in any format: the part of one thread, by vectors or by the matrix unit, and a whole one
// by many threads.

#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "matrix_unit.h"
#include "memory.h"
#include "rows.h"
#include "task.h"
#include "threads.h"
#include "vector_unit.h"
#include "vectors.h"

namespace {

template <class F>
void multiply(const Task& task, const Rows<F>& x) {
#if defined(__AMX_TILE__)
  if constexpr (F::MATRIX_UNIT) return multiply_by_unit<F>(task, x);
  else
#endif
    multiply_by_vectors<F>(task, x);
}

// Configures the matrix unit of a thread while it computes in a format that needs it.
template <class F>
class UnitGuard {
#if defined(__AMX_TILE__)
  std::optional<MatrixUnit> unit_;

 public:
  UnitGuard() {
    if constexpr (F::MATRIX_UNIT) unit_.emplace();
  }
#else
 public:
  UnitGuard() {}
#endif
};

constexpr int64_t SLICE_ROWS = 512;  // whose inputs stay in the third-level cache

// out (rows, panels * COLUMNS) = x (rows, inputs) W^T + bias.
//
// Threads share the outputs, not the rows: each reads its part of the weight once, and there is no
// sum to be added up. Rows go by in slices, each of which a thread converts for itself.
template <class F>
void product(const Matrix& matrix, const float* x, int64_t rows, const float* bias, float* out,
             int64_t out_stride, int64_t threads) {
  std::vector<Arena>& own = arenas(threads);
  Team::run(threads, [&](Team& team, int64_t me) {
    const UnitGuard<F> ready;
    const int64_t first = team.begin(matrix.panels, me), end = team.begin(matrix.panels, me + 1);
    Rows<F> slice(matrix.groups, std::min(rows, SLICE_ROWS), own[me]);
    for (int64_t row = 0; row < rows; row += SLICE_ROWS) {
      const int64_t some = std::min(SLICE_ROWS, rows - row);
      slice.set({x + row * matrix.inputs, nullptr, matrix.inputs}, matrix.inputs, some);
      const Task task{matrix, some, {bias, nullptr, 0}, out + row * out_stride, out_stride,
                      first, end, first * COLUMNS};
      multiply<F>(task, slice);
    }
  });
}

}  // namespace
