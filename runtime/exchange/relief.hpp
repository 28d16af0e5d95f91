#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/layout.hpp"

namespace troupe {

/// Ranks that do no update in a step whose ranks take `rows`, in rank order: those that take less than half of the
/// mean. A processor that is so much slower is often one that is held back by a quota, whose turn may be over just when
/// the others wait for its stripe; they update it faster themselves, where they can reach it.
std::vector<Rank> relieved_of(std::span<const std::uint32_t> rows);

/// What `rank` updates of `part`, which is one bucket's part of a stripe, while `relieved` (in rank order, fewer than
/// `ranks`) do nothing: all of it as its tenant; of a relieved tenant's an equal piece, in whole cache lines. Over all
/// ranks each element comes once; count 0: nothing.
Stripe piece_of(const Stripe& part, Rank rank, std::size_t ranks, std::span<const Rank> relieved) noexcept;

}  // namespace troupe
