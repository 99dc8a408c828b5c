// Vectors of a batch, layer by layer -> the same sentence by sentence, in memory that nobody has used.
// `elmo/kernels/sentence_copies.py` says the same in NumPy.
//
// Most of the time is not the copy: the system finds and clears each page when it is first written. It
// does so for several threads at once, and each thread here takes whole pages.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

namespace {

constexpr int64_t LARGE_PAGE = 2 << 20;  // bytes; it begins at a multiple of its size

// Where rows come from and where they go.
struct Copy {
  const char* source;  // (layers, words, row)
  char* target;        // for one sentence after another: (layers, words of the sentence, row)
  const int64_t* first_words;  // of each sentence in a layer of the source; and at the end all words
  int64_t sentences, layers, row_bytes;

  int64_t words() const { return first_words[sentences]; }
  int64_t bytes() const { return words() * layers * row_bytes; }

  // Writes the bytes of the target from `begin` to `end`.
  void write(int64_t begin, int64_t end) const {
    const int64_t first_word = begin / (layers * row_bytes);
    const int64_t* const after =
        std::upper_bound(first_words, first_words + sentences + 1, first_word);
    for (int64_t sentence = after - first_words - 1; sentence < sentences; ++sentence) {
      const int64_t first = first_words[sentence];
      const int64_t layer_bytes = (first_words[sentence + 1] - first) * row_bytes;
      for (int64_t layer = 0; layer < layers; ++layer) {
        const int64_t place = first * layers * row_bytes + layer * layer_bytes;
        if (place >= end) return;
        const int64_t from = std::max(begin, place), to = std::min(end, place + layer_bytes);
        const char* const rows = source + (layer * words() + first) * row_bytes;
        if (from < to) std::memcpy(target + from, rows + (from - place), to - from);
      }
    }
  }
};

}  // namespace

extern "C" {

// Copies `(layers, words, row)` so that the layers of each sentence lie together; see Copy.
void elmo_copy_by_sentence(const char* source, char* target, const int64_t* first_words,
                           int64_t sentences, int64_t layers, int64_t row_bytes, int64_t threads) {
  const Copy copy{source, target, first_words, sentences, layers, row_bytes};
  const int64_t before = reinterpret_cast<uintptr_t>(target) % LARGE_PAGE;  // of the first page
  const int64_t pages = (before + copy.bytes() + LARGE_PAGE - 1) / LARGE_PAGE;
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t page; (page = next.fetch_add(1, std::memory_order_relaxed)) < pages;) {
      const int64_t begin = page * LARGE_PAGE - before;
      copy.write(std::max<int64_t>(begin, 0), std::min(begin + LARGE_PAGE, copy.bytes()));
    }
  };
  std::vector<std::thread> others;
  try {
    while (int64_t(others.size()) + 1 < std::min(threads, pages)) others.emplace_back(work);
  } catch (const std::system_error&) {
    // The system gives no more threads: go on with those there are.
  }
  work();
  for (auto& thread : others) thread.join();
}

}  // extern "C"
