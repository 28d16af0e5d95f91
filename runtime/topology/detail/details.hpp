#pragma once

#include <string>
#include <string_view>

#include "runtime/topology/machine.hpp"

namespace troupe::topology::detail {

/// The data in `whole` that is lost in `seen`, a copy made by way of another format, as JSON on one line; "" if equal.
std::string details_json(const Machine& whole, const Machine& seen);
/// Makes `seen` equal to `whole` again. Throws Error{invalid}; the text begins with `source`.
void apply_details(Machine& seen, std::string_view json, std::string_view source);

}  // namespace troupe::topology::detail
