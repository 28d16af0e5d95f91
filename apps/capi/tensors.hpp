#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::capi {

/// A description of memory that belongs to somebody else, row-major on the host; its deleter frees only the
/// description.
DLManagedTensor* borrow(const void* data, DLDataType type, const std::vector<std::int64_t>& extents);

/// The elements of a tensor that an app has passed in. Throws Error{invalid} naming `what` if it is not f32, not in
/// host memory, does not have these extents, or is not contiguous.
/// host, not of these extents, or not contiguous.
std::span<const float> numbers_of(const DLManagedTensor* tensor, const std::vector<std::uint64_t>& extents,
                                  const char* what);

}  // namespace troupe::capi
