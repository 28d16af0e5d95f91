#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/layout.hpp"

namespace troupe {

/// The ranks that do no update in a step in which rank r takes rows[r], in rank order: those that take less than half
/// of the mean. Such a slow processor is often limited by a quota, which may be used up just when the others wait for
/// its stripe. Where the others can access the stripe, they update it faster themselves.
std::vector<Rank> relieved_of(std::span<const std::uint32_t> rows);

/// The part of `part`, which is one bucket's part of a stripe, that `rank` updates while the `relieved` ranks (in rank
/// order, fewer than `ranks`) update nothing. The owner updates all of its part; a relieved owner's part is divided
/// equally, in whole cache lines. Each element is updated by exactly one rank; count 0: nothing.
Stripe piece_of(const Stripe& part, Rank rank, std::size_t ranks, std::span<const Rank> relieved) noexcept;

}  // namespace troupe
