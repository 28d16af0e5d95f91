#pragma once

#include <cstddef>

namespace troupe::testing {

/// The largest block that operator new was asked for since reset_largest_allocation(). A program that links
/// allocation_watch.cpp has its operator new replaced.
std::size_t largest_allocation() noexcept;
void reset_largest_allocation() noexcept;

}  // namespace troupe::testing
