#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "apps/report/run_record.hpp"

namespace troupe::report {

/// A run as one HTML page: it loads nothing, needs no script, and is light or dark as the reader's system. The page of
/// a running run asks the browser to reload it every ten seconds.
std::string page_of(const RunRecord& record);

/// Changes the page of a run that was running, or had failed, to one that ends with `reason`; for the process that is
/// left to report it. Nothing if `page` is not such a page.
std::optional<std::string> failed_page(std::string_view page, const std::string& reason);

}  // namespace troupe::report
