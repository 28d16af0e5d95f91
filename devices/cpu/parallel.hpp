#pragma once
#include <omp.h>

#include <cstddef>
#include <cstdint>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define TROUPE_NOT_FOR_TSAN __attribute__((no_sanitize("thread")))
#else
#define TROUPE_NOT_FOR_TSAN
#endif

namespace troupe::cpu {

/// Tells the thread sanitizer what OpenMP orders: a loop's calls come after what was before the loop, and what follows
/// it comes after them. OpenMP's library is not built with the sanitizer. Without a sanitizer, nothing.
class LoopOrder {
 public:
#ifdef __SANITIZE_THREAD__
  void before_loop() noexcept { __tsan_release(&start_); }
  void before_call() noexcept { __tsan_acquire(&start_); }
  void after_call() noexcept { __tsan_release(&end_); }
  void after_loop() noexcept { __tsan_acquire(&end_); }

 private:
  char start_ = 0, end_ = 0;
#else
  void before_loop() noexcept {}
  void before_call() noexcept {}
  void after_call() noexcept {}
  void after_loop() noexcept {}
#endif
};

/// The threads of OpenMP that the calling thread may use.
inline std::size_t usable_threads() noexcept { return static_cast<std::size_t>(omp_get_max_threads()); }

/// Calls act(index, thread) for each index below `count`, by `threads` threads of OpenMP of which each has one range of
/// indices. Returns when all calls have returned; they must not throw.
template <class Act>
TROUPE_NOT_FOR_TSAN void for_each_in_parallel(std::size_t threads, std::size_t count, const Act& act) {
  // OpenMP takes 0.2 us for a parallel region of one thread, as long as a small layer.
  if (threads <= 1) {
    for (std::size_t index = 0; index < count; ++index) act(index, std::size_t{0});
    return;
  }
  LoopOrder order;
  order.before_loop();
#pragma omp parallel for schedule(static) num_threads(static_cast <int>(threads))
  for (std::size_t index = 0; index < count; ++index) {
    order.before_call();
    act(index, static_cast<std::size_t>(omp_get_thread_num()));
    order.after_call();
  }
  order.after_loop();
}

}  // namespace troupe::cpu
