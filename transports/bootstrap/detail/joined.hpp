#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "transports/bootstrap/bootstrap.hpp"
#include "transports/bootstrap/detail/connection.hpp"
#include "transports/bootstrap/detail/hello_codec.hpp"

namespace troupe::bootstrap {

/// How long the last messages may take to arrive.
constexpr std::chrono::milliseconds kParting{300};
/// Rank 0 knows the missing ranks: the others wait this long after their deadline for its message.
constexpr std::chrono::milliseconds kGrace{250};
constexpr std::chrono::seconds kNoteEvery{5};

/// A complete job.
struct Joined {
  std::vector<Hello> hellos;                       // by rank
  std::vector<std::unique_ptr<Connection>> links;  // by rank: rank 0 has one to every other, the others only to rank 0
};

/// The arguments of a join.
struct JoinRequest {
  const LaunchPlace& place;
  WireHello mine;
  Deadline deadline;
  const std::function<void(const std::string&)>& waiting;  // may be empty

  void note(const std::string& text) const {
    if (waiting) waiting(text);
  }
};

/// On rank 0: listens until every rank has joined.
Joined wait_for_others(Blocking& blocking, const JoinRequest& request);
/// On every other rank: connects to rank 0, which may start later.
Joined join_rank_zero(Blocking& blocking, const JoinRequest& request);

/// Returns "rank 2 (pid 4711 on node7)".
std::string describe(const Hello& hello);
/// Returns "rank 3", "ranks 1, 3-7"; `ranks` must be ascending and not empty.
std::string list_ranks(const std::vector<std::uint32_t>& ranks);

}  // namespace troupe::bootstrap
