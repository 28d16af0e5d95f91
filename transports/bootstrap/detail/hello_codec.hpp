#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transports/bootstrap/bootstrap.hpp"

namespace troupe::bootstrap {

/// A Hello with what the launcher gave for the job, as it is sent.
struct WireHello {
  Hello hello;
  std::uint32_t world_size = 0;
};

constexpr std::size_t kMaxHelloBytes = 1 << 20;

/// Cap'n Proto bytes, at most kMaxHelloBytes. Throws Error{invalid} if the topology is too large for that.
std::vector<std::byte> encode(const WireHello& hello);
/// Throws Error{corrupt} if the bytes are not a hello.
WireHello decode_hello(std::span<const std::byte> bytes);

/// The differences because of which two processes cannot be in one job, each with both values; empty: there are none.
std::string differences(const WireHello& mine, const WireHello& theirs);

}  // namespace troupe::bootstrap
