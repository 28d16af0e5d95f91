#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>

namespace troupe::testing {

/// What a fuzzer's dice start with: TROUPE_FUZZ_SEED, or 1. Says so, since a failure is repeated by it.
inline std::uint32_t chosen_seed() {
  const char* const text = std::getenv("TROUPE_FUZZ_SEED");
  const std::uint32_t seed = text == nullptr ? 1U : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
  std::cout << "seed " << seed << " (TROUPE_FUZZ_SEED sets it)\n";
  return seed;
}

}  // namespace troupe::testing
