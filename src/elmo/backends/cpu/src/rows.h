// How numbers lie in memory: weights in panels, rows in tables, and rows of inputs in tiles, in the
// order in which a product reads them.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "memory.h"
#include "vectors.h"

namespace {

// A weight as native.py lays it out: panels of COLUMNS outputs, in each of them group after group
// of inputs, in each group one output after another.
struct Matrix {
  const void* weights;
  const float* scales;   // of the outputs of an int8 weight, else null
  const float* offsets;  // to be subtracted from the sums of `Int8Bytes`, else null
  int64_t inputs, groups, panels;
};

// Rows of numbers: those of a table, or one for all (stride 0), or none (null).
struct Table {
  const float* values;
  const int64_t* index;  // which row of the table is the r-th, or null: the r-th
  int64_t stride;

  const float* row(int64_t r) const { return values + (index ? index[r] : r) * stride; }

  // The table without its first rows.
  Table from(int64_t first) const {
    if (index) return {values, index + first, stride};
    return {values ? values + first * stride : nullptr, nullptr, stride};
  }
};

constexpr int64_t UNIT_SIDE = 16;  // rows, groups and outputs of the matrix unit's tiles

// How rows are cut into tiles: of at most MAX_ROWS rows, all of nearly the same height, so that no
// tile is nearly empty; or, for the matrix unit, of 16, the last padded.
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

  Rows(int64_t groups, int64_t rows, Arena& arena)
      : scales(arena.allocate<float>(F::ROUNDS ? rows : 0)), width_(groups * F::GROUP),
        values_(arena.allocate<Input>(capacity_for(rows) * width_)),
        row_(arena.allocate<Input>(F::ROUNDS ? width_ : 0)) {}

  // Copies `rows` rows of `inputs` values into the layout, rounded where the format rounds. What
  // fills the last group stays zero: weights there are zero, too, but 0 times NaN would not be.
  void set(const Table& from, int64_t inputs, int64_t rows) {
    const Tiles<F> tiles{rows};
    for (int64_t r = 0; r < rows; ++r) {
      const Spot spot = tiles.spot(r);
      Input* const to = place(spot, 0);
      const float* const row = from.row(r);
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

  // Stores an aligned run of LANES inputs of a row.
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
  static int64_t capacity_for(int64_t rows) {
    return F::MATRIX_UNIT ? Tiles<F>{rows}.count() * UNIT_SIDE : rows;
  }

  const int64_t width_;
  Input* const values_;
  Input* const row_;
};

}  // namespace
