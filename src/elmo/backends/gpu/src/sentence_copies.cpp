// Vectors of a batch on a GPU, layer by layer -> arrays of the host, sentence by sentence.
//
// What takes the time is the host's memory: the system finds and clears each page of a new array when
// it is first written, and every byte passes through memory that the GPU can write to. So there are
// several threads, each on its own: it asks the GPU for the vectors of some words, waits, and writes
// them where they belong. What they wait in is small enough to stay in the cache.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

namespace {

// What is needed of CUDA's driver. All give 0, or the number of an error.
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

  // Asks for the vectors of words from `begin` to `end`: (layers, end - begin, row).
  int ask(const Driver& driver, int64_t begin, int64_t end, char* waiting, void* stream) const {
    const int64_t bytes = (end - begin) * row_bytes;
    for (int64_t layer = 0; layer < layers; ++layer) {
      const uint64_t from = source + (layer * words() + begin) * row_bytes;
      if (const int error = driver.copy(waiting + layer * bytes, from, bytes, stream)) return error;
    }
    return 0;
  }

  // Writes what was asked for where it belongs.
  void write(int64_t begin, int64_t end, const char* waiting) const {
    const int64_t* const after = std::upper_bound(first_words, first_words + sentences, begin);
    for (int64_t sentence = after - first_words - 1; sentence < sentences; ++sentence) {
      const int64_t first = first_words[sentence], last = first_words[sentence + 1];
      if (first >= end) return;
      const int64_t from = std::max(begin, first), to = std::min(end, last);
      for (int64_t layer = 0; layer < layers && from < to; ++layer)
        std::memcpy(targets[sentence] + (layer * (last - first) + from - first) * row_bytes,
                    waiting + (layer * (end - begin) + from - begin) * row_bytes,
                    (to - from) * row_bytes);
    }
  }
};

}  // namespace

extern "C" {

// Copies `(layers, words, row)` from a GPU so that the layers of each sentence lie together.
//
// Each thread has a stream of its own, and a part of `waiting` with room for `room` words. Returns 0,
// or the first error of CUDA: then something may be missing.
int elmo_bring_sentences(const Driver* driver, void* context, void* const* streams, char* waiting,
                         int64_t room, int64_t threads, uint64_t source,
                         const int64_t* first_words, char* const* targets, int64_t sentences,
                         int64_t layers, int64_t row_bytes) {
  const Vectors vectors{source, first_words, targets, sentences, layers, row_bytes};
  std::atomic<int64_t> next{0};
  std::atomic<int> failure{0};
  const auto bring = [&](int64_t me) {
    char* const own = waiting + me * room * layers * row_bytes;
    int error = driver->use_context(context);
    while (!error && !failure.load(std::memory_order_relaxed)) {
      const int64_t begin = next.fetch_add(room, std::memory_order_relaxed);
      if (begin >= vectors.words()) return;
      const int64_t end = std::min(begin + room, vectors.words());
      error = vectors.ask(*driver, begin, end, own, streams[me]);
      if (const int later = driver->wait(streams[me]); !error) error = later;
      if (!error) vectors.write(begin, end, own);
    }
    if (error) failure.store(error, std::memory_order_relaxed);
  };
  const int64_t useful = std::min(threads, (vectors.words() + room - 1) / room);
  std::vector<std::thread> others;
  try {
    for (int64_t n = 1; n < useful; ++n) others.emplace_back(bring, n);
  } catch (const std::system_error&) {
    // The system gives no more threads: go on with those there are.
  }
  bring(0);
  for (auto& thread : others) thread.join();
  return failure.load();
}

}  // extern "C"
