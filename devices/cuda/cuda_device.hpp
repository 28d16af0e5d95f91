#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/compute/device.hpp"

namespace troupe {

struct CudaDeviceOptions {
  std::uint32_t ordinal = 0;                       // which GPU, as the driver counts them
  std::string bus;                                 // its PCI bus id instead; empty: `ordinal` chooses
  std::chrono::milliseconds wait_deadline{30000};  // a wait that takes longer fails the stream with Code::timeout
  std::string driver = "libcuda.so.1";             // opened at run time
  /// What computes products of matrices. cublaslt: NVIDIA's library, which must be there; own: kernels of ours; empty:
  /// as the variable TROUPE_CUDA_PRODUCTS says, otherwise the library if there is one.
  std::string products;
  std::string cublaslt;  // its file, opened at run time; empty: libcublasLt.so.13, or .12
  /// What computes convolutions and attention. cudnn: NVIDIA's library, which must be there; own
  /// and empty: as above, by the variable TROUPE_CUDA_CONVOLUTIONS.
  std::string convolutions;
  std::string cudnn;  // its file, opened at run time; empty: libcudnn.so.9
  bool tf32 = false;  // the libraries may round f32 operands to TF32 (10 bits of the mantissa)
};

/// A GPU of NVIDIA by the driver's own interface. The work of its streams is kernels of ours, products by cuBLASLt and
/// layers by cuDNN; the description of its traits says what computes these, and why no library does. Its replicas
/// compute any graph but those that cuda_refusal() names, and refuse these with Error{unsupported} naming the layer.
/// `space` outlives the device. Throws Error{environment} where there is no GPU or none may be used, or a library that
/// must be there is not, Error{unsupported} where this build cannot use it, each with what to do.
std::unique_ptr<Device> make_cuda_device(AddressSpace& space, CudaDeviceOptions options);

/// A GPU that the driver shows to this process.
struct CudaGpu {
  std::string bus;  // PCI bus id as the kernel writes it: 0000:3b:00.0
  std::string model;
  std::uint64_t memory_bytes = 0;
  bool exclusive = false;            // takes one process only
  std::vector<std::string> reaches;  // bus ids of the others whose memory it reaches
};

/// The GPUs that a process may have.
struct CudaGpus {
  std::vector<CudaGpu> gpus;
  std::string version;     // of CUDA that the driver is for: 13.0; empty: there is no driver
  Status refusal;          // why there are none; ok: there are some
  bool is_absent = false;  // there is no driver, or no GPU at all: not worth a message
};

/// Asks the driver, if there is one, which it starts. Makes no context on a GPU, except where this build has no kernels
/// for them. Takes some tenths of a second where a driver is.
CudaGpus find_cuda_gpus(const std::string& driver = "libcuda.so.1");

/// Why the device cannot compute the graph in a job of `ranks` ranks, as its refusal says; empty: it can.
std::string cuda_refusal(const Graph& graph, std::size_t ranks);

}  // namespace troupe
