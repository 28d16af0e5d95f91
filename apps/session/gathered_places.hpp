#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "apps/session/checkpoint_start.hpp"
#include "runtime/memory/arena.hpp"
#include "transports/nccl/nccl_communicator.hpp"

namespace troupe {

/// What ranks send each other when each has its plan (runtime/wire/place.capnp).
struct GatheredPlace {
  std::uint64_t plan_hash = 0;
  std::uint64_t settings_hash = 0;  // Configuration::hash()
  ArenaTicket arena;
  bool device_memory = false;         // its parameters are in its device's memory
  CheckpointStart start;              // only rank 0's counts; for a view that continues from memory, its first step
  std::vector<std::uint32_t> rows{};  // rank 0's: by rank, in the first steps; empty: equal parts
  std::vector<NcclId> nccl{};         // by group, for this view; see View::nccl_leader(); empty: it makes none
};

std::vector<std::byte> encode(const GatheredPlace& place);
/// Throws Error{corrupt} if the bytes were not made by encode().
GatheredPlace decode_place(std::span<const std::byte> bytes);

}  // namespace troupe
