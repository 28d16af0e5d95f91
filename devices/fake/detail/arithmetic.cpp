#include "devices/fake/detail/arithmetic.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace troupe::fake {
namespace {

constexpr std::uint64_t kBlock = UpdateJournal::kBlockElements;

/// The parts of an undo block: parameters, then each state slot, kBlock elements apart.
float* undo_block(const StripePointers& stripe, std::uint64_t block) noexcept {
  auto* blocks = reinterpret_cast<float*>(stripe.journal + sizeof(UpdateJournal));
  return blocks + (block % 2) * kBlock * (1 + stripe.slots);
}

struct Range {
  std::uint64_t first;
  std::uint64_t count;
};
Range range_of(const StripePointers& stripe, std::uint64_t block) noexcept {
  return {block * kBlock, std::min(kBlock, stripe.count - block * kBlock)};
}

void save(const StripePointers& stripe, std::uint64_t block) noexcept {
  const Range range = range_of(stripe, block);
  float* undo = undo_block(stripe, block);
  std::memcpy(undo, stripe.parameters + range.first, range.count * sizeof(float));
  for (std::size_t s = 0; s < stripe.slots; ++s) {
    std::memcpy(undo + (s + 1) * kBlock, stripe.state[s] + range.first, range.count * sizeof(float));
  }
}

void restore(const StripePointers& stripe, std::uint64_t block) noexcept {
  const Range range = range_of(stripe, block);
  const float* undo = undo_block(stripe, block);
  std::memcpy(stripe.parameters + range.first, undo, range.count * sizeof(float));
  for (std::size_t s = 0; s < stripe.slots; ++s) {
    std::memcpy(stripe.state[s] + range.first, undo + (s + 1) * kBlock, range.count * sizeof(float));
  }
}

template <RuleKind kKind>
void update_range(const RuleStep& rule, float scale, const StripePointers& stripe,
                  std::span<const float* const> contributions, Range range) noexcept {
  for (std::uint64_t i = range.first; i < range.first + range.count; ++i) {
    float sum = contributions[0][i];
    for (std::size_t c = 1; c < contributions.size(); ++c) sum += contributions[c][i];
    float none = 0;
    update_element<kKind>(rule, scale, sum, stripe.parameters[i], stripe.slots > 0 ? stripe.state[0][i] : none,
                          stripe.slots > 1 ? stripe.state[1][i] : none);
    if (stripe.half != nullptr) stripe.half[i] = to_bf16(stripe.parameters[i]);
  }
}

void update_range(const RuleStep& rule, float scale, const StripePointers& stripe,
                  std::span<const float* const> contributions, Range range) noexcept {
  switch (rule.kind) {
    case RuleKind::sgd: return update_range<RuleKind::sgd>(rule, scale, stripe, contributions, range);
    case RuleKind::momentum: return update_range<RuleKind::momentum>(rule, scale, stripe, contributions, range);
    case RuleKind::nesterov: return update_range<RuleKind::nesterov>(rule, scale, stripe, contributions, range);
    case RuleKind::adam: return update_range<RuleKind::adam>(rule, scale, stripe, contributions, range);
    case RuleKind::adamw: return update_range<RuleKind::adamw>(rule, scale, stripe, contributions, range);
  }
}

}  // namespace

bool update_pass(const RuleStep& rule, std::uint64_t number, const StripePointers& stripe,
                 std::span<const float* const> contributions, const StepSums& total, std::uint64_t elements) {
  if (total.samples == 0 || contributions.empty()) return true;
  const float scale = static_cast<float>(1.0 / static_cast<double>(total.samples));
  const std::uint64_t blocks = (stripe.count + kBlock - 1) / kBlock;
  std::uint64_t block = 0;
  std::uint64_t* word =
      stripe.journal == nullptr ? nullptr : &reinterpret_cast<UpdateJournal*>(stripe.journal)->progress;
  if (word != nullptr) {
    const std::uint64_t progress = std::atomic_ref{*word}.load(std::memory_order_acquire);
    if (progress >> 24 == number && (progress & 0xff'ffff) > 0) {
      block = (progress & 0xff'ffff) - 1;
      if (block < blocks) restore(stripe, block);
    }
  }
  for (; block < blocks; ++block) {
    if (word != nullptr) {
      save(stripe, block);
      std::atomic_ref{*word}.store(number << 24 | (block + 1), std::memory_order_release);
    }
    const Range whole = range_of(stripe, block);
    const Range part{whole.first, std::min(whole.count, elements)};
    update_range(rule, scale, stripe, contributions, part);
    if (part.count < whole.count) return false;
    elements -= part.count;
  }
  if (word != nullptr) std::atomic_ref{*word}.store(number << 24 | (blocks + 1), std::memory_order_release);
  return elements > 0;
}

}  // namespace troupe::fake
