// Vectors of a batch on a GPU, layer by layer -> arrays of the host, sentence by sentence.
//
// The host's memory is the limit: the system finds and clears each page of a new array when it is
// first written, and every byte passes through pinned memory, which the GPU can write to. So there
// are several independent threads. Each starts a copy of the vectors of some words to its pinned
// buffer, waits for it, and writes them where they belong. The buffers are small enough to stay in
// the cache.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

namespace {

// Functions of CUDA's driver. All return 0, or the number of an error.
struct Driver {
  int (*use_context)(void* context);                                       // cuCtxSetCurrent
  int (*copy)(void* target, uint64_t source, size_t bytes, void* stream);  // cuMemcpyDtoHAsync
  int (*wait)(void* stream);                                               // cuStreamSynchronize
};

// The vectors of a batch, and where they go.
struct Vectors {
  uint64_t source;             // on the GPU: (layers, words, row)
  const int64_t* first_words;  // of each sentence; and at the end how many words there are
  char* const* targets;        // of each sentence: (layers, its words, row)
  int64_t sentences, layers, row_bytes;

  int64_t words() const { return first_words[sentences]; }

  // Starts copies of the vectors of words from `begin` to `end`: (layers, end - begin, row). Layers
  // are far apart on the GPU: one copy for each.
  int start_copies(const Driver& driver, int64_t begin, int64_t end, char* pinned,
                   void* stream) const {
    const int64_t bytes = (end - begin) * row_bytes;
    for (int64_t layer = 0; layer < layers; ++layer) {
      const uint64_t from = source + (layer * words() + begin) * row_bytes;
      if (const int error = driver.copy(pinned + layer * bytes, from, bytes, stream)) return error;
    }
    return 0;
  }

  // Writes the words that were copied to the arrays of their sentences. A part may begin and end
  // inside of a sentence.
  void write(int64_t begin, int64_t end, const char* pinned) const {
    // The sentence of the first word: the one before the first that begins behind it.
    const int64_t* const after = std::upper_bound(first_words, first_words + sentences, begin);
    for (int64_t sentence = after - first_words - 1; sentence < sentences; ++sentence) {
      const int64_t first = first_words[sentence], last = first_words[sentence + 1];
      if (first >= end) return;
      const int64_t from = std::max(begin, first), to = std::min(end, last);
      for (int64_t layer = 0; layer < layers && from < to; ++layer)
        std::memcpy(targets[sentence] + (layer * (last - first) + from - first) * row_bytes,
                    pinned + (layer * (end - begin) + from - begin) * row_bytes,
                    (to - from) * row_bytes);
    }
  }
};

}  // namespace

extern "C" {

// Copies `(layers, words, row)` from a GPU so that the layers of each sentence lie together.
//
// Each thread has a stream of its own, and a part of `pinned` that holds `capacity` words. Returns
// 0, or an error of CUDA: then something may be missing.
int elmo_copy_sentences(const Driver* driver, void* context, void* const* streams, char* pinned,
                         int64_t capacity, int64_t threads, uint64_t source,
                         const int64_t* first_words, char* const* targets, int64_t sentences,
                         int64_t layers, int64_t row_bytes) {
  const Vectors vectors{source, first_words, targets, sentences, layers, row_bytes};
  std::atomic<int64_t> next{0};
  std::atomic<int> failure{0};
  const auto copy_parts = [&](int64_t me) {
    char* const own = pinned + me * capacity * layers * row_bytes;
    int error = driver->use_context(context);
    // Threads take the next part whenever they are done with one; the first error stops all.
    while (!error && !failure.load(std::memory_order_relaxed)) {
      const int64_t begin = next.fetch_add(capacity, std::memory_order_relaxed);
      if (begin >= vectors.words()) return;
      const int64_t end = std::min(begin + capacity, vectors.words());
      error = vectors.start_copies(*driver, begin, end, own, streams[me]);
      // Also after an error: copies that were started write to the buffer until they are done.
      if (const int later = driver->wait(streams[me]); !error) error = later;
      if (!error) vectors.write(begin, end, own);
    }
    if (error) failure.store(error, std::memory_order_relaxed);
  };
  const int64_t useful = std::min(threads, (vectors.words() + capacity - 1) / capacity);
  std::vector<std::thread> others;
  try {
    for (int64_t n = 1; n < useful; ++n) others.emplace_back(copy_parts, n);
  } catch (const std::system_error&) {
    // The system gives no more threads: go on with those there are.
  }
  copy_parts(0);
  for (auto& thread : others) thread.join();
  return failure.load();
}

}  // extern "C"
