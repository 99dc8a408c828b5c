// What is to be multiplied, by vectors or by the matrix unit, and how either prefetches it.

#pragma once

#include <algorithm>
#include <cstdint>

#include "rows.h"
#include "vectors.h"

namespace {

// Prefetches some bytes, into the second-level cache; WRITTEN: they will be written.
template <int WRITTEN>
void prefetch_bytes(const void* from, int64_t bytes) {
  for (int64_t k = 0; k < bytes; k += LINE) __builtin_prefetch((const char*)from + k, WRITTEN, 2);
}

// out[r, columns of panels] = start[r] + x[r] W^T for some rows and panels.
struct Task {
  const Matrix& matrix;
  int64_t rows;
  Table start;
  float* out;
  int64_t out_stride;
  int64_t first_panel, end_panel;
  int64_t out_column;    // where the columns of the first panel go
  bool accumulates = false;  // whether sums start from what is in `out`, instead of `start`

  float* place(int64_t row, int64_t panel) const {
    return out + row * out_stride + out_column + (panel - first_panel) * COLUMNS;
  }

  // Prefetches what sums of some rows start from, and where their results go: rows are far apart,
  // so that the CPU's own prefetcher does not find them.
  void prefetch_results(int64_t first_row, int64_t end_row, int64_t panel, int64_t end) const {
    const int64_t bytes = (std::min(end, end_panel) - panel) * COLUMNS * int64_t(sizeof(float));
    for (int64_t row = first_row; row < std::min(end_row, rows); ++row) {
      if (start.stride) prefetch_bytes<0>(start.row(row) + panel * COLUMNS, bytes);
      prefetch_bytes<1>(place(row, panel), bytes);
    }
  }
};

// Prefetches one of several parts of some bytes: all parts together are all of their lines.
void prefetch_share(const void* from, int64_t bytes, int64_t part, int64_t parts) {
  const int64_t lines = (bytes + LINE - 1) / LINE;
  for (int64_t n = lines * part / parts; n < lines * (part + 1) / parts; ++n)
    __builtin_prefetch((const char*)from + n * LINE, 0, 2);
}

}  // namespace
