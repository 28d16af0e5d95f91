#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "runtime/stream.hpp"

namespace troupe::fake {

/// A stripe's memory as pointers; null where there is none.
struct StripePointers {
  std::uint64_t count = 0;  // elements
  float* parameters = nullptr;
  std::uint16_t* half = nullptr;
  std::array<float*, kMaxStateSlots> state{};
  std::size_t slots = 0;
  std::byte* journal = nullptr;
};

/// Stream::update as plain loops, restartable as it says there, in the journal's common form. Ends after `elements`
/// updated elements of this call, as if the process were killed there: returns false then, true when the pass is
/// complete.
bool update_pass(const RuleStep& rule, std::uint64_t number, const StripePointers& stripe,
                 std::span<const float* const> contributions, const StepSums& total, std::uint64_t elements);

}  // namespace troupe::fake
