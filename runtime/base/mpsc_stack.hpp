#pragma once

#include <atomic>
#include <functional>

namespace troupe {

/// A list to which any thread adds without a lock. One thread at a time takes all elements out, in the order in which
/// they were added. The elements are the caller's; `link` is a member of theirs, a pointer that the list uses while the
/// element is in it. Operations are sequentially consistent, so they are ordered with a flag of the caller: if a thread
/// sets the flag and then finds the list empty, every thread that pushes later sees the flag.
template <class T, auto link>
class MpscStack {
 public:
  /// False: the list is closed, and `element` was not added. Threads: any.
  bool push(T& element) noexcept {
    T* newest = newest_.load(std::memory_order_relaxed);
    do {
      if (newest == closed()) return false;
      std::invoke(link, element) = newest;
    } while (!newest_.compare_exchange_weak(newest, &element));
    return true;
  }
  /// Whether there is nothing to take. Threads: any.
  bool empty() const noexcept {
    const T* const newest = newest_.load();
    return newest == nullptr || newest == closed();
  }
  /// The oldest element, linked to the next one, and so on; null: there are none. An element and its link belong to the
  /// caller again after next_of() was called for it. Threads: one at a time.
  T* take_all() noexcept { return empty() ? nullptr : oldest_first(newest_.exchange(nullptr)); }
  /// The same, and nothing can be added from now on.
  T* close() noexcept {
    T* const newest = newest_.exchange(closed());
    return newest == closed() ? nullptr : oldest_first(newest);
  }
  static T* next_of(const T& element) noexcept { return static_cast<T*>(std::invoke(link, element)); }

 private:
  /// An address that no element can have.
  T* closed() const noexcept { return reinterpret_cast<T*>(const_cast<MpscStack*>(this)); }

  static T* oldest_first(T* newest) noexcept {
    T* oldest = nullptr;
    while (newest != nullptr) {
      T* const earlier = next_of(*newest);
      std::invoke(link, *newest) = oldest;
      oldest = newest;
      newest = earlier;
    }
    return oldest;
  }

  std::atomic<T*> newest_{nullptr};
};

}  // namespace troupe
