#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "apps/report/run_record.hpp"

namespace troupe::report {

/// A run as one HTML page: nothing is loaded from anywhere, no script is needed, light or dark as the reader's system
/// is. A page of a run under way asks the browser to look again every ten seconds.
std::string page_of(const RunRecord& record);

/// The page of a run that was under way, or had failed, with `reason` as its end: for whoever is left to tell. Nothing
/// when `page` is none of those.
std::optional<std::string> failed_page(std::string_view page, const std::string& reason);

}  // namespace troupe::report
