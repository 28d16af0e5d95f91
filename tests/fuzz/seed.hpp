#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "runtime/base/clock.hpp"

namespace troupe::testing {

/// What a fuzzer's dice start with: TROUPE_FUZZ_SEED, or 1. Says so, since a failure is repeated by it.
inline std::uint32_t chosen_seed() {
  const char* const text = std::getenv("TROUPE_FUZZ_SEED");
  const std::uint32_t seed = text == nullptr ? 1U : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
  std::cout << "seed " << seed << " (TROUPE_FUZZ_SEED sets it)\n";
  return seed;
}

/// How long a fuzzer goes on: for `span`, or TROUPE_FUZZ_MS milliseconds, and then until it has met every kind of
/// answer, since a busy machine gives few of them in that time; 20 s longer at most.
class FuzzTime {
 public:
  explicit FuzzTime(std::chrono::milliseconds span) : span_(asked_or(span)) {}
  bool goes_on(bool met_all) const noexcept { return !end_.passed() || (!met_all && !latest_.passed()); }

 private:
  static std::chrono::milliseconds asked_or(std::chrono::milliseconds span) {
    const char* const text = std::getenv("TROUPE_FUZZ_MS");
    return text == nullptr ? span : std::chrono::milliseconds{std::atol(text)};
  }
  const std::chrono::milliseconds span_;
  const Deadline end_ = Deadline::after(span_), latest_ = Deadline::after(span_ + std::chrono::seconds{20});
};

}  // namespace troupe::testing
