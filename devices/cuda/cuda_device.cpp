#include "devices/cuda/cuda_device.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <unordered_map>

#include "devices/cuda/cuda_replica.hpp"
#include "devices/cuda/cuda_stream.hpp"
#include "devices/cuda/kernel_image.hpp"
#include "runtime/base/host_identity.hpp"
#include "runtime/compute/host_memory_device.hpp"

namespace troupe {
namespace cuda {
namespace {

/// Streams that share a queue of the GPU wait behind one another's polling. So many queues the hardware has.
constexpr int kQueues = 32;

/// The driver reads the environment when it starts.
void prepare_environment() {
  const char* const blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  TROUPE_CHECK(blocking == nullptr || std::strcmp(blocking, "0") == 0, Code::environment, "CUDA_LAUNCH_BLOCKING is ",
               blocking,
               ": each launch would wait for the GPU, and streams that wait for one another would not end; unset it");
  const char* const queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (queues == nullptr || std::atoi(queues) < kQueues)
    (void)::setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(kQueues).c_str(), 1);
  // Kernels that poll may not keep others from being loaded.
  (void)::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

/// Kernels that are built for a version of CUDA run with its drivers and newer ones.
constexpr int kLeastDriver = 12000;

Driver open_driver(const std::string& library) {
  prepare_environment();
  std::string why;
  const std::optional<Driver> driver = Driver::load(why, library.c_str());
  TROUPE_CHECK(driver.has_value(), Code::environment, "there is no usable CUDA driver (", why,
               "): install NVIDIA's driver, pass it to the container, or take placement.device = \"cpu\"");
  int version = 0;
  if (driver->driver_get_version(&version) == Result::success) {
    TROUPE_CHECK(version >= kLeastDriver, Code::environment, "the CUDA driver is for CUDA ", version / 1000, ".",
                 version % 1000 / 10, ", Troupe needs one for ", kLeastDriver / 1000, ".0 at least: update it");
  }
  TROUPE_CUDA(*driver, init(0), "the CUDA driver cannot start");
  return *driver;
}

int count_devices(const Driver& driver) {
  int count = 0;
  TROUPE_CUDA(driver, device_get_count(&count), "the GPUs of this machine");
  if (count == 0) fail_call(driver, Result::no_device, "the CUDA driver shows no GPU");
  return count;
}

/// As the kernel writes it: lower case, a domain of four digits.
std::string bus_of(const Driver& driver, int ordinal) {
  DeviceId device = 0;
  std::array<char, 32> bus{};
  TROUPE_CUDA(driver, device_get(&device, ordinal), "GPU ", ordinal, " cannot be used");
  TROUPE_CUDA(driver, device_get_pci_bus_id(bus.data(), bus.size() - 1, device), "the place of a GPU");
  std::string made{bus.data()};
  std::ranges::transform(made, made.begin(),
                         [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  const auto colon = made.find(':');
  if (colon != made.npos && colon > 4) made.erase(0, colon - 4);
  return made;
}

/// What another process needs to reach a GPU's memory.
struct GpuTicket {
  IpcMemHandle handle;
  std::uint64_t size_bytes;
  std::uint64_t address;  // in its process
  std::uint64_t place;    // place_of_processes() there
  Uuid gpu;
  std::int32_t pid;
  ArenaId arena;
};
static_assert(sizeof(GpuTicket) <= sizeof(RegionTicket::bytes));

/// Equal in processes that know each other's ids: same boot of the same host, same pid namespace.
std::uint64_t place_of_processes() { return std::hash<std::string>{}(text(boot_id(), '/', pid_namespace())); }

/// Why there is no library.
struct WhyOwn {
  std::string products, dnn;
};

class CudaDevice final : public HostMemoryDevice {
 public:
  /// `why_own`: why libraries are absent, for its description.
  CudaDevice(AddressSpace& space, std::shared_ptr<const Gpu> gpu, std::chrono::milliseconds wait_deadline,
             Libraries libraries, WhyOwn why_own)
      : HostMemoryDevice(space),
        gpu_(std::move(gpu)),
        state_(gpu_, space, wait_deadline, std::move(libraries)),
        why_own_(std::move(why_own)) {
    traits_ = {"cuda",      description(), gpu_->processors(), gpu_->has_bf16(), MemoryKind::device,
               /*f16=*/true};
  }
  ~CudaDevice() override { end_imports(); }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceTraits& traits() const override { return traits_; }

  Memory allocate(ArenaId id, MemoryKind kind, std::uint64_t size_bytes) override {
    if (kind != MemoryKind::device) return HostMemoryDevice::allocate(id, kind, size_bytes);
    DeviceMemory memory{gpu_, std::max<std::uint64_t>(size_bytes, 1)};
    space().bind({id, memory.at(), size_bytes, MemoryKind::device});
    own_.emplace(id, std::move(memory));
    return {id, 0, size_bytes};
  }

  RegionTicket ticket(ArenaId id) const override {
    const auto found = own_.find(id);
    if (found == own_.end()) return HostMemoryDevice::ticket(id);
    GpuTicket plain{};
    plain.size_bytes = found->second.size_bytes();
    plain.address = reinterpret_cast<std::uintptr_t>(found->second.at());
    plain.place = place_of_processes();
    plain.gpu = gpu_->uuid();
    plain.pid = ::getpid();
    plain.arena = id;
    gpu_->use();
    TROUPE_CUDA(gpu_->driver(), ipc_get_mem_handle(&plain.handle, plain.address), "a ticket for ", plain.size_bytes,
                " bytes of ", gpu_->name());
    RegionTicket made;
    made.kind = MemoryKind::device;
    std::memcpy(made.bytes.data(), &plain, sizeof plain);
    return made;
  }

  Memory import(const RegionTicket& ticket) override {
    if (ticket.kind != MemoryKind::device) return HostMemoryDevice::import(ticket);
    GpuTicket plain{};
    std::memcpy(&plain, ticket.bytes.data(), sizeof plain);
    TROUPE_CHECK(plain.place == place_of_processes(), Code::environment, "process ", plain.pid,
                 " is on another host or in another pid namespace, from where the memory of its GPU cannot be reached");
    const bool is_here = plain.pid == ::getpid();
    TROUPE_CHECK(!is_here || std::memcmp(&plain.gpu, &gpu_->uuid(), sizeof plain.gpu) == 0, Code::unsupported,
                 "two GPUs of one process do not reach each other's memory: give each rank a process of its own");
    auto* const at = reinterpret_cast<std::byte*>(is_here ? plain.address : open(plain));
    space().bind({plain.arena, at, plain.size_bytes, MemoryKind::device});
    return {plain.arena, 0, plain.size_bytes};
  }

  void end_imports() noexcept override {
    (void)gpu_->driver().ctx_set_current(gpu_->context());
    for (const DevicePointer imported : imported_) (void)gpu_->driver().ipc_close_mem_handle(imported);
    imported_.clear();
  }

  void prepare(std::span<const ArenaId> arenas) override {
    for (const ArenaId arena : arenas) state_.memory().prepare(arena);
  }

  std::unique_ptr<Stream> stream() override { return std::make_unique<CudaStream>(state_); }

  std::unique_ptr<Replica> compile(const Graph& graph, const Layout& layout, const BatchLayout& batch,
                                   const std::vector<Bucket>& buckets, const ReplicaMemory& memory) override {
    auto made = std::make_unique<CudaReplica>(state_, graph, layout, batch, buckets, memory);
    traits_.description = description();  // libraries may have been found to be wrong for it
    return made;
  }

 private:
  std::string description() const {
    const Libraries& libraries = state_.libraries();
    const auto by = [](const auto& library, const std::string& why) {
      return library != nullptr ? library->name() : text("own kernels (", why, ")");
    };
    return text(gpu_->description(), ", products by ", by(libraries.products, why_own_.products),
                ", convolutions and 16-bit attention by ", by(libraries.dnn, why_own_.dnn));
  }
  DevicePointer open(const GpuTicket& ticket) {
    gpu_->use();
    DevicePointer at = 0;
    const Result result = gpu_->driver().ipc_open_mem_handle(&at, ticket.handle, kIpcLazyEnablePeerAccess);
    if (result != Result::success) {
      fail(Code::environment,
           text("cannot reach ", ticket.size_bytes, " bytes that process ", ticket.pid,
                " has on a GPU: ", name_of_result(gpu_->driver(), result),
                "; the processes of a node must share their IPC and pid namespaces and see the same GPUs"));
    }
    imported_.push_back(at);
    return at;
  }

  const std::shared_ptr<const Gpu> gpu_;
  DeviceTraits traits_;
  std::unordered_map<ArenaId, DeviceMemory> own_;
  std::vector<DevicePointer> imported_;
  DeviceState state_;
  const WhyOwn why_own_;
};

}  // namespace
}  // namespace cuda

namespace cuda {
namespace {

int ordinal_of(const Driver& driver, const CudaDeviceOptions& options) {
  const int count = count_devices(driver);
  if (options.bus.empty()) {
    TROUPE_CHECK(options.ordinal < static_cast<std::uint32_t>(count), Code::environment, "there is no GPU ",
                 options.ordinal, ": the CUDA driver shows ", count, ", counted from 0");
    return static_cast<int>(options.ordinal);
  }
  for (int ordinal = 0; ordinal < count; ++ordinal)
    if (bus_of(driver, ordinal) == options.bus) return ordinal;
  fail(Code::environment, text("the CUDA driver does not show this process the GPU at ", options.bus, ", but ", count,
                               " other", count == 1 ? "" : "s", "; CUDA_VISIBLE_DEVICES may hide it"));
}

/// What keeps a GPU from another one's memory is no error here.
std::vector<std::string> reached_from(const Driver& driver, DeviceId device, int count) {
  std::vector<std::string> buses;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    DeviceId other = 0;
    int can = 0;
    if (driver.device_get(&other, ordinal) != Result::success || other == device) continue;
    if (driver.device_can_access_peer(&can, device, other) == Result::success && can != 0)
      buses.push_back(bus_of(driver, ordinal));
  }
  return buses;
}

CudaGpu look_at(const Driver& driver, int ordinal, int count) {
  CudaGpu gpu{.bus = bus_of(driver, ordinal), .model = {}};
  DeviceId device = 0;
  std::array<char, 128> name{};
  std::size_t bytes = 0;
  int mode = 0;
  TROUPE_CUDA(driver, device_get(&device, ordinal), "GPU ", ordinal, " cannot be used");
  TROUPE_CUDA(driver, device_get_name(name.data(), name.size() - 1, device), "the name of a GPU");
  TROUPE_CUDA(driver, device_total_mem(&bytes, device), "the memory of a GPU");
  TROUPE_CUDA(driver, device_get_attribute(&mode, DeviceAttribute::compute_mode, device), "the mode of a GPU");
  TROUPE_CHECK(mode != static_cast<int>(ComputeMode::prohibited), Code::environment, name.data(), " at ", gpu.bus,
               ": its compute mode is prohibited; nvidia-smi -c DEFAULT allows processes");
  gpu.model = name.data();
  gpu.memory_bytes = bytes;
  gpu.reaches = reached_from(driver, device, count);
  gpu.exclusive = mode == static_cast<int>(ComputeMode::exclusive_process);
  return gpu;
}

}  // namespace
}  // namespace cuda

std::unique_ptr<Device> make_cuda_device(AddressSpace& space, CudaDeviceOptions options) {
  TROUPE_CHECK(options.wait_deadline.count() > 0, Code::invalid, "a cuda device's waits need a deadline above 0, not ",
               options.wait_deadline.count(), " ms");
  const cuda::Driver driver = cuda::open_driver(options.driver);
  auto gpu = std::make_shared<const cuda::Gpu>(driver, cuda::ordinal_of(driver, options));
  cuda::Libraries libraries;
  cuda::WhyOwn why;
  libraries.products =
      cuda::ProductLibrary::open(gpu, {options.products, options.cublaslt, options.tf32}, why.products);
  libraries.dnn = cuda::DnnLibrary::open(gpu, {options.convolutions, options.cudnn, options.tf32}, why.dnn);
  return std::make_unique<cuda::CudaDevice>(space, std::move(gpu), options.wait_deadline, std::move(libraries),
                                            std::move(why));
}

CudaGpus find_cuda_gpus(const std::string& library) {
  CudaGpus found;
  try {
    const cuda::Driver driver = cuda::open_driver(library);
    int version = 0;
    if (driver.driver_get_version(&version) == cuda::Result::success)
      found.version = text(version / 1000, '.', version % 1000 / 10);
    const int count = cuda::count_devices(driver);
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      try {
        found.gpus.push_back(cuda::look_at(driver, ordinal, count));
      } catch (const Error& error) {  // others may be in order
        found.refusal = error.status();
      }
    }
    // A driver refuses a build without kernels, a stand-in for it has its own.
    if (!cuda::has_kernel_image() && !found.gpus.empty()) const cuda::Gpu any{driver, 0};
    if (!found.gpus.empty()) found.refusal = {};
  } catch (const Error& error) {
    found.gpus.clear();
    found.refusal = error.status();
    std::string why;
    const auto driver = cuda::Driver::load(why, library.c_str());
    found.is_absent =
        !driver || (driver->init(0) == cuda::Result::no_device && cuda::why_closed(cuda::kControlFile).empty());
  }
  return found;
}

}  // namespace troupe
