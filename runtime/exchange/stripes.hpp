#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/layout.hpp"

namespace troupe {

/// The share of a group that each owner of a stripe takes when bandwidth bounds an exchange: w, sum w = 1, that makes
/// max over i of (1 + (n - 2) w_i) / bandwidth_i smallest. An owner sends its own parts of the other stripes and
/// exchanges its stripe with all others. Where the slowest one sets the time whatever the rest do, and so leaves a
/// choice, every owner gets a share in proportion to what it could take in that time. Two owners move the same bytes
/// with any shares and get them in proportion to their bandwidth. Throws Error{invalid} for none, and for bandwidths
/// that are not positive numbers. Source: hivemind's load balancing, whose linear program this solves exactly.
std::vector<double> bandwidth_shares(std::span<const double> bandwidth);

/// Cuts `count_elements` into one stripe a share, in rank order, as near to the shares (which add up to 1) as whole
/// blocks of 1,024 elements allow; a small share may get nothing.
std::vector<Stripe> shared_stripes(GroupId group, std::uint64_t count_elements, std::span<const double> shares);

}  // namespace troupe
