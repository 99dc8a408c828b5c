// Memory that threads reuse from call to call, for intermediate results.

#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace {

// Memory of one thread of a team, reused by the next call: fresh memory has to be cleared by the
// system, page by page, which costs as much as a small product. Each block is aligned to a line of
// the cache and zeroed. Calls allocate in a fixed order: the n-th block of a call is the n-th block
// of the call before, made larger if need be.
class Arena {
 public:
  void begin() { next_ = 0; }

  template <class T>
  T* allocate(int64_t n) {
    if (next_ == blocks_.size()) blocks_.emplace_back();
    auto& block = blocks_[next_++];
    const size_t lines = (n * sizeof(T) + sizeof(Line) - 1) / sizeof(Line);
    if (block.size() < lines) block = std::vector<Line>(lines);
    if (lines) std::memset(block.data(), 0, lines * sizeof(Line));
    return (T*)block.data();
  }

 private:
  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<std::vector<Line>> blocks_;
  size_t next_ = 0;
};

// The arenas of a call's threads, and at the end one for what they share. They belong to the
// calling thread and are freed with it.
std::vector<Arena>& arenas(int64_t threads) {
  static thread_local std::vector<Arena> kept;
  if (int64_t(kept.size()) <= threads) kept.resize(threads + 1);
  for (Arena& arena : kept) arena.begin();
  return kept;
}

}  // namespace
