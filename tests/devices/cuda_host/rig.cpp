#include "tests/devices/cuda_host/rig.hpp"

#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "tests/support/child_process.hpp"

#if defined(__SANITIZE_THREAD__)
/// Without it each process ends a second later.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "atexit_sleep_ms=0"; }
#endif

namespace troupe::cuda::testing {
namespace {

using host::TestImage;

void run_add(const Block& block, const void* given) {
  const auto& args = *static_cast<const AddArgs*>(given);
  std::uint64_t* const to = block.at(args.to);
  const std::uint64_t* const from = block.at(args.from);
  block.for_each(args.count, [&](std::uint64_t i) { to[i] += from[i] * args.factor; });
}
void declare_add(Accesses& touched, const void* given) {
  const auto& args = *static_cast<const AddArgs*>(given);
  touched.reads(args.from, args.count * 8);
  touched.writes(args.to, args.count * 8);
}
/// Declares that it only reads.
void declare_two_reads(Accesses& touched, const void* given) {
  const auto& args = *static_cast<const AddArgs*>(given);
  touched.reads(args.from, args.count * 8);
  touched.reads(args.to, args.count * 8);
}
/// Declares nothing of what it reads.
void declare_one_write(Accesses& touched, const void* given) {
  const auto& args = *static_cast<const AddArgs*>(given);
  touched.writes(args.to, args.count * 8);
}

void run_add_block(const Block& block, const void* given) {
  const auto& args = *static_cast<const AddBlockArgs*>(given);
  std::uint64_t* const to = block.at(args.to);
  const std::uint64_t* const from = block.at(args.from);
  const std::uint64_t factor = *block.at(args.factor);
  block.for_each(args.count, [&](std::uint64_t i) { to[i] += from[i] * factor; });
}
void declare_add_block(Accesses& touched, const void* given) {
  const auto& args = *static_cast<const AddBlockArgs*>(given);
  touched.reads(args.factor, 8);
  touched.reads(args.from, args.count * 8);
  touched.writes(args.to, args.count * 8);
}

void run_publish(const Block& block, const void* given) {
  const auto& args = *static_cast<const WordArgs*>(given);
  if (block.index() == 0) Block::release(block.at(args.word), args.value);
}
void declare_publish(Accesses& touched, const void* given) {
  touched.releases(static_cast<const WordArgs*>(given)->word);
}
void run_await(const Block& block, const void* given) {
  const auto& args = *static_cast<const WordArgs*>(given);
  while (Block::acquire(block.at(args.word)) < args.value) Block::pause();
}
void declare_await(Accesses& touched, const void* given) {
  touched.acquires(static_cast<const WordArgs*>(given)->word);
}
void run_end(const Block& block, const void* given) {
  (void)Block::claim(&block.at(static_cast<const EndArgs*>(given)->stream)->failed, 1);
}
void declare_end(Accesses& touched, const void* given) {
  const auto& args = *static_cast<const EndArgs*>(given);
  touched.shares(args.stream, sizeof(StreamState));
  if (args.word != nullptr) touched.releases(args.word);
}
const StreamState* stream_of_end(const void* given) { return static_cast<const EndArgs*>(given)->stream; }

constexpr std::array<HostKernel, 9> kKernels{{
    {"writer", sizeof(AddArgs), run_add, declare_add},
    {"reader", sizeof(AddArgs), run_add, declare_add},
    {"other", sizeof(AddArgs), run_add, declare_add},
    {"liar", sizeof(AddArgs), run_add, declare_two_reads},
    {"stray", sizeof(AddArgs), run_add, declare_one_write},
    {"add_block", sizeof(AddBlockArgs), run_add_block, declare_add_block},
    {"publish", sizeof(WordArgs), run_publish, declare_publish},
    {"await", sizeof(WordArgs), run_await, declare_await},
    {"end", sizeof(EndArgs), run_end, declare_end, stream_of_end},
}};

Driver load() {
  std::string why;
  const auto driver = Driver::load(why);
  if (!driver) {
    std::fprintf(stderr, "no driver: %s\n", why.c_str());
    std::exit(98);
  }
  return *driver;
}

template <class F>
void find(F& function, const char* name) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function == nullptr) {
    std::fprintf(stderr, "libcuda.so.1 has no %s: it is not the stand-in (LD_LIBRARY_PATH)\n", name);
    std::exit(98);
  }
}

std::string read_all(int file) {
  std::string text;
  const Deadline deadline = Deadline::after(std::chrono::seconds{30});
  std::array<char, 4096> part;
  pollfd ready{file, POLLIN, 0};
  while (!deadline.passed()) {
    if (poll(&ready, 1, 100) <= 0) continue;
    const ssize_t count = read(file, part.data(), part.size());
    if (count <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  return text;
}

}  // namespace

const TestImage& image() {
  static const TestImage kernels = [] {
    TestImage made;
    made.kernels = kKernels.data();
    made.count = kKernels.size();
    return made;
  }();
  return kernels;
}

void give_up(const char* what, Result result) {
  std::fprintf(stderr, "%s failed with %u\n", what, static_cast<unsigned>(result));
  std::exit(99);
}

Rig::Rig(int devices) : driver(load()) {
  find(reports, "troupe_cuda_host_reports");
  find(access, "troupe_cuda_host_access");
  must(driver.init, 0U);
  for (int i = devices; i-- > 0;) {  // the first is current in the end
    Context context = nullptr;
    Module module = nullptr;
    must(driver.device_primary_ctx_retain, &context, i);
    must(driver.ctx_set_current, context);
    must(driver.module_load_data, &module, static_cast<const void*>(&image()));
    contexts_.insert(contexts_.begin(), context);
    modules_.insert(modules_.begin(), module);
  }
}

Rig::~Rig() {
  must(driver.ctx_set_current, contexts_[0]);
  for (const StreamHandle stream : streams_) must(driver.stream_synchronize, stream);
  for (const StreamHandle stream : streams_) must(driver.stream_destroy, stream);
  for (const EventHandle event : events_) must(driver.event_destroy, event);
  for (const DevicePointer pointer : memory_) must(driver.mem_free, pointer);
  for (void* const pointer : pinned_) must(driver.mem_free_host, pointer);
  for (const MemoryPool pool : pools_) must(driver.mem_pool_destroy, pool);
  for (const Module module : modules_) must(driver.module_unload, module);
  for (std::size_t i = 0; i < contexts_.size(); ++i) must(driver.device_primary_ctx_release, static_cast<DeviceId>(i));
}

Function Rig::function(const char* name, int device) const {
  Function found = nullptr;
  must(driver.module_get_function, &found, modules_[static_cast<std::size_t>(device)], name);
  return found;
}

StreamHandle Rig::stream() {
  StreamHandle made = nullptr;
  must(driver.stream_create_with_priority, &made, kStreamNonBlocking, 0);
  streams_.push_back(made);
  return made;
}

EventHandle Rig::event() {
  EventHandle made = nullptr;
  must(driver.event_create, &made, kEventDisableTiming);
  events_.push_back(made);
  return made;
}

MemoryPool Rig::pool(std::size_t most_bytes) {
  MemPoolProps props{};
  props.alloc_type = AllocationType::pinned;
  props.location = {LocationType::device, 0};
  props.max_size = most_bytes;
  MemoryPool made = nullptr;
  must(driver.mem_pool_create, &made, static_cast<const MemPoolProps*>(&props));
  pools_.push_back(made);
  return made;
}

std::uint64_t* Rig::pinned(std::size_t count) {
  void* made = nullptr;
  must(driver.mem_host_alloc, &made, count * 8, kHostAllocPortable);
  pinned_.push_back(made);
  return static_cast<std::uint64_t*>(made);
}

DevicePointer Rig::memory(std::size_t count) {
  DevicePointer made = 0;
  must(driver.mem_alloc, &made, count * 8);
  memory_.push_back(made);
  return made;
}

void Rig::forget(DevicePointer pointer) { std::erase(memory_, pointer); }

Ending run_apart(int (*program)(), const std::vector<std::string>& settings) {
  std::array<int, 2> ends;
  if (pipe(ends.data()) != 0) return {};
  troupe::testing::ChildProcess child{[&]() -> int {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    for (const std::string& setting : settings) {
      const auto equals = setting.find('=');
      setenv(("TROUPE_CUDA_HOST_" + setting.substr(0, equals)).c_str(), setting.substr(equals + 1).c_str(), 1);
    }
    std::exit(program());  // not _exit: the stand-in looks for leaks at the end
  }};
  close(ends[1]);
  Ending ending;
  ending.text = read_all(ends[0]);
  close(ends[0]);
  ending.code = child.wait();
  return ending;
}

}  // namespace troupe::cuda::testing
