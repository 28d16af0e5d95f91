#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "tests/actors/group/group_world.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe::test {

/// Joins a group over UCX ("shm" or "tcp") as a process of its own and publishes a counter. `dead`: after this silence
/// a peer counts as dead, if it is not the default.
std::unique_ptr<GroupEnd> join_over_ucx(Blocking& blocking, LaunchPlace place, const std::string& means,
                                        Bootstrap::Lost lost = {}, std::optional<std::chrono::milliseconds> dead = {});

/// The life of a member that this program was started as by `--member MEANS`, its place in the environment: it serves
/// until its counter ends, then stops. 0 when nobody had to be waited for in vain.
std::optional<int> run_as_member(int argc, char** argv);

}  // namespace troupe::test
