#pragma once

#include <string>

namespace troupe::detail {

/// "1.2 GB": in powers of ten.
std::string scaled(double number, const char* unit);

}  // namespace troupe::detail
