#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"

namespace troupe::crew {

/// One end of a socket between two processes of a measurement. It carries whole JSON values in order, also binary ones.
/// Threads: any may call say(), one at a time hear().
class Line {
 public:
  /// `patience`: how long await() waits.
  explicit Line(Fd fd, Clock::duration patience = std::chrono::seconds(30)) : fd_(std::move(fd)), patience_(patience) {}
  int fd() const noexcept { return fd_.get(); }
  Clock::duration patience() const noexcept { return patience_; }

  /// Returns whether it was sent; it is not if the other end has closed. Never waits.
  bool say(const nlohmann::json& what) const;
  /// The next value; absent if the other end has closed. Waits.
  std::optional<nlohmann::json> hear() { return receive(0); }
  /// The same without waiting; absent also if nothing has arrived.
  std::optional<nlohmann::json> hear_now();

  /// The calls below are for two ends that measure together. All throw Error{peer_lost} if the other end has closed.
  void tell(const nlohmann::json& mine) const;
  /// The next value from the other end. Throws Error{timeout}.
  nlohmann::json await(Blocking& blocking);
  /// Sends `mine` and returns the other end's value; afterwards both ends have made this call.
  nlohmann::json swap(Blocking& blocking, const nlohmann::json& mine) {
    tell(mine);
    return await(blocking);
  }
  void barrier(Blocking& blocking) { swap(blocking, {}); }
  /// Waits for `span`. Returns true at once if the other end has sent a value or closed.
  bool rest(Blocking& blocking, Clock::duration span) const;

 private:
  std::optional<nlohmann::json> receive(int flags);
  Fd fd_;
  Clock::duration patience_;
};

/// Bytes as a binary JSON value.
nlohmann::json binary(std::span<const std::byte> bytes);
std::vector<std::byte> bytes_of(const nlohmann::json& binary);

/// The sockets of both ends. Throws Error{environment}.
std::pair<Fd, Fd> make_line();

/// A time as a number that processes of one host can exchange.
std::int64_t nanoseconds_of(Clock::time_point at);
/// The time from `begin` to a time that another process sent, in ms.
double milliseconds_since(Clock::time_point begin, std::int64_t at_ns);
inline double milliseconds_since(Clock::time_point begin) {
  return milliseconds_since(begin, nanoseconds_of(Clock::now()));
}

}  // namespace troupe::crew
