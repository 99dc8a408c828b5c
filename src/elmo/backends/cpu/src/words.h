// From characters to vectors of words: filters, and highways.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "memory.h"
#include "products.h"
#include "rows.h"
#include "task.h"
#include "threads.h"
#include "vector_unit.h"
#include "vectors.h"

namespace {

// --- filters over characters --------------------------------------------------------------------

// Responses of each filter to each character at each offset of a window.
struct Responses {
  const float* table;      // a row of `filters` values for each; zero beyond a filter's width
  const int64_t* offsets;  // what is added to the row of a character at each offset
  const int32_t* widths;   // of the filters
  int64_t filters, widest;
  int64_t characters;  // of a word's row: no filter may reach beyond
};

// The characters of words, as rows of the table at offset 0: (words, windows + widest - 1).
struct Words {
  const int64_t* places;
  int64_t count, windows;
};

// Computes the highest response of N vectors of filters to the windows of a word; of a single
// vector only the first `some` lanes are filters.
//
// A window is the sum of a row of the table for each offset. Sums and maxima of the N vectors stay
// in registers; rows of the table are read from the cache.
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
    // Filters too wide for this window would reach beyond the word's row: they skip it.
    for (int v = 0; v < N; ++v) {
      const Floats possible =
          widths[v] <= int32_t(responses.characters - window) ? sums[v] : all(-INFINITY);
      most[v] = possible > most[v] ? possible : most[v];
    }
  }
  for (int v = 0; v < N; ++v) std::memcpy(out + v * LANES, &most[v], bytes);
}

// Computes out (words, filters). Threads share the words. Each loops over parts of the filters and,
// for each part, over all of its words: that part of the table's columns stays in the cache.
void highest_responses(const Responses& responses, const Words& words, float* out,
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

// --- highways -----------------------------------------------------------------------------------

// out = x + gate (transform - x), all of them (rows, matrix.inputs). A panel has the transforms
// (first vector) and the gates (second vector) of LANES outputs, so that the thread that multiplied
// them can finish them while they are in the first-level cache.
template <class F>
void highway(const Matrix& matrix, const float* bias, const float* x, int64_t rows, float* out,
             int64_t threads) {
  static_assert(VECTORS == 2);
  constexpr int64_t STRIDE = BLOCK_PANELS * COLUMNS;
  const int64_t width = matrix.inputs;
  std::vector<Arena>& own = arenas(threads);
  Team::run(threads, [&](Team& team, int64_t me) {
    const UnitGuard<F> ready;
    const int64_t first = team.begin(matrix.panels, me), end = team.begin(matrix.panels, me + 1);
    Rows<F> slice(matrix.groups, std::min(rows, SLICE_ROWS), own[me]);
    float* const products = own[me].allocate<float>(std::min(rows, SLICE_ROWS) * STRIDE);
    for (int64_t row = 0; row < rows; row += SLICE_ROWS) {
      const int64_t some = std::min(SLICE_ROWS, rows - row);
      slice.set({x + row * width, nullptr, width}, width, some);
      for (int64_t panel = first; panel < end; panel += BLOCK_PANELS) {
        const int64_t panels = std::min(BLOCK_PANELS, end - panel);
        multiply<F>(Task{matrix, some, {bias, nullptr, 0}, products, STRIDE, panel,
                         panel + panels, 0},
                    slice);
        // Products of a block, (some, BLOCK_PANELS * COLUMNS) -> columns of `out`; the last vector
        // of a row may be cut, hence memcpy of `bytes`.
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

}  // namespace
