#pragma once

#include <cstddef>
#include <cstdint>

#include <caf/actor_system_config.hpp>

namespace troupe {

/// The actor system of one rank: `workers` threads, and every message of a training job.
class SystemConfig final : public caf::actor_system_config {
 public:
  explicit SystemConfig(std::size_t workers);
};

/// The hash of its message table, which peers compare in the hello.
std::uint64_t training_messages_hash();

}  // namespace troupe
