#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/layout.hpp"

namespace troupe {

/// The share of a group for each owner of a stripe when bandwidth limits an exchange: the w with sum w = 1 for which
/// max over i of (1 + (n - 2) w_i) / bandwidth_i is smallest. An owner sends its parts of the other stripes, and
/// exchanges its own stripe with all others. If the slowest owner sets the time whatever the shares, there are many
/// solutions; then each owner gets a share in proportion to what it can exchange in that time. Two owners move the same
/// bytes with any shares, and get them in proportion to their bandwidth. Throws Error{invalid} for no owners, and for
/// bandwidths that are not positive. Source: hivemind's load balancing, whose linear program this solves exactly.
std::vector<double> bandwidth_shares(std::span<const double> bandwidth);

/// Cuts `count_elements` into one stripe per share, in rank order, as close to the shares (whose sum is 1) as whole
/// blocks of 1,024 elements allow; a small share may get no elements.
std::vector<Stripe> shared_stripes(GroupId group, std::uint64_t count_elements, std::span<const double> shares);

}  // namespace troupe
