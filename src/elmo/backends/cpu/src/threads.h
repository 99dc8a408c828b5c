// Threads that share the work of a call.

#pragma once

#include <immintrin.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

namespace {

// Threads that work on the same thing and wait for each other at barriers. Between two pieces of
// work they spin, most of the time without sleeping: to wake a thread takes as long as a small
// product. So a team should be kept only where there is work for it, and not for long.
class Team {
 public:
  using Work = std::function<void(Team&, int64_t me)>;

  explicit Team(int64_t wanted) {
    try {
      for (int64_t n = 1; n < wanted; ++n) others_.emplace_back([this, n] { serve(n); });
    } catch (const std::system_error&) {
      // The system has no more threads: go on with these.
    }
    size_ = 1 + int64_t(others_.size());
  }
  ~Team() {
    work_ = nullptr;
    begun_.fetch_add(1, std::memory_order_release);
    for (auto& thread : others_) thread.join();
  }
  Team(const Team&) = delete;

  // Runs `work` on the team that the calling thread keeps, else on one that lives as long as the
  // call.
  static void run(int64_t wanted, const Work& work) {
    if (kept() && kept()->size() == wanted) kept()->run(work);
    else Team(wanted).run(work);
  }

  // The team that the calling thread keeps, or null.
  static std::unique_ptr<Team>& kept() {
    static thread_local std::unique_ptr<Team> team;
    return team;
  }

  int64_t size() const { return size_; }

  // Where the share of one thread begins, of n things; it ends where the next thread's begins.
  int64_t begin(int64_t n, int64_t me) const { return n * me / size_; }

  // A barrier: the last thread to arrive opens it by the number of the round. Writes before it are
  // visible to all threads behind it (release, acquire).
  void wait() {
    if (size_ == 1) return;
    const int64_t round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    wait_for_change(round_, round);
  }

 private:
  // `begun_` is the number of pieces of work so far: others start when it changes. The calling
  // thread is number 0 and works, too; the barrier keeps it until all are done with `work`.
  void run(const Work& work) {
    work_ = &work;
    begun_.fetch_add(1, std::memory_order_release);
    work(*this, 0);
    wait();
  }

  void serve(int64_t me) {
    for (int64_t seen = 0;; ++seen) {
      wait_for_change(begun_, seen);
      if (!work_) return;
      (*work_)(*this, me);
      wait();
    }
  }

  // Spins: a change comes within microseconds, unless the machine is busy with other things, which
  // get the core by `yield`; after some milliseconds it is looked for only now and then.
  static void wait_for_change(const std::atomic<int64_t>& number, int64_t from) {
    constexpr int64_t PATIENCE = 1 << 17;
    for (int64_t turn = 1; number.load(std::memory_order_acquire) == from; ++turn) {
      _mm_pause();
      if (turn % 256 == 0) std::this_thread::yield();
      if (turn > PATIENCE) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  std::vector<std::thread> others_;
  int64_t size_ = 1;
  const Work* work_ = nullptr;
  std::atomic<int64_t> begun_{0}, arrived_{0}, round_{0};
};

}  // namespace
