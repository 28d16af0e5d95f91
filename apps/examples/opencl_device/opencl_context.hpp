#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "opencl_api.hpp"

namespace opencl {

/// The first suitable device of this machine, and the program of its kernels, built.
class Context {
 public:
  /// Throws Error{unsupported} that says what each device lacks, Error{device_fault} with the compiler's log.
  Context();
  cl_context context() const noexcept { return context_.get(); }
  cl_device_id device() const noexcept { return device_; }
  std::uint32_t compute_units() const noexcept { return compute_units_; }
  const std::string& description() const noexcept { return description_; }
  OwnedQueue make_queue() const;
  OwnedKernel make_kernel(const char* name) const;
  /// The device's own memory.
  OwnedBuffer make_buffer(std::uint64_t size_bytes) const;
  /// `host` as a buffer; if the device shares memory with the host, it is the same memory.
  OwnedBuffer make_window(void* host, std::uint64_t size_bytes) const;

 private:
  void choose_device();
  void build_program();

  cl_device_id device_ = nullptr;
  std::uint32_t compute_units_ = 0;
  std::string description_;
  OwnedContext context_;
  OwnedProgram program_;
};

/// The text of kernels/*.cl, inserted by the build.
extern const std::array<const char*, 5> kKernelSources;

}  // namespace opencl
