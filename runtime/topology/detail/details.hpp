#pragma once

#include <string>
#include <string_view>

#include "runtime/topology/machine.hpp"

namespace troupe::topology::detail {

/// What `whole` has and `seen` lacks, which another format made of it, as JSON of one line; "" when they are equal.
std::string details_json(const Machine& whole, const Machine& seen);
/// Makes `whole` of `seen` again. Throws Error{invalid} with `source` in front.
void apply_details(Machine& seen, std::string_view json, std::string_view source);

}  // namespace troupe::topology::detail
