// All layers of a few sentences.
//
// Computes what bilm.py and model.py compute for any batch, in one call: between the layers of a
// short sentence, a few lines of Python take longer than a word.

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "lstm_layer.h"
#include "memory.h"
#include "products.h"
#include "rows.h"

namespace {

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
  float* products;  // memory for input products, a row for each place
  int64_t products_stride;
  int64_t depth;
  int64_t residual;  // whether inputs are added to the outputs of all layers but the first
};

// In which order the words of sentences are read: time step after time step, in each the sentences
// that still have a word, from longest to shortest; see `Packing` of elmo/model.
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

// Reads all sentences in one direction (0 forward, 1 backward), layer after layer.
//
// Inside, rows are in reading order: inputs and outputs (n, width), state (sentences, width or
// cells). State and outputs of the caller are in the order of the sentences and are copied in and
// out.
template <class F>
void read_direction(const Layer* layers, int64_t direction, const Reading& reading,
                    const Order& order, int64_t threads) {
  static thread_local Arena arena;
  arena.begin();
  const std::vector<int64_t>& places = order.places[direction];
  const int64_t n = places.size(), width = layers->hidden, cells = layers->cells;
  int64_t* const words = arena.allocate<int64_t>(n);
  for (int64_t k = 0; k < n; ++k) words[k] = reading.tokens[places[k]];
  float* inputs = arena.allocate<float>(n * width);
  float* outputs = arena.allocate<float>(n * width);
  float* const hidden = arena.allocate<float>(reading.sentences * width);
  float* const memory = arena.allocate<float>(reading.sentences * cells);
  for (int64_t number = 0; number < reading.depth; ++number) {
    const Layer& layer = layers[number];
    const bool first = number == 0;
    // The first layer multiplies each distinct word once and reads products by index; the layers
    // above multiply each place.
    product<F>(layer.input, first ? reading.vectors : inputs, first ? reading.n_vectors : n,
               layer.bias, reading.products, reading.products_stride, threads);
    const int64_t before = (number * 2 + direction) * reading.sentences;
    float* const own_hidden = reading.hidden + before * width;
    float* const own_memory = reading.memory + before * reading.cells;
    copy_state<false>(order, own_hidden, width, hidden, width);
    copy_state<false>(order, own_memory, reading.cells, memory, cells);
    const int64_t steps = order.sizes.size();
    const Table products{reading.products, first ? words : nullptr, reading.products_stride};
    run_layer<F>(
        layer,
        Steps{order.sizes.data(), steps, {}, products, hidden, memory, cells, outputs},
        threads);
    copy_state<true>(order, own_hidden, width, hidden, width);
    copy_state<true>(order, own_memory, reading.cells, memory, cells);
    // What recurs is the output before the residual, which is why the state was copied first.
    if (!first && reading.residual)
      for (int64_t k = 0; k < n * width; ++k) outputs[k] += inputs[k];
    // Each direction has its half of the columns.
    for (int64_t k = 0; k < n; ++k)
      std::copy_n(outputs + k * width, width,
                  reading.outputs + ((number * n + places[k]) * 2 + direction) * width);
    std::swap(inputs, outputs);
  }
}

}  // namespace
