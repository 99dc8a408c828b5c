// Products by the matrix unit (AMX); empty where the CPU has none.

#pragma once

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "rows.h"
#include "task.h"
#include "vectors.h"

namespace {

#if defined(__AMX_TILE__)

// The compiler does not know that the unit's instructions read memory: this makes it complete all
// stores before them.
inline void finish_stores() { asm volatile("" ::: "memory"); }

// Configures a thread's matrix unit: all of its tiles are 16 rows of 64 bytes.
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

  // Whether the system lets this process use the unit: it has to be asked once, as it saves the
  // unit's large registers with each thread.
  static bool allowed() {
    constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
    static const bool yes = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
    return yes;
  }
};

// Does what `multiply_by_vectors` does, for formats of the matrix unit.
//
// One panel at a time (two tiles of 16 outputs), and for it pairs of tiles of 16 rows: four tiles
// of sums stay in registers while all groups of inputs go by, so that each tile that is loaded is
// multiplied twice. The next panel of the weight is prefetched meanwhile.
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
        // A share of the next panel, and of the rows of results that come next.
        const int64_t part = group / SIDE, parts = matrix.groups / SIDE;
        prefetch_share(weights + panel_weights, panel_weights * sizeof(Weight), pair * parts + part,
              pairs * parts);
        task.prefetch_results(next_row + 2 * SIDE * part / parts,
                              next_row + 2 * SIDE * (part + 1) / parts, next_panel,
                              next_panel + 1);
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
      // Sums (32, COLUMNS) -> float32, scaled where they are whole numbers, plus what they start
      // from.
      for (int64_t r = 0; r < some; ++r)
        for (int v = 0; v < COLUMNS; v += LANES) {
          Floats sum = load_numbers(&sums[r][v]);
          if (matrix.scales) sum *= x.scales[row + r] * load(matrix.scales + column + v);
          float* const out = task.place(row + r, panel) + v;
          if (task.accumulates) sum += load(out);
          else if (task.start.values) sum += load(task.start.row(row + r) + column + v);
          store(out, sum);
        }
    }
  }
}

#endif

}  // namespace
