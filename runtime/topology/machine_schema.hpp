#pragma once

#include <string>

namespace troupe::topology {

/// The JSON Schema (draft 2020-12) of what to_json() writes, and of what `rttopo show --json` adds to it.
std::string json_schema();

}  // namespace troupe::topology
