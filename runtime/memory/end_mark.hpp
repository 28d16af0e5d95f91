#pragma once

#include <linux/futex.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/base/fd.hpp"

namespace troupe {

struct UnmapPage {
  void operator()(std::atomic<std::uint32_t>* word) const noexcept;
};
/// At the beginning of a page that processes of a host share.
using SharedWord = std::unique_ptr<std::atomic<std::uint32_t>, UnmapPage>;

/// A word that the kernel changes when a thread of this process ends, as the first thing of the process's own end
/// (`man 2 set_robust_list`). Sockets, pipes and pidfds show that end only after the kernel has taken back the
/// process's memory: each GB takes 40 ms (Zen 5, 4 KiB pages), and the driver of a GPU takes its own time.
class EndMark {
 public:
  /// Where another process finds it.
  struct Place {
    std::int32_t pid = 0;  // in this pid namespace
    std::int32_t fd = -1;  // -1: nowhere
  };
  /// While this lives, the end of the thread that made it changes the word. One at a time in a thread, which holds no
  /// robust mutex meanwhile. End it on the same thread.
  class Hold {
   public:
    explicit Hold(const EndMark& mark) noexcept;
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    const EndMark& mark_;
    robust_list entry_{};
    robust_list_head list_{};
    robust_list_head* before_ = nullptr;  // the C library's
  };

  /// Without a word if the system refuses one: then nobody hears anything from this mark.
  EndMark() noexcept;
  Place place() const noexcept;

 private:
  Fd file_;
  SharedWord word_;
};

/// One thread that sleeps until marks of other processes change. It needs futex_waitv: on kernels before 5.16, and
/// under filters that forbid the call, it ends at once and reports nothing.
class EndMarkWatch {
 public:
  static constexpr std::size_t kMost = 127;  // the kernel's 128 less the one that ends the thread
  /// Called on the thread, once for each mark whose holder ended. Must not block.
  using Ended = std::function<void(std::size_t index)>;

  /// `index` counts `places`. Left out are marks that cannot be opened (their processes have ended, or belong to
  /// another user), and those after the first kMost.
  EndMarkWatch(const std::vector<EndMark::Place>& places, Ended ended);
  /// Ends and joins the thread.
  ~EndMarkWatch();
  EndMarkWatch(const EndMarkWatch&) = delete;
  EndMarkWatch& operator=(const EndMarkWatch&) = delete;

 private:
  struct Other {
    std::size_t index;
    SharedWord word;
  };

  void run();

  const Ended ended_;
  std::vector<Other> others_;
  std::atomic<std::uint32_t> stop_{0};
  std::thread thread_;  // none if others_ is empty
};

}  // namespace troupe
