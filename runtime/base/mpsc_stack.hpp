#pragma once

#include <atomic>
#include <functional>

namespace troupe {

/// A list that any thread adds to without a lock, and one thread at a time takes everything out of, in the order in
/// which it came. The elements are the caller's; `link` is a member of theirs, a pointer that is the list's while the
/// element is in it. Operations are sequentially consistent, so that a flag of the caller's may stand beside them: who
/// raises it and then finds the list empty is seen by whoever pushes later.
template <class T, auto link>
class MpscStack {
 public:
  /// False: the list is closed, and `element` is not in it. Threads: any.
  bool push(T& element) noexcept {
    T* newest = newest_.load(std::memory_order_relaxed);
    do {
      if (newest == closed()) return false;
      std::invoke(link, element) = newest;
    } while (!newest_.compare_exchange_weak(newest, &element));
    return true;
  }
  /// Whether nothing can be taken. Threads: any.
  bool empty() const noexcept {
    const T* const newest = newest_.load();
    return newest == nullptr || newest == closed();
  }
  /// The oldest element, linked to the next one and so on; null: there are none. An element is the caller's again, its
  /// link included, once next_of() has been asked for what follows it. Threads: one at a time.
  T* take_all() noexcept { return empty() ? nullptr : oldest_first(newest_.exchange(nullptr)); }
  /// The same, and nothing comes in any more.
  T* close() noexcept {
    T* const newest = newest_.exchange(closed());
    return newest == closed() ? nullptr : oldest_first(newest);
  }
  static T* next_of(const T& element) noexcept { return static_cast<T*>(std::invoke(link, element)); }

 private:
  /// A place in memory where no element can be.
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
