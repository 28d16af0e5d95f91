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

/// One end of a socket between two processes of a measurement: JSON values, whole, in order, also binary ones. Threads:
/// any may say, one at a time hears.
class Line {
 public:
  /// `patience`: how long await() waits.
  explicit Line(Fd fd, Clock::duration patience = std::chrono::seconds(30)) : fd_(std::move(fd)), patience_(patience) {}
  int fd() const noexcept { return fd_.get(); }
  Clock::duration patience() const noexcept { return patience_; }

  /// Never waits; whether it was sent. It is not when the other end has gone.
  bool say(const nlohmann::json& what) const;
  /// What comes next; absent when the other end has gone. Waits.
  std::optional<nlohmann::json> hear() { return receive(0); }
  /// The same if it is there already.
  std::optional<nlohmann::json> hear_now();

  /// Of two ends that measure together; all throw Error{peer_lost} when the other has gone.
  void tell(const nlohmann::json& mine) const;
  /// What the other end says next. Throws Error{timeout}.
  nlohmann::json await(Blocking& blocking);
  /// Gives `mine` for the other's; both have come this far.
  nlohmann::json swap(Blocking& blocking, const nlohmann::json& mine) {
    tell(mine);
    return await(blocking);
  }
  void meet(Blocking& blocking) { swap(blocking, {}); }
  /// Waits for `span`; true, at once: the other end has said something, or gone.
  bool rest(Blocking& blocking, Clock::duration span) const;

 private:
  std::optional<nlohmann::json> receive(int flags);
  Fd fd_;
  Clock::duration patience_;
};

/// Bytes to tell, as a binary value.
nlohmann::json binary(std::span<const std::byte> bytes);
std::vector<std::byte> bytes_of(const nlohmann::json& binary);

/// The sockets of both ends. Throws Error{environment}.
std::pair<Fd, Fd> make_line();

/// A moment as processes of one host tell it to each other.
std::int64_t nanoseconds_of(Clock::time_point at);
/// Of a moment that another process told, in ms after `begin`.
double milliseconds_since(Clock::time_point begin, std::int64_t at_ns);
inline double milliseconds_since(Clock::time_point begin) {
  return milliseconds_since(begin, nanoseconds_of(Clock::now()));
}

}  // namespace troupe::crew
