#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/exchange/policies/policy.hpp"

namespace troupe::rtrun {

/// What `rtrun control` asks of a run. It travels as one line of plain letters, `words` joined by spaces.
struct ControlRequest {
  enum class Kind : std::uint8_t { switch_policy, rebuild, stop, describe, machines };
  Kind kind = Kind::describe;
  PolicySettings policy;  // of switch_policy
};

/// What a run answers, as one line: "ok " or "no ", and `text` with \n and \\ for line ends and backslashes.
struct ControlAnswer {
  bool done = false;
  std::string text;
};

/// The most bytes of a request's line, and of an answer's.
inline constexpr std::size_t kRequestBytes = 1024;
inline constexpr std::size_t kAnswerBytes = std::size_t{64} << 20;  // machines of some hundred nodes

/// Throws Error{invalid} for anything else than "switch POLICY [key=value ...]", "rebuild", "stop", "describe" and
/// "machines".
ControlRequest parse_control_request(std::string_view line);
std::string to_line(const ControlAnswer& answer);
/// Throws Error{corrupt} for what to_line does not make.
ControlAnswer parse_control_answer(std::string_view line);

/// The socket of the run that writes into `folder`: a name that the kernel keeps as long as somebody listens there,
/// made of the folder's numbers on its file system. Nothing lies in the file system. Throws Error{environment} when the
/// folder cannot be looked at.
std::string control_address(const std::string& folder);
/// Listens there. Throws Error{environment} when somebody does already.
Fd listen_for_control(const std::string& folder);
/// Whether the other end of a connection is this user, or root.
bool is_same_user(const Fd& connection);

/// Asks the run that writes into `folder`. One that does not answer by the deadline, or ends before, has not done it.
/// Throws Error{invalid} for words that are no request, Error{environment} when no run of this user listens there.
ControlAnswer ask_run(Blocking& blocking, const std::string& folder, const std::vector<std::string>& words,
                      Deadline deadline);

/// Reads up to a line end, which is left out, or the end of what is sent; nothing: that took longer than the deadline,
/// or was more than `most` bytes.
bool read_line(const Fd& connection, std::string& line, std::size_t most, Deadline deadline);
/// Whether all of it was taken by the deadline.
bool write_line(const Fd& connection, const std::string& line, Deadline deadline);

}  // namespace troupe::rtrun
