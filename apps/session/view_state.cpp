#include "apps/session/view_state.hpp"

#include <algorithm>

namespace troupe {
namespace {

/// The memory of a rank's groups beside the parameters, always in the same order: the rule's state, of its stripes or
/// whole, the outer momentum, and the residuals of compression.
std::vector<Memory> places_of(const Plan& plan, const RankMemory& memory) {
  std::vector<Memory> all;
  const auto add = [&](const Memory& part) {
    if (part.size_bytes != 0) all.push_back(part);
  };
  for (const GroupPlan& group : plan.groups) {
    const GroupMemory& m = memory.groups[group.id.value];
    for (std::size_t slot = 0; slot < state_slots(group); ++slot) {
      if (m.own.state[slot].size_bytes != 0) {
        add(m.own.state[slot]);
      } else {
        for (const StripeMemory& part : m.stripes) add(part.state[slot]);
      }
    }
    for (const StripeMemory& part : m.own.outer) add(part.state[0]);
    add(m.own.residual);
  }
  add(memory.replica.loss_scale);
  return all;
}

std::vector<std::byte> copy_of(HostCopies& copies, const Memory& from) {
  std::vector<std::byte> bytes;
  bytes.reserve(from.size_bytes);
  copies.read(from, [&](std::span<const std::byte> some) { bytes.insert(bytes.end(), some.begin(), some.end()); });
  return bytes;
}

}  // namespace

KeptMemory::KeptMemory(HostCopies& copies, const Plan& plan, const RankMemory& memory, bool holds_parameters) {
  if (holds_parameters) parameters_ = copy_of(copies, memory.parameters);
  for (const Memory& place : places_of(plan, memory)) parts_.push_back(copy_of(copies, place));
}

void KeptMemory::restore(HostCopies& copies, const Plan& plan, const RankMemory& memory) const {
  const std::vector<Memory> places = places_of(plan, memory);
  const auto fits = [](const std::vector<std::byte>& part, const Memory& place) {
    return part.size() == place.size_bytes;
  };
  TROUPE_CHECK(std::equal(parts_.begin(), parts_.end(), places.begin(), places.end(), fits), Code::unsupported,
               "the next view keeps its state in other places than the one before: ", places.size(),
               " where there were ", parts_.size());
  for (std::size_t i = 0; i < places.size(); ++i)
    copies.write(places[i],
                 [&](std::span<std::byte> to) { std::copy(parts_[i].begin(), parts_[i].end(), to.begin()); });
}

}  // namespace troupe
