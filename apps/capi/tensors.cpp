#include "apps/capi/tensors.hpp"

#include <algorithm>
#include <memory>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"

namespace troupe::capi {
namespace {

struct Borrowed {
  DLManagedTensor tensor{};
  std::vector<std::int64_t> extents;
};

void free_borrowed(DLManagedTensor* tensor) { delete static_cast<Borrowed*>(tensor->manager_ctx); }

/// Whether elements are in row-major order without gaps; a tensor without strides is.
bool is_contiguous(const DLTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (int axis = tensor.ndim; axis-- > 0;) {
    if (tensor.shape[axis] != 1 && tensor.strides[axis] != expected) return false;
    expected *= tensor.shape[axis];
  }
  return true;
}

}  // namespace

DLManagedTensor* borrow(const void* data, DLDataType type, const std::vector<std::int64_t>& extents) {
  auto borrowed = std::make_unique<Borrowed>();
  borrowed->extents = extents;
  DLTensor& tensor = borrowed->tensor.dl_tensor;
  tensor.data = const_cast<void*>(data);  // DLPack has only non-const pointers
  tensor.device = {kDLCPU, 0};
  tensor.ndim = static_cast<int>(extents.size());
  tensor.dtype = type;
  tensor.shape = borrowed->extents.data();
  borrowed->tensor.manager_ctx = borrowed.get();
  borrowed->tensor.deleter = free_borrowed;
  return &borrowed.release()->tensor;
}

std::span<const float> numbers_of(const DLManagedTensor* managed, const std::vector<std::uint64_t>& extents,
                                  const char* what) {
  TROUPE_CHECK(managed != nullptr, Code::invalid, "the tensor for ", what, " is NULL");
  const DLTensor& tensor = managed->dl_tensor;
  TROUPE_CHECK(tensor.device.device_type == kDLCPU || tensor.device.device_type == kDLCUDAHost, Code::invalid,
               "the tensor for ", what, " is not in the memory of the host (DLPack device ",
               static_cast<int>(tensor.device.device_type), "); copy it there first");
  TROUPE_CHECK(tensor.dtype.code == kDLFloat && tensor.dtype.bits == 32 && tensor.dtype.lanes == 1, Code::invalid,
               "the tensor for ", what, " has DLPack type code ", int{tensor.dtype.code}, " with ",
               int{tensor.dtype.bits}, " bits and ", tensor.dtype.lanes,
               " lanes; f32 is needed (code 2, 32 bits, 1 lane)");
  TROUPE_CHECK(tensor.shape != nullptr || tensor.ndim == 0, Code::invalid, "the tensor for ", what, " has ",
               tensor.ndim, " axes and no shape; it needs the extent of each axis");
  const bool same = tensor.ndim == static_cast<int>(extents.size()) &&
                    std::equal(extents.begin(), extents.end(), tensor.shape,
                               [](std::uint64_t a, std::int64_t b) { return static_cast<std::int64_t>(a) == b; });
  TROUPE_CHECK(same, Code::invalid, "the tensor for ", what, " does not have the extents [", joined(extents), "]");
  TROUPE_CHECK(is_contiguous(tensor), Code::invalid, "the tensor for ", what,
               " is not contiguous; make a row-major copy first");
  TROUPE_CHECK(tensor.data != nullptr, Code::invalid, "the tensor for ", what, " has no data");
  std::uint64_t count = 1;
  for (const std::uint64_t extent : extents) count *= extent;
  const auto* first = static_cast<const std::byte*>(tensor.data) + tensor.byte_offset;
  return {reinterpret_cast<const float*>(first), count};
}

}  // namespace troupe::capi
