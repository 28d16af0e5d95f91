#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <source_location>
#include <thread>
#include <typeindex>
#include <utility>
#include <vector>

// A Block whose threads are threads of the host, which run at the same time, as on a GPU: for the thread sanitizer,
// which then sees each missing barrier, and to find threads that wait at different barriers. Included by kernel.hpp.
namespace troupe::cuda {

/// What the threads of one block share.
class SharedByThreads {
 public:
  /// Waits for all threads. Ends the program where they do not come to the same barrier.
  void barrier(const std::source_location& where) {
    std::unique_lock lock{mutex_};
    if (waiting_ == 0) line_ = where.line();
    if (line_ != where.line()) fail("threads of a block wait at two barriers, in lines ", where.line());
    const std::uint64_t round = round_;
    if (++waiting_ == kBlockThreads) {
      waiting_ = 0, ++round_;
      all_came_.notify_all();
      return;
    }
    if (!all_came_.wait_for(lock, std::chrono::seconds{30}, [&] { return round_ != round; }))
      fail("a thread of a block does not come to the barrier in line ", where.line());
  }
  void* memory(std::type_index type, unsigned count, std::size_t size_bytes) {
    const std::lock_guard lock{mutex_};
    auto& found = memory_[{type, count}];
    if (!found) found = std::make_unique<SixtyFourBytes[]>((size_bytes + 63) / 64);
    return found.get();
  }

 private:
  struct alignas(64) SixtyFourBytes {
    std::byte bytes[64];
  };
  [[noreturn]] void fail(const char* what, unsigned line) const {
    std::fprintf(stderr, "%s%u and %u\n", what, line_, line);
    std::abort();
  }

  std::mutex mutex_;  // guards all
  std::condition_variable all_came_;
  unsigned waiting_ = 0, line_ = 0;
  std::uint64_t round_ = 0;
  std::map<std::pair<std::type_index, unsigned>, std::unique_ptr<SixtyFourBytes[]>> memory_;
};

/// Of one thread: its own.
template <class T>
class OfEachThread {
 public:
  T& operator[](unsigned) noexcept { return own_; }

 private:
  T own_;
};

/// As one of its threads sees it.
class Block : public HostWords {
 public:
  Block(SharedByThreads& shared, unsigned thread, std::uint32_t index, std::uint32_t count) noexcept
      : shared_(shared), thread_(thread), index_(index), count_(count) {}

  std::uint32_t index() const noexcept { return index_; }
  std::uint32_t count() const noexcept { return count_; }
  template <class T>
  T* at(T* address) const noexcept {
    return address;
  }
  template <class V>
  V values(const Given<V>& given) const noexcept {
    return given.block == nullptr ? given.own : *given.block;
  }
  template <class Act>
  void for_each(std::uint64_t count_elements, Act&& act) const {
    for (std::uint64_t i = std::uint64_t{index_} * kBlockThreads + thread_; i < count_elements;
         i += std::uint64_t{count_} * kBlockThreads)
      act(i);
  }
  template <class Act>
  void for_each_here(std::uint64_t count_elements, Act&& act) const {
    for (std::uint64_t i = thread_; i < count_elements; i += kBlockThreads) act(i);
  }
  template <class Act>
  void for_each_thread(Act&& act) const {
    act(thread_);
  }
  template <class Act>
  void once(Act&& act) const {
    if (thread_ == 0) act();
  }
  void barrier(const std::source_location& where = std::source_location::current()) const { shared_.barrier(where); }
  template <class Sum>
  void add_up_warps(OfEachThread<Sum>& sums, unsigned across = 1, unsigned within = kWarpThreads,
                    const std::source_location& where = std::source_location::current()) const {
    struct Lent {  // not the kernel's own memory for sums
      Sum sum;
    };
    Lent* const all = shared<Lent, kBlockThreads>();
    for (unsigned apart = within / 2; apart >= across; apart /= 2) {
      all[thread_].sum = sums[thread_];
      barrier(where);
      Sum lower = all[thread_ & ~apart].sum;
      lower.add(all[thread_ | apart].sum);
      barrier(where);
      sums[thread_] = lower;
    }
  }
  bool comes_last(std::uint32_t* arrived, std::uint32_t count,
                  const std::source_location& where = std::source_location::current()) const {
    struct Lent {
      bool is_last;
    };
    Lent* const found = shared<Lent, 1>();
    barrier(where);
    if (thread_ == 0) found->is_last = arrives_last(arrived, count);
    barrier(where);
    return found->is_last;
  }
  template <class T, unsigned kCount>
  T* shared() const {
    return static_cast<T*>(shared_.memory(typeid(T), kCount, sizeof(T) * kCount));
  }
  static void pause() noexcept { std::this_thread::yield(); }
  static std::uint64_t now_ns() noexcept {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }

 private:
  SharedByThreads& shared_;
  const unsigned thread_;
  const std::uint32_t index_;
  const std::uint32_t count_;
};

}  // namespace troupe::cuda
