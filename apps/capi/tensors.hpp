#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::capi {

/// A description of memory that is somebody else's, row-major on the host; freed by its deleter.
DLManagedTensor* borrow(const void* data, DLDataType type, const std::vector<std::int64_t>& extents);

/// The numbers of a tensor that an app handed in. Throws Error{invalid} naming `what` when it is not f32, not on the
/// host, not of these extents, or not contiguous.
std::span<const float> numbers_of(const DLManagedTensor* tensor, const std::vector<std::uint64_t>& extents,
                                  const char* what);

}  // namespace troupe::capi
