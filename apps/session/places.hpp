#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "apps/session/checkpoint_start.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe {

/// What ranks tell each other once each has its plan (runtime/wire/place.capnp).
struct PlaceBlob {
  std::uint64_t plan_hash = 0;
  std::uint64_t settings_hash = 0;  // Configuration::hash()
  ArenaTicket arena;
  bool device_memory = false;         // it trains in memory of its device's own
  CheckpointStart start;              // rank 0's counts; of a view that follows another one in memory, its first step
  std::vector<std::uint32_t> rows{};  // rank 0's: by rank, of the first steps; empty: equal parts
};

std::vector<std::byte> encode(const PlaceBlob& place);
/// Throws Error{corrupt} when the bytes are none of encode().
PlaceBlob decode_place(std::span<const std::byte> bytes);

}  // namespace troupe
