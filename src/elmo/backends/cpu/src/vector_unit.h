// Products by vectors: the micro-kernel, which everything rests on, and how a weight is cut into
// blocks for it, so that they are read from the cache while the next one is prefetched.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "formats.h"
#include "rows.h"
#include "task.h"
#include "vectors.h"

namespace {

// Adds to R x (PANELS * VECTORS) vectors of sums the products of R rows and some groups of inputs.
//
// For each group: load the weights of all outputs once, then for each row spread its inputs to all
// lanes, multiply and add. All loops but that over groups are unrolled, so that sums and weights
// stay in registers; sums run over groups in their order, whatever R and PANELS are.
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

// The block after the current one: while a tile of rows is multiplied, its share of that block is
// prefetched, little by little, as a CPU can wait for a few dozen lines only.
struct NextBlock {
  const void* weights;  // null: nothing is prefetched
  int64_t panel_bytes, panel_stride;  // the latter in bytes, too
  int64_t tile, tiles;

  void prefetch_part(int64_t panel, int64_t panels, int64_t part, int64_t parts) const {
    if (!weights) return;
    for (int64_t n = panel; n < panel + panels; ++n)
      prefetch_share((const char*)weights + n * panel_stride, panel_bytes, tile * parts + part,
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
  NextBlock next;
};

constexpr int64_t GROUPS_BETWEEN_PREFETCHES = 16;

// Adds to sums the products of R rows and a few panels of a block, from the n-th on.
template <class F, int R, int PANELS>
inline __attribute__((always_inline)) void accumulate_block(
    typename F::Sum (&sums)[R][PANELS * VECTORS], const typename F::Input* x,
    const Block<F>& block, int64_t n) {
  const auto* const weights = block.weights + n * block.panel_stride;
  const int64_t part = block.next.weights ? GROUPS_BETWEEN_PREFETCHES : block.groups;
  for (int64_t g = 0; g < block.groups; g += part) {
    block.next.prefetch_part(n, PANELS, g / part, (block.groups + part - 1) / part);
    accumulate<F, R, PANELS>(sums, x + g * R * F::GROUP, weights + g * COLUMNS * F::GROUP,
                             block.panel_stride, std::min(part, block.groups - g));
  }
}

// Turns sums of whole numbers into float32, from a column of the weight on: minus what the shift of
// inputs added, times the scales of row and outputs.
Floats scaled(Ints sums, const Matrix& matrix, int64_t column, float row_scale) {
  Floats values = __builtin_convertvector(sums, Floats);
  if (matrix.offsets) values -= load(matrix.offsets + column);
  return values * (row_scale * load(matrix.scales + column));
}

// Multiplies R rows with a few panels of a block.
//
// Where sums are whole numbers (WHOLE), a block has all groups and sums start from zero: they are
// scaled before anything is added. Float32 sums go on in `out` from where the block before it
// ended.
template <class F, int R, int PANELS>
void multiply_tile(const Task& task, const Block<F>& block, int64_t panel,
                   const typename F::Input* x, const float* scales, int64_t row) {
  constexpr int N = PANELS * VECTORS;
  typename F::Sum sums[R][N];
  const int64_t column = panel * COLUMNS;
  float* const to = task.place(row, panel);
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
        float* const out = to + r * task.out_stride + v * LANES;
        Floats sum = scaled(sums[r][v], task.matrix, place, scales[row + r]);
        if (task.accumulates) sum += load(out);
        else if (task.start.values) sum += load(task.start.row(row + r) + place);
        store(out, sum);
      }
  } else {
    const bool is_first = block.first_group == 0 && !task.accumulates;
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < N; ++v) {
        if (!is_first) sums[r][v] = load(to + r * task.out_stride + v * LANES);
        else if (task.start.values)
          sums[r][v] = load(task.start.row(row + r) + column + v * LANES);
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

// Calls `work` with the number of rows, at most MAX_ROWS, as a constant of the compiler: each
// number has a micro-kernel of its own.
template <int R = MAX_ROWS, class Work>
void with_rows(int64_t rows, const Work& work) {
  if constexpr (R > 1)
    if (rows < R) return with_rows<R - 1>(rows, work);
  work(Constant<R>{});
}

// Calls `work` for one panel after another, with a panel and how many from there on, as a constant.
// Few rows leave registers free: they take several panels at once, for enough independent sums, and
// because a CPU fetches from several places in memory faster than from one.
template <int R, class Work>
void with_panels(int64_t first, int64_t end, const Work& work) {
  constexpr int REGISTERS_OF_TWO = 2 * VECTORS * (R + 1);  // sums and weights
  constexpr int MANY = R == 1 ? 4 : REGISTERS_OF_TWO < REGISTERS ? 2 : 1;
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

// Expands a block to float32, into memory for BLOCK_PANELS times BLOCK_GROUPS.
template <class F>
Block<Float32> expanded(const Block<F>& block, float* memory) {
  const int64_t stride = block.groups * COLUMNS;
  for (int64_t panel = 0; panel < block.end_panel - block.first_panel; ++panel)
    for (int64_t k = 0; k < stride; k += LANES)
      store(memory + panel * stride + k,
            F::load_weights(block.weights + panel * block.panel_stride + k));
  return {memory, stride, block.first_panel, block.end_panel, block.first_group, block.groups,
          block.next};
}

// Computes a task. The weight is cut into blocks that stay in the second-level cache while all rows
// go by, tile by tile, each of which stays in the first-level cache for all panels of the block;
// meanwhile the next block is prefetched. Between blocks of the same panels, sums are kept in
// `out`.
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
      // 16-bit weights of many rows: expanding them once costs less than in every tile.
      const bool expands = F::EXPANDS && tiles.count() > 2;
      Block<Float32> wide{};
      if constexpr (F::EXPANDS)
        if (expands) wide = expanded(block, memory);
      for (int64_t tile = 0; tile < tiles.count(); ++tile) {
        const int64_t row = tiles.begin(tile), height = tiles.height(tile);
        const typename F::Input* const values = x.tile(row, height, group);
        // Results of the next tile; at the last one those of the first tile in the next block.
        if (tile + 1 < tiles.count())
          task.prefetch_results(tiles.begin(tile + 1), tiles.begin(tile + 2), panel, end);
        else task.prefetch_results(0, tiles.begin(1), end, end + BLOCK_PANELS);
        const NextBlock next{alone ? nullptr : weights + BLOCK_PANELS * panel_stride,
                          groups * int64_t(GROUP_WEIGHTS * sizeof(Weight)),
                          panel_stride * int64_t(sizeof(Weight)), tile, tiles.count()};
        block.next = wide.next = next;
        if constexpr (F::EXPANDS)
          if (expands) {
            multiply_some<Float32>(height, task, wide, values, nullptr, row);
            continue;
          }
        multiply_some<F>(height, task, block, values, x.scales, row);
      }
    }
}

// Whether sums are whole numbers in vectors: these are exact, in whatever order they are added.
template <class F>
constexpr bool ANY_ORDER = std::is_same_v<typename F::Sum, Ints>;

// Multiplies a few rows, a single tile, with all panels, but only some groups of inputs. `sums`,
// (rows, panels * COLUMNS), are set (`is_first`) or added to; they are scaled later, by `scaled`.
template <class F>
void multiply_groups(const Matrix& matrix, const Rows<F>& x, int64_t rows, int64_t first_group,
                     int64_t groups, bool is_first, int32_t* sums) {
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
      if (!is_first)
        for (int r = 0; r < R; ++r) std::memcpy(some[r], to + r * stride, sizeof some[r]);
      accumulate<F, R, panels>(some, values, weights + panel * panel_stride, panel_stride, groups);
      for (int r = 0; r < R; ++r) std::memcpy(to + r * stride, some[r], sizeof some[r]);
    });
  });
}

}  // namespace
