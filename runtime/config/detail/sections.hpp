#pragma once

#include "runtime/config/detail/schema.hpp"

// The rows of the schema, by sections of app.toml, in their order.
namespace troupe::detail {

Keys cluster_keys();
Keys data_and_model_keys();
Keys optimizer_keys();
/// Of optimizer.rate's table.
Keys rate_keys();
Keys train_keys();
/// Looked through by itself, too: a group and a switch take these keys.
const Keys& update_keys();
/// [placement], [evaluate], [checkpoint], [report] and [faults].
Keys other_keys();

}  // namespace troupe::detail
