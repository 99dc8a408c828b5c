// Memory that threads use again from call to call, for what they need on the way.

#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace {

// Memory of one thread of a team, used again by the next call: fresh memory has to be cleared by the
// system, page by page, which costs as much as a small product. What is taken begins with a line of
// the cache and is zero.
class Room {
 public:
  void begin() { next_ = 0; }

  template <class T>
  T* take(int64_t n) {
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

// The rooms of a call's threads, and one more for what they share. They belong to the thread that
// calls and go with it.
std::vector<Room>& rooms(int64_t threads) {
  static thread_local std::vector<Room> kept;
  if (int64_t(kept.size()) <= threads) kept.resize(threads + 1);
  for (Room& room : kept) room.begin();
  return kept;
}

}  // namespace
