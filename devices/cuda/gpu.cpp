#include "devices/cuda/gpu.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "devices/cuda/kernel_image.hpp"

namespace troupe::cuda {
namespace {

constexpr const char* kLost =
    "; the driver may have lost the GPU: its lines in the kernel's log (dmesg, NVRM: Xid) say more, nvidia-smi lists "
    "the GPUs that are left, and a restart of the machine may bring it back";

/// What to do about an error that a person can do something about.
const char* advice(Result result) noexcept {
  switch (result) {
    case Result::no_device:
      return "; nvidia-smi lists the GPUs, CUDA_VISIBLE_DEVICES may hide them, and a GPU with MIG enabled shows none "
             "before an instance is made; a container must be given /dev/nvidia*";
    case Result::device_unavailable:
      return "; another process has it in exclusive mode: end that one, or nvidia-smi -c DEFAULT; or it is lost: "
             "nvidia-smi lists the GPUs that are left";
    case Result::ecc_uncorrectable:
      return "; its memory has an error that ECC cannot correct: reset or replace the GPU";
    case Result::contained:
      return "; an error of its memory was confined to this process: start again, and reset or replace the GPU if it "
             "comes again";
    case Result::nvlink_uncorrectable:
      return "; a link between GPUs has an error: nvidia-smi nvlink -e counts them; reset the GPU";
    case Result::launch_timeout: return "; a GPU with a display ends kernels that take seconds: use a GPU without one";
    case Result::illegal_address:
      return "; a kernel used an address that is not there, which is a mistake in the program: compute-sanitizer names "
             "the kernel";
    case Result::launch_failed:
    case Result::context_is_destroyed:
    case Result::unknown: return kLost;
    case Result::operating_system:
    case Result::not_permitted:
      return "; this process may not open /dev/nvidia*: ask for access, or pass them to the container";
    case Result::system_driver_mismatch:
      return "; the driver's library and its kernel module are of different versions: restart the machine";
    case Result::system_not_ready:
      return "; the fabric manager of this machine is not running: start nvidia-fabricmanager";
    case Result::stub_library:
      return "; this libcuda.so.1 is the toolkit's, for linking, not the driver's: take its folder out of "
             "LD_LIBRARY_PATH";
    case Result::out_of_memory:
      return "; use a smaller batch, end other programs on the GPU (nvidia-smi lists them), or use a GPU with more "
             "memory";
    default: return "";
  }
}

}  // namespace

Code code_of(Result result) noexcept {
  switch (result) {
    case Result::out_of_memory: return Code::out_of_memory;
    case Result::no_device:
    case Result::device_unavailable:
    case Result::operating_system:
    case Result::not_permitted:
    case Result::system_driver_mismatch:
    case Result::system_not_ready:
    case Result::stub_library: return Code::environment;
    default: return Code::device_fault;
  }
}

std::string name_of_result(const Driver& driver, Result result) {
  const char* name = nullptr;
  const char* meaning = nullptr;
  if (driver.get_error_name(result, &name) != Result::success || name == nullptr)
    return text("CUDA error ", static_cast<unsigned>(result));
  (void)driver.get_error_string(result, &meaning);
  return meaning == nullptr ? std::string{name} : text(name, " (", meaning, ")");
}

std::string why_closed(const char* file) {
  const int opened = ::open(file, O_RDWR | O_CLOEXEC);
  if (opened >= 0) (void)::close(opened);
  if (opened >= 0 || (errno != EACCES && errno != EPERM)) return {};
  return text("; this process may not open ", file, ": ask for access, or pass it to the container");
}

/// A driver that may not open its files often says that there is no GPU.
Status failed_call(const Driver& driver, Result result, const std::string& what) {
  const std::string closed = result == Result::no_device ? why_closed(kControlFile) : std::string{};
  return {code_of(result),
          text(what, ": ", name_of_result(driver, result), closed.empty() ? std::string{advice(result)} : closed)};
}

void fail_call(const Driver& driver, Result result, const std::string& what) {
  const Status failed = failed_call(driver, result, what);
  fail(failed.code(), std::string{failed.text()});
}

Gpu::Gpu(const Driver& driver, int ordinal) : driver_(driver) {
  TROUPE_CUDA(driver_, device_get(&device_, ordinal), "GPU ", ordinal, " cannot be used");
  describe();
  TROUPE_CUDA(driver_, device_primary_ctx_retain(&context_, device_), name_, " cannot be used");
  try {
    load_kernels();
  } catch (...) {
    if (module_ != nullptr) (void)driver_.module_unload(module_);
    (void)driver_.device_primary_ctx_release(device_);
    throw;
  }
}

void Gpu::describe() {
  const auto attribute = [this](DeviceAttribute which) {
    int value = 0;
    TROUPE_CUDA(driver_, device_get_attribute(&value, which, device_), "an attribute of a GPU");
    return value;
  };
  std::array<char, 128> name{}, bus{};
  std::size_t bytes = 0;
  TROUPE_CUDA(driver_, device_get_name(name.data(), name.size() - 1, device_), "the name of a GPU");
  TROUPE_CUDA(driver_, device_get_pci_bus_id(bus.data(), bus.size() - 1, device_), "the place of a GPU");
  TROUPE_CUDA(driver_, device_total_mem(&bytes, device_), "the memory of a GPU");
  TROUPE_CUDA(driver_, device_get_uuid(&uuid_, device_), "the id of a GPU");
  processors_ = static_cast<std::uint32_t>(attribute(DeviceAttribute::multiprocessor_count));
  const int major = attribute(DeviceAttribute::compute_capability_major);
  const int minor = attribute(DeviceAttribute::compute_capability_minor);
  capability_ = 10 * major + minor;
  model_ = name.data();
  name_ = text(model_, " at ", bus.data());
  description_ =
      text(name_, ", compute capability ", major, ".", minor, ", ", bytes >> 20, " MiB, kernels ", kernel_image_name());
  TROUPE_CHECK(attribute(DeviceAttribute::compute_mode) != static_cast<int>(ComputeMode::prohibited), Code::environment,
               description_, ": its compute mode is prohibited; nvidia-smi -c DEFAULT allows processes");
  TROUPE_CHECK(attribute(DeviceAttribute::unified_addressing) != 0 &&
                   attribute(DeviceAttribute::can_use_host_pointer_for_registered_memory) != 0,
               Code::unsupported, description_, ": it does not reach memory of the host at the host's addresses");
}

void Gpu::load_kernels() {
  use();
  const Result loaded = driver_.module_load_data(&module_, kernel_image());
  if (loaded != Result::success) {
    int version = 0;
    (void)driver_.driver_get_version(&version);
    fail(Code::unsupported,
         text(description_, ", driver for CUDA ", version / 1000, ".", version % 1000 / 10,
              ": it takes none of these kernels: ", name_of_result(driver_, loaded),
              loaded == Result::unsupported_ptx_version
                  ? "; update the driver, or build Troupe with a CUDA toolkit as old as it"
                  : "; build Troupe with a CUDA toolkit that knows the GPU, or take a newer driver"));
  }
  std::size_t next = 0;
  for (const char* const name : kKernelNames) {
    TROUPE_CUDA(driver_, module_get_function(&functions_[next++], module_, name), "kernel ", name, " of ",
                kernel_image_name());
  }
}

Gpu::~Gpu() {
  (void)driver_.ctx_set_current(context_);
  (void)driver_.module_unload(module_);
  (void)driver_.device_primary_ctx_release(device_);
}

void Gpu::use() const { TROUPE_CUDA(driver_, ctx_set_current(context_), "a context of ", description_); }

/// After the first constructor the object exists: the destructor gives the memory back if it cannot be cleared.
DeviceMemory::DeviceMemory(std::shared_ptr<const Gpu> gpu, std::uint64_t size_bytes, bool clears) : DeviceMemory() {
  gpu_ = std::move(gpu);
  size_bytes_ = size_bytes;
  const Driver& driver = gpu_->driver();
  gpu_->use();
  DevicePointer pointer = 0;
  if (const Result result = driver.mem_alloc(&pointer, size_bytes); result != Result::success) {
    std::size_t free = 0, total = 0;
    (void)driver.mem_get_info(&free, &total);
    fail_call(driver, result,
              text("cannot take ", size_bytes, " bytes of ", gpu_->name(), ", ", free, " of ", total, " are free"));
  }
  at_ = reinterpret_cast<std::byte*>(pointer);
  if (!clears) return;
  // On a stream of its own: this memory is nobody's yet.
  StreamHandle stream = nullptr;
  TROUPE_CUDA(driver, stream_create_with_priority(&stream, kStreamNonBlocking, 0), "a stream");
  const Result cleared = driver.memset_d8_async(pointer, 0, size_bytes, stream);
  const Result done = driver.stream_synchronize(stream);
  (void)driver.stream_destroy(stream);
  if (cleared != Result::success || done != Result::success)
    fail_call(driver, cleared != Result::success ? cleared : done, text("clearing ", size_bytes, " bytes of a GPU"));
}

DeviceMemory::~DeviceMemory() {
  if (at_ == nullptr) return;
  (void)gpu_->driver().ctx_set_current(gpu_->context());
  (void)gpu_->driver().mem_free(reinterpret_cast<DevicePointer>(at_));
}

PinnedMemory::PinnedMemory(std::shared_ptr<const Gpu> gpu, std::uint64_t size_bytes) : gpu_(std::move(gpu)) {
  gpu_->use();
  void* pages = nullptr;
  const Result taken = gpu_->driver().mem_host_alloc(&pages, size_bytes, kHostAllocPortable | kHostAllocDeviceMap);
  TROUPE_CHECK(taken != Result::out_of_memory, Code::out_of_memory, "cannot take ", size_bytes,
               " bytes of pinned memory: ", name_of_result(gpu_->driver(), taken),
               "; this is memory of the machine, not of the GPU: free some, or give the container more");
  if (taken != Result::success)
    fail_call(gpu_->driver(), taken, text("cannot take ", size_bytes, " bytes of pinned memory"));
  std::memset(pages, 0, size_bytes);
  at_ = static_cast<std::byte*>(pages);
}

PinnedMemory::~PinnedMemory() {
  if (at_ == nullptr) return;
  (void)gpu_->driver().ctx_set_current(gpu_->context());
  (void)gpu_->driver().mem_free_host(at_);
}

StreamMemory::StreamMemory(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {
  MemPoolProps props{};
  props.alloc_type = AllocationType::pinned;
  props.location = {LocationType::device, gpu_->device()};
  gpu_->use();
  const Result made = gpu_->driver().mem_pool_create(&pool_, &props);
  if (made != Result::success && made != Result::not_supported)
    fail_call(gpu_->driver(), made, text("a pool of memory of ", gpu_->name()));
}

StreamMemory::~StreamMemory() {
  (void)gpu_->driver().ctx_set_current(gpu_->context());
  if (pool_ != nullptr) (void)gpu_->driver().mem_pool_destroy(pool_);
}

std::byte* StreamMemory::take(StreamHandle stream, std::uint64_t size_bytes) {
  gpu_->use();
  const Driver& driver = gpu_->driver();
  DevicePointer pointer = 0;
  const Result taken = pool_ != nullptr ? driver.mem_alloc_from_pool_async(&pointer, size_bytes, pool_, stream)
                                        : driver.mem_alloc(&pointer, size_bytes);
  if (taken != Result::success) fail_call(driver, taken, text("cannot take ", size_bytes, " bytes of ", gpu_->name()));
  return reinterpret_cast<std::byte*>(pointer);
}

void StreamMemory::give_back(StreamHandle stream, std::byte* at) noexcept {
  const auto pointer = reinterpret_cast<DevicePointer>(at);
  (void)(pool_ != nullptr ? gpu_->driver().mem_free_async(pointer, stream) : gpu_->driver().mem_free(pointer));
}

}  // namespace troupe::cuda
