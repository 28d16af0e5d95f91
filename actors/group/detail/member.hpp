#pragma once

#include <caf/node_id.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::group {

/// What a process sends to the others when it joins (runtime/wire/member.capnp).
struct Member {
  std::vector<std::byte> transport;
  std::vector<std::byte> actor_node;
  std::uint64_t broadcaster = 0;
  std::uint64_t agent = 0;
  std::vector<std::byte> arena;
};

std::vector<std::byte> encode(const Member& member);
/// Throws Error{corrupt} if the bytes were not made by encode().
Member decode_member(std::span<const std::byte> bytes);

}  // namespace troupe::group
