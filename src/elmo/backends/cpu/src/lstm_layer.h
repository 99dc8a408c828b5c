// An LSTM layer over a packed batch: all threads compute every time step together.
//
// A thread owns some units of cells, with all of their gates: from the gates' products to the cells
// nothing passes between threads. It waits for the others twice in a step, when the cells are
// complete (the projection reads all of them) and when the hidden state is (the next step reads all
// of it).

#pragma once

#include <algorithm>
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

struct Layer {
  Matrix input;       // inputs -> gates; columns in units: i, f, g, o of LANES cells, twice
  const float* bias;  // of the gates
  Matrix recurrent;   // hidden -> gates
  Matrix projection;  // cells -> hidden; without weights: there is none
  int64_t cells;      // a multiple of UNIT_CELLS
  int64_t hidden;     // width of the output
  float cell_clip, projection_clip;  // infinity: none
};

// A packed batch: at each time step the rows of the sentences that still have a word.
struct Steps {
  const int64_t* sizes;  // rows of each step, never rising
  int64_t count;
  Table inputs;    // a row for each place; null: they were multiplied already, and here are
  Table products;  // their products, bias included
  float* hidden;   // (rows, hidden): before and after
  float* memory;   // (rows, cells): before and after
  int64_t memory_stride;
  float* outputs;  // (places, hidden)
};

// How many rows ahead the memory of a row is prefetched: rows are far apart, so that the CPU's own
// prefetcher does not find them.
constexpr int64_t ROWS_AHEAD = 4;

// Gates -> memory and cells of some units: `gates` is (rows, units * UNIT_PANELS * COLUMNS), for
// each LANES cells the vectors i, f, g, o. In `cells` the digits of a row are rows that follow each
// other.
template <class F>
void update_cells(const Layer& layer, const Steps& steps, const float* gates, int64_t rows,
                  int64_t first_unit, int64_t units, Rows<F>& cells) {
  const Tiles<F> tiles{rows * F::DIGITS};
  const int64_t first_cell = first_unit * UNIT_CELLS, n_cells = units * UNIT_CELLS;
  for (int64_t r = 0; r < rows; ++r) {
    if (r + ROWS_AHEAD < rows)
      prefetch_bytes<1>(steps.memory + (r + ROWS_AHEAD) * steps.memory_stride + first_cell,
                      n_cells * sizeof(float));
    const auto spot = tiles.spot(r * F::DIGITS), next = tiles.spot((r + 1) * F::DIGITS - 1);
    for (int64_t part = 0; part < n_cells; part += LANES) {
      const int64_t cell = first_cell + part;
      const float* from = gates + (r * n_cells + part) * GATES;
      float* const kept = steps.memory + r * steps.memory_stride + cell;
      // c = clip(sigmoid(f) c + sigmoid(i) tanh(g)); cell = sigmoid(o) tanh(c), rounded for the
      // projection.
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

// Rows times units that are multiplied before their cells are updated: enough for independent sums,
// and few enough that the part of the weights read last is still in the cache when the next step
// begins with it (see `update`).
constexpr int64_t ROW_UNITS = 6;

// Units whose cells are projected together by the thread that computed them: with fewer, sums would
// be loaded and stored again for little work.
constexpr int64_t STRETCH = 24;

// Rows of digits up to which threads project their own cells: with more of them, a sweep of the
// projection of its own is faster.
constexpr int64_t FEW_DIGITS = 4;

// What the threads of a layer share.
template <class F>
struct Exchange {
  Exchange(const Layer& layer, const Steps& steps, int64_t threads, Arena& arena)
      : rows(steps.sizes[0] * F::DIGITS), stride(layer.projection.panels * COLUMNS),
        // Both round the number of cells up, each in its own way.
        cells(std::max(layer.projection.groups, layer.cells / F::GROUP), rows, arena),
        projected(arena.allocate<float>(rows * stride)),
        sums(arena.allocate<int32_t>(ANY_ORDER<F> ? threads * FEW_DIGITS * stride : 0)) {
    const float scale = F::cell_scale(layer.cells);
    if (F::ROUNDS)
      for (int64_t r = 0; r < rows; ++r) cells.scales[r] = r % F::DIGITS ? scale / FINER : scale;
  }

  // The partial sums of the projection over the cells of one thread: (rows, stride).
  int32_t* sums_of(int64_t thread) const { return sums + thread * FEW_DIGITS * stride; }

  const int64_t rows;  // of digits
  const int64_t stride;
  Rows<F> cells;
  float* const projected;  // (rows, stride)

 private:
  int32_t* const sums;
};

// Calls `work` for one part of a range after another, with its first element, its size, and whether
// it is the first part.
template <class Work>
void for_parts(int64_t first, int64_t end, int64_t most, bool backwards, const Work& work) {
  for (int64_t done = 0; done < end - first; done += most) {
    const int64_t some = std::min(most, end - first - done);
    work(backwards ? end - done - some : first + done, some, done == 0);
  }
}

// What one thread keeps while a layer runs.
template <class F>
class LayerThread {
 public:
  LayerThread(const Layer& layer, const Steps& steps, Exchange<F>& shared, Team& team, int64_t me,
              Arena& arena)
      : layer_(layer), steps_(steps), shared_(shared), team_(team), me_(me),
        first_unit_(team.begin(layer.cells / UNIT_CELLS, me)),
        end_unit_(team.begin(layer.cells / UNIT_CELLS, me + 1)),
        first_panel_(team.begin(layer.projection.panels, me)),
        end_panel_(team.begin(layer.projection.panels, me + 1)),
        gates_(arena.allocate<float>(std::max(steps.sizes[0], ROW_UNITS) * UNIT_PANELS * COLUMNS)),
        hidden_(layer.recurrent.groups, steps.sizes[0], arena),
        inputs_(layer.input.groups, steps.inputs.values ? steps.sizes[0] : 0, arena) {}

  void run() {
    int64_t place = 0;  // of the step's first row in inputs and outputs
    Table hidden{steps_.hidden, nullptr, layer_.hidden};  // afterwards the outputs of the last step
    for (int64_t t = 0; t < steps_.count; ++t) {
      const int64_t rows = steps_.sizes[t];
      float* const out = steps_.outputs + place * layer_.hidden;
      // Each thread lays out all rows for itself: cheaper than one more barrier.
      hidden_.set(hidden, layer_.hidden, rows);
      if (steps_.inputs.values)
        inputs_.set(steps_.inputs.from(place), layer_.input.inputs, rows);
      update(rows, place, t);
      team_.wait();  // until all cells are complete
      if (layer_.projection.weights) project(rows, out);
      else copy_cells(rows, out);
      team_.wait();  // until the hidden state is complete
      hidden.values = out;
      place += rows;
    }
  }

 private:
  // Whether each thread multiplies its own cells with the projection's weights for them as soon as
  // they are computed. One sweep then reads all weights of a thread, and a third of them is still
  // in the second-level cache when it turns back; a separate sweep of the projection would evict
  // that. Sums are added up in an order that depends on the threads, hence only where they are
  // exact.
  bool projects_own_cells(int64_t rows) const {
    return ANY_ORDER<F> && layer_.projection.weights && rows * F::DIGITS <= FEW_DIGITS;
  }

  // Computes the thread's cells of step t. With few rows a step is bound by reading weights, so
  // that every other step sweeps them backwards: what was read last is still in the cache.
  void update(int64_t rows, int64_t place, int64_t t) {
    const bool backwards = t % 2 && rows <= MAX_ROWS;
    const int64_t few = std::max<int64_t>(1, ROW_UNITS / rows);
    const auto stretch = [&](int64_t first, int64_t units, bool is_first) {
      for_parts(first, first + units, few, backwards, [&](int64_t unit, int64_t some, bool) {
        make_gates(rows, place, unit, some);
        update_cells<F>(layer_, steps_, gates_, rows, unit, some, shared_.cells);
      });
      if constexpr (ANY_ORDER<F>)
        if (projects_own_cells(rows)) add_products_of_cells(rows, first, units, is_first);
    };
    for_parts(first_unit_, end_unit_, STRETCH, backwards, stretch);
  }

  // Computes the gates of some units: products of the inputs, or those made before the layer (with
  // the bias either way), and of the hidden state added to them.
  void make_gates(int64_t rows, int64_t place, int64_t unit, int64_t units) {
    const int64_t first = unit * UNIT_PANELS, end = (unit + units) * UNIT_PANELS;
    const int64_t stride = units * UNIT_PANELS * COLUMNS;
    const bool multiplies = steps_.inputs.values;
    if (multiplies)
      multiply<F>(
          Task{layer_.input, rows, {layer_.bias, nullptr, 0}, gates_, stride, first, end, 0},
          inputs_);
    multiply<F>(Task{layer_.recurrent, rows, steps_.products.from(place), gates_, stride, first,
                     end, 0, multiplies},
                hidden_);
  }

  // Adds the products of the cells of some units to this thread's partial sums; `is_first`: sets
  // them.
  void add_products_of_cells(int64_t rows, int64_t unit, int64_t units, bool is_first) {
    constexpr int64_t UNIT_GROUPS = UNIT_CELLS / F::GROUP;
    const int64_t first = unit * UNIT_GROUPS;
    const int64_t groups = std::min(units * UNIT_GROUPS, layer_.projection.groups - first);
    multiply_groups<F>(layer_.projection, shared_.cells, rows * F::DIGITS, first,
                       std::max<int64_t>(0, groups), is_first, shared_.sums_of(me_));
  }

  // Projects cells to this thread's columns of the hidden state, clips them, and writes them to
  // `out`.
  void project(int64_t rows, float* out) {
    if (projects_own_cells(rows)) {
      add_sums(rows * F::DIGITS);
    } else {
      const Task task{layer_.projection, rows * F::DIGITS, {nullptr, nullptr, 0},
                      shared_.projected, shared_.stride, first_panel_, end_panel_,
                      first_panel_ * COLUMNS};
      multiply<F>(task, shared_.cells);
    }
    const float bound = layer_.projection_clip;
    const int64_t end = std::min(end_panel_ * COLUMNS, layer_.hidden);
    for (int64_t r = 0; r < rows; ++r) {
      const float* const from = shared_.projected + r * F::DIGITS * shared_.stride;
      for (int64_t k = first_panel_ * COLUMNS; k < end; ++k) {
        // The sums of both digits, each times its scale.
        const float value = F::DIGITS == 2 ? from[k] + from[k + shared_.stride] : from[k];
        out[r * layer_.hidden + k] = std::max(-bound, std::min(bound, value));
      }
    }
  }

  // Adds the partial sums of all threads, for this thread's columns.
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
              scaled(sum, layer_.projection, k, shared_.cells.scales[r]));
      }
  }

  // Without a projection the cells are the hidden state; only for formats that do not round them.
  void copy_cells(int64_t rows, float* out) {
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
  Rows<F> hidden_, inputs_;
};

// Copies the last output of each sentence to its hidden state: sentences end at different steps,
// those behind the rows of the next step at this one.
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
  std::vector<Arena>& own = arenas(threads);
  Exchange<F> shared(layer, steps, threads, own[threads]);
  Team::run(threads, [&](Team& team, int64_t me) {
    const UnitGuard<F> ready;
    LayerThread<F>(layer, steps, shared, team, me, own[me]).run();
  });
  keep_last_outputs(layer, steps);
}

}  // namespace
