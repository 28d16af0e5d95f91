#pragma once

#include "runtime/config/detail/schema.hpp"

// The rows of the schema, by section of app.toml, in order.
namespace troupe::detail {

Keys cluster_keys();
Keys data_keys();
Keys model_keys();
Keys optimizer_keys();
/// The keys in optimizer.rate's table.
Keys rate_keys();
Keys train_keys();
/// Also searched by itself, because groups and switches take these keys.
const Keys& update_keys();
Keys placement_keys();
Keys evaluate_keys();
Keys checkpoint_keys();
Keys report_keys();
Keys faults_keys();

}  // namespace troupe::detail
