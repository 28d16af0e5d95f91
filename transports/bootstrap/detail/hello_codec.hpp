#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transports/bootstrap/bootstrap.hpp"

namespace troupe::bootstrap {

/// Hello as it travels, with what the launcher said of the job.
struct WireHello {
  Hello hello;
  std::uint32_t world_size = 0;
};

constexpr std::size_t kMaxHelloBytes = 1 << 20;

/// Cap'n Proto bytes, at most kMaxHelloBytes. Throws Error{invalid} when the topology is larger than that.
std::vector<std::byte> encode(const WireHello& hello);
/// Throws Error{corrupt} for bytes that are no hello.
WireHello decode_hello(std::span<const std::byte> bytes);

/// What keeps two processes out of one job, each difference with both values; empty when they fit.
std::string differences(const WireHello& mine, const WireHello& theirs);

}  // namespace troupe::bootstrap
