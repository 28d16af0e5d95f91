#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/fd.hpp"
#include "runtime/memory/end_mark.hpp"
#include "transports/bootstrap/detail/joined.hpp"

namespace troupe::bootstrap {

/// One thread that sleeps on the sockets of a job, and on the end marks and the pidfds of processes of this host, and
/// reports deaths.
///
/// Rank 0 sees the end of every rank's socket and reports it to the others, as it does when a rank leaves. The others
/// rely on rank 0's reports. They also see by its pidfd that a process of this host has ended, but first wait a moment
/// for a report of rank 0 that it had left. An end mark shows a death at once, before the kernel has closed the
/// sockets; who leaves lets go of its mark before. When rank 0 itself is gone, leaving and dying cannot be
/// distinguished any more, so nothing is reported after that.
class DeathWatch {
 public:
  DeathWatch(std::uint32_t rank, const EndMark& mark, Joined& joined, Bootstrap::Lost lost);
  /// Starts the thread. It is separate from the constructor, so that a callback finds a complete object.
  void start();
  /// Ends the thread; without leave() the others will count this process as lost.
  ~DeathWatch();
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;
  /// Sends a goodbye and ends the thread. If it is called on that thread, the thread ends soon after the return.
  void leave() noexcept;

 private:
  enum class Presence { here, left, lost };
  struct Other {
    Presence presence = Presence::here;
    Fd process;                       // pidfd; none: another host or pid namespace
    bool writing = false;             // whether epoll waits for space to send on its link
    std::optional<Deadline> suspect;  // its process has ended; it counts as lost then, unless it has left
  };

  void run();
  void stop(bool goodbye) noexcept;
  void add(int fd, epoll_event event, std::uint32_t rank);
  void watch_link(std::uint32_t rank);
  bool is_visible(std::uint32_t rank) const;
  void watch_process(std::uint32_t rank);
  void watch_marks();
  void take_marks();
  int timeout() const;
  void serve(std::uint32_t rank);
  void take(std::uint32_t from, const Frame& frame);
  void process_ended(std::uint32_t rank);
  void check_suspects();
  void lost(std::uint32_t rank, const std::string& why);
  void left(std::uint32_t rank);
  void relay(std::uint32_t about, Kind kind, const std::string& text);
  void release(std::uint32_t rank);
  void await_room(std::uint32_t rank);
  bool is_root() const noexcept { return rank_ == 0; }
  void say_goodbye();

  const std::uint32_t rank_;
  const EndMark& mark_;
  Joined& joined_;  // used only by the thread while it runs
  const Bootstrap::Lost lost_;
  std::vector<Other> others_;  // by rank
  Fd epoll_;
  Fd wake_;
  std::array<Fd, 2> ending_;  // a pipe of ranks whose marks changed
  std::optional<EndMarkWatch> marks_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> goodbye_{false};
  std::atomic<bool> started_{false};  // thread_ is set
  std::thread thread_;
};

}  // namespace troupe::bootstrap
