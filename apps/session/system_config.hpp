#pragma once

#include <cstddef>

#include <caf/actor_system_config.hpp>

namespace troupe {

/// The actor system of one rank: `workers` threads, and all message types of a training job.
class SystemConfig final : public caf::actor_system_config {
 public:
  explicit SystemConfig(std::size_t workers);
};

/// Throws Error{invalid} unless configure_session() was called for it.
void check_knows_sessions(const caf::actor_system_config& config);

}  // namespace troupe
