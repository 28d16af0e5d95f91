#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"

namespace troupe::bench {

/// One end of a socket between the process that measures and one that is measured: JSON objects, whole, in order.
/// Threads: any may say, one at a time hears.
class ControlLine {
 public:
  explicit ControlLine(Fd fd) : fd_(std::move(fd)) {}
  int fd() const noexcept { return fd_.get(); }
  /// Never waits; whether it was sent. It is not when the other end has gone.
  bool say(const nlohmann::json& what) const;
  /// What comes next; absent at the end of the other process. Waits.
  std::optional<nlohmann::json> hear();
  /// The same if it is there already.
  std::optional<nlohmann::json> hear_now();

 private:
  std::optional<nlohmann::json> receive(int flags);
  Fd fd_;
};

/// Both ends. Throws Error{environment}.
std::pair<ControlLine, ControlLine> make_control_line();

/// A moment as processes of one host tell it to each other.
std::int64_t nanoseconds_of(Clock::time_point at);
/// Of a moment that another process told, in ms after `begin`.
double milliseconds_since(Clock::time_point begin, std::int64_t at_ns);

}  // namespace troupe::bench
