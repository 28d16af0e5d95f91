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

/// A request of `rtrun control` to a run. It is sent as one line of plain letters: `words`, separated by spaces.
struct ControlRequest {
  enum class Kind : std::uint8_t { switch_policy, rebuild, stop, describe, machines };
  Kind kind = Kind::describe;
  PolicySettings policy;  // for switch_policy
};

/// The answer of a run, as one line: "ok " or "no ", and `text` with \n and \\ for line ends and backslashes.
struct ControlAnswer {
  bool done = false;
  std::string text;
};

/// The maximum size of a request's line, and of an answer's.
inline constexpr std::size_t kRequestBytes = 1024;
inline constexpr std::size_t kAnswerBytes = std::size_t{64} << 20;  // descriptions of machines for some hundred nodes

/// Throws Error{invalid} unless the line is "switch POLICY [key=value ...]", "rebuild", "stop", "describe" or
/// "machines".
ControlRequest parse_control_request(std::string_view line);
std::string to_line(const ControlAnswer& answer);
/// Throws Error{corrupt} for a line that to_line does not make.
ControlAnswer parse_control_answer(std::string_view line);

/// The address of the socket of the run that writes to `folder`: a name, made of the folder's numbers on its file
/// system, that the kernel keeps as long as a process listens there. It is not in the file system. Throws
/// Error{environment} if the folder cannot be examined.
std::string control_address(const std::string& folder);
/// Listens on that address. Throws Error{environment} if another process does already.
Fd listen_for_control(const std::string& folder);
/// Whether the process at the other end of a connection belongs to this user or to root.
bool is_same_user(const Fd& connection);

/// Sends a request to the run that writes to `folder`. Without an answer by the deadline, or if the run ends before,
/// the request was not carried out. Throws Error{invalid} for words that are not a request, Error{environment} if no
/// run of this user listens there.
ControlAnswer ask_run(Blocking& blocking, const std::string& folder, const std::vector<std::string>& words,
                      Deadline deadline);

/// Reads up to a line end, which is removed, or until the other end closes. Returns false if the deadline passes, or if
/// there are more than `most` bytes.
bool read_line(const Fd& connection, std::string& line, std::size_t most, Deadline deadline);
/// Returns whether the whole line was sent by the deadline.
bool write_line(const Fd& connection, const std::string& line, Deadline deadline);

}  // namespace troupe::rtrun
