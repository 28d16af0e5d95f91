#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "devices/cuda/driver_api.hpp"
#include "devices/cuda/kernels/list.hpp"
#include "runtime/base/error.hpp"

namespace troupe::cuda {

/// The kernels by number, in the order of list.hpp.
enum class KernelId : std::uint32_t {
#define TROUPE_KERNEL_ID(name, Args) name,
  TROUPE_CUDA_KERNELS(TROUPE_KERNEL_ID)
#undef TROUPE_KERNEL_ID
      count
};
/// The kernel whose arguments `Args` are.
template <class Args>
inline constexpr KernelId kKernelOf = KernelId::count;
#define TROUPE_KERNEL_OF(name, Args) \
  template <>                        \
  inline constexpr KernelId kKernelOf<Args> = KernelId::name;
TROUPE_CUDA_KERNELS(TROUPE_KERNEL_OF)
#undef TROUPE_KERNEL_OF

/// An error of the code that `result` stands for, with what was tried and what to do.
Status failed_call(const Driver& driver, Result result, const std::string& what);
/// Throws it.
[[noreturn]] void fail_call(const Driver& driver, Result result, const std::string& what);
Code code_of(Result result) noexcept;
/// The file by which processes reach the driver.
inline constexpr const char* kControlFile = "/dev/nvidiactl";
/// What to do where this process has no permission to open `file`; empty: it has, or there is no such file.
std::string why_closed(const char* file);
/// CUDA_ERROR_OUT_OF_MEMORY (out of memory).
std::string name_of_result(const Driver& driver, Result result);

/// One GPU as the driver gives it to this process: its context and kernels. Shared by everything that has a handle of
/// it. Threads: any.
class Gpu {
 public:
  /// Throws Error{unsupported} for a GPU that cannot be used, Error{environment} for one that may not be, with what to
  /// do.
  Gpu(const Driver& driver, int ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const Driver& driver() const noexcept { return driver_; }
  /// Makes the calling thread's calls go to this GPU.
  void use() const;
  Function function(KernelId id) const noexcept { return functions_[static_cast<std::size_t>(id)]; }
  std::uint32_t processors() const noexcept { return processors_; }
  /// The driver's name for this model of GPU.
  const std::string& model() const noexcept { return model_; }
  /// For messages: model and PCI bus id.
  const std::string& name() const noexcept { return name_; }
  const std::string& description() const noexcept { return description_; }
  const Uuid& uuid() const noexcept { return uuid_; }
  Context context() const noexcept { return context_; }
  DeviceId device() const noexcept { return device_; }
  /// 90: compute capability 9.0.
  int capability() const noexcept { return capability_; }
  /// Whether its processors compute bf16 by themselves.
  bool has_bf16() const noexcept { return capability_ >= 80; }

 private:
  void describe();
  void load_kernels();

  const Driver driver_;
  DeviceId device_ = 0;
  Context context_ = nullptr;
  Module module_ = nullptr;
  std::array<Function, static_cast<std::size_t>(KernelId::count)> functions_{};
  std::uint32_t processors_ = 0;
  int capability_ = 0;  // 10 * major + minor
  std::string model_;
  std::string name_;
  std::string description_;
  Uuid uuid_{};
};

/// Memory of the GPU. Whoever ends it knows that no work uses it any more.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Filled with zeros, or, if `clears` is false, uninitialized. Throws Error{out_of_memory}, whose text says how much
  /// is free.
  DeviceMemory(std::shared_ptr<const Gpu> gpu, std::uint64_t size_bytes, bool clears = true);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    swap(other);
    return *this;
  }

  std::byte* at() const noexcept { return at_; }
  template <class T>
  T* as(std::uint64_t offset = 0) const noexcept {
    return reinterpret_cast<T*>(at_ + offset);
  }
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }

 private:
  void swap(DeviceMemory& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(at_, other.at_);
    std::swap(size_bytes_, other.size_bytes_);
  }
  std::shared_ptr<const Gpu> gpu_;
  std::byte* at_ = nullptr;
  std::uint64_t size_bytes_ = 0;
};

/// Memory of the host, of zeros, that GPUs reach at the same address.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(std::shared_ptr<const Gpu> gpu, std::uint64_t size_bytes);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept { swap(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    swap(other);
    return *this;
  }

  template <class T>
  T* as(std::uint64_t offset = 0) const noexcept {
    return reinterpret_cast<T*>(at_ + offset);
  }

 private:
  void swap(PinnedMemory& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(at_, other.at_);
  }
  std::shared_ptr<const Gpu> gpu_;
  std::byte* at_ = nullptr;
};

/// A pool of the GPU's memory for small allocations of one stream, which allocates and frees in stream order, so that
/// neither waits for work. Other processes cannot import this memory.
class StreamMemory {
 public:
  explicit StreamMemory(std::shared_ptr<const Gpu> gpu);
  /// Before this, all of its memory was given back, and the streams that gave it back have ended.
  ~StreamMemory();
  StreamMemory(const StreamMemory&) = delete;
  StreamMemory& operator=(const StreamMemory&) = delete;

  /// Memory for work that is enqueued on `stream` from here on; not initialized. Throws Error{out_of_memory}.
  std::byte* take(StreamHandle stream, std::uint64_t size_bytes);
  /// Frees it after all work that is enqueued on `stream` so far. Without a pool the caller may wait for that work.
  void give_back(StreamHandle stream, std::byte* at) noexcept;

 private:
  std::shared_ptr<const Gpu> gpu_;
  MemoryPool pool_ = nullptr;  // null: the driver has none for this GPU
};

}  // namespace troupe::cuda

/// For calls of the driver: throws as fail_call when one does not succeed.
#define TROUPE_CUDA(driver, call, ...)                                                                                \
  do {                                                                                                                \
    if (const ::troupe::cuda::Result troupe_result = (driver).call; troupe_result != ::troupe::cuda::Result::success) \
      ::troupe::cuda::fail_call(driver, troupe_result, ::troupe::text(__VA_ARGS__));                                  \
  } while (false)
