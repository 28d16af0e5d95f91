#pragma once

#include <cstdint>

#include "runtime/model/graph.hpp"

namespace troupe::detail {

/// What a replica on a GPU takes of its memory besides parameters and gradients, in bytes.
struct GpuReplicaBytes {
  std::uint64_t activations = 0;  // outputs of all layers, which are kept, what layers keep beside them, gradients
  std::uint64_t products = 0;     // for products by own kernels, in parts
  std::uint64_t library = 0;      // for products by cuBLASLt: its workspace, where gradients to weights land, masks
  /// For layers by cuDNN, at most: by how much they make the workspace larger, and what they keep. What its plans need,
  /// only a GPU tells.
  std::uint64_t dnn = 0;
};
/// Over `rows` rows. From the graph alone, so that all ranks get the same: GPUs with fewer processors than those of
/// today, or of a compute capability below 9.0, need some MiB less. A test compares it with what the device takes.
GpuReplicaBytes gpu_replica_bytes(const Graph& graph, std::uint32_t rows);

/// Whether a convolution is one product of matrices on a GPU, which a library can compute.
bool is_one_product(const Conv2d& conv) noexcept;

/// What NCCL takes for one communicator of so many ranks, as far as it is documented: the buffer to each other rank
/// (NCCL_BUFFSIZE).
std::uint64_t nccl_buffer_bytes(std::uint32_t ranks) noexcept;

}  // namespace troupe::detail
