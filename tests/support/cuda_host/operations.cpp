#include "tests/support/cuda_host/operations.hpp"

#include <sched.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>
#include <utility>

namespace troupe::cuda::host {
namespace {

Address address_of(const void* at) { return reinterpret_cast<Address>(at); }
const void* pointer_to(Address at) { return reinterpret_cast<const void*>(at); }

/// The same for the same seed, lane and tick: a run can be repeated as far as threads allow.
std::uint64_t drawn(std::uint64_t seed, Moment now) {
  const std::uint64_t key[] = {seed, now.lane, now.tick};
  return XXH3_64bits(key, sizeof key);
}

/// Half of all operations begin at once, some much later than what other streams do meanwhile: what is not ordered
/// gets another order under each seed.
void delay(std::uint64_t seed, Moment now) {
  if (seed == 0) return;
  const std::uint64_t draw = drawn(seed, now);
  const unsigned kind = draw % 16;
  if (kind < 8) return;
  const std::uint64_t most_us = kind < 14 ? 30 : 500;
  std::this_thread::sleep_for(std::chrono::microseconds{(draw >> 8U) % most_us});
}

std::string bytes_at(const Accesses::Range& use) {
  std::ostringstream text;
  text << (use.access == Access::reads    ? "reads "
           : use.access == Access::writes ? "writes "
           : use.access == Access::shares ? "shares "
                                          : "waits at or signals ")
       << use.size_bytes << " bytes at " << use.at;
  return text.str();
}

/// The mistake in using it now; empty: none.
std::pair<const char*, std::string> mistake_in(const Accesses::Range& use, const AllocationPtr& found,
                                               const DeviceState& device) {
  if (found == nullptr) return {"unknown memory", "which is neither device memory nor pinned nor registered"};
  const Allocation& in = *found;
  if (in.freed || (in.shared != nullptr && in.imported && in.shared->freed != 0))
    return {"use after free", in.freed ? "of " + in.text() : "of " + in.text() + ", which its process has freed"};
  if (address_of(use.at) + use.size_bytes > in.range.end()) return {"out of range", "which ends behind " + in.text()};
  if (in.device >= 0 && in.device != device.number && device.peers.count(in.device) == 0)
    return {"no peer access", "on device " + std::to_string(device.number) + " to " + in.text() + " of device " +
                                  std::to_string(in.device)};
  return {"", {}};
}

/// Behind a failure a copy may read what another stream writes (Races::reads_in_vain): on a device this is no mistake,
/// so the thread sanitizer shall not see these reads either. Volatile: no call of memmove, which it does see.
__attribute__((no_sanitize("thread"))) void copy_in_vain(void* to, const void* from, std::uint64_t size_bytes) {
  auto* const target = static_cast<std::byte*>(to);
  const auto* const source = static_cast<const volatile std::byte*>(from);
  for (std::uint64_t i = 0; i < size_bytes; ++i) target[i] = source[i];
}

/// The mutex is free as long as this lives.
class Unlocked {
 public:
  Unlocked(Run& run, const PlacePtr& place) : run_(run) {
    running = place.get();
    run_.lock.unlock();
  }
  ~Unlocked() {
    run_.lock.lock();
    running = nullptr;
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  Run& run_;
};

/// What a launch finds, and whether it declared it.
class LaunchMemory final : public KernelMemory {
 public:
  LaunchMemory(const Memory& memory, const PlacePtr& place) : memory_(memory), place_(place) {}

  /// From now on only allocations that `uses` names may be looked at. Process::mutex is held.
  void allow(const Uses& uses) {
    for (const Accesses::Range& use : uses)
      if (const AllocationPtr found = memory_.find(address_of(use.at))) allowed_.push_back(found->range);
    checks_ = true;
  }
  void* at(const void* address) const noexcept override {
    const Address shown = address_of(address);
    if (checks_ && memory_.is_shown(shown) && !is_allowed(shown)) {
      std::ostringstream text;
      text << place_->text() << " looks at " << address << ", in memory of which it declares nothing";
      reports().add("undeclared memory", text.str());
    }
    return memory_.at(shown);
  }

 private:
  bool is_allowed(Address at) const noexcept {
    return std::any_of(allowed_.begin(), allowed_.end(),
                       [at](const Range& range) { return at >= range.begin && at <= range.end(); });
  }
  const Memory& memory_;
  const PlacePtr& place_;
  std::vector<Range> allowed_;
  bool checks_ = false;
};

/// Finds kernels that write what they have declared to read: device memory that is only read has the same bytes
/// afterwards. Of a large range the beginning.
class ReadOnlyCheck {
 public:
  ReadOnlyCheck(const Memory& memory, const Uses& uses) {
    for (const Accesses::Range& use : uses)
      if (use.access == Access::reads && memory.is_shown(address_of(use.at)) && !is_written(use, uses))
        seen_.push_back({use, memory.at(address_of(use.at)), 0});
  }
  void before() {
    for (Seen& seen : seen_) seen.digest = digest(seen);
  }
  void after(const PlacePtr& place) const {
    for (const Seen& seen : seen_)
      if (digest(seen) != seen.digest)
        reports().add("undeclared write",
                      place->text() + " writes what it declares to read only: it " + bytes_at(seen.use));
  }

 private:
  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20U;
  struct Seen {
    Accesses::Range use;
    const void* at;
    XXH64_hash_t digest;
  };
  static XXH64_hash_t digest(const Seen& seen) {
    return XXH3_64bits(seen.at, std::min(seen.use.size_bytes, kMostBytes));
  }
  static bool is_written(const Accesses::Range& read, const Uses& uses) {
    const Address begin = address_of(read.at);
    return std::any_of(uses.begin(), uses.end(), [&](const Accesses::Range& use) {
      return use.access != Access::reads && address_of(use.at) < begin + read.size_bytes &&
             begin < address_of(use.at) + use.size_bytes;
    });
  }
  std::vector<Seen> seen_;
};

std::uint64_t load_word(Address word) {
  return __atomic_load_n(static_cast<const std::uint64_t*>(process().memory.at(word)), __ATOMIC_ACQUIRE);
}

bool is_for_cpu(const Accesses::Range& use) { return !process().memory.is_shown(address_of(use.at)); }

/// The words that a kernel signals, from before its body to after it.
class Releases {
 public:
  Releases(const Run& run, const Uses& uses) {
    for (const Accesses::Range& use : uses) {
      const Address word = address_of(use.at);
      if (use.access == Access::releases)
        words_.emplace_back(word, process().words.will_release(word, load_word(word), run.clock, is_for_cpu(use)));
    }
  }
  void end(const Run& run) const {
    for (const auto& [word, number] : words_) process().words.released(word, number, load_word(word), run.clock);
  }

 private:
  std::vector<std::pair<Address, std::uint64_t>> words_;
};

/// What the kernel has waited for was before what follows it.
void acquire(Run& run, const Uses& uses) {
  Process& all = process();
  for (const Accesses::Range& use : uses)
    if (use.access == Access::acquires)
      all.words.acquired(address_of(use.at), load_word(address_of(use.at)), all.cpu, run.clock);
}

/// Whether kernels behind this one do nothing: it, or one before it, has ended its stream.
bool has_failed(const LaunchMemory& memory, const HostKernel& kernel, const void* args) {
  const StreamState* const stream = kernel.stream == nullptr ? nullptr : kernel.stream(args);
  return stream != nullptr && HostWords::glance(&static_cast<const StreamState*>(memory.at(stream))->failed) != 0;
}

void run_kernel(Run& run, const PlacePtr& place, const HostKernel& kernel, const std::vector<std::byte>& args,
                unsigned blocks) {
  Process& all = process();
  LaunchMemory memory{all.memory, place};
  Accesses touched{memory};
  {
    const Unlocked unlocked{run, place};
    kernel.declare(touched, args.data());
  }
  if (!may_use(run, place, touched.ranges())) return;
  memory.allow(touched.ranges());
  ReadOnlyCheck check{all.memory, touched.ranges()};
  const Releases releases{run, touched.ranges()};
  {
    const Unlocked unlocked{run, place};
    check.before();
    for (unsigned block = 0; block < blocks; ++block) kernel.run(Block{memory, block, blocks}, args.data());
    check.after(place);
  }
  acquire(run, touched.ranges());
  releases.end(run);
  if (has_failed(memory, kernel, args.data())) run.clock.fail();
}

bool wait_is_over(std::uint64_t value, std::uint64_t wanted, unsigned flags) {
  switch (flags & ~kWaitValueFlush) {
    case kWaitValueEq: return value == wanted;
    case kWaitValueAnd: return (value & wanted) != 0;
    default: return reached(value, wanted);
  }
}

void wait_for_value(Run& run, const PlacePtr& place, Address word, std::uint64_t wanted, unsigned flags) {
  Process& all = process();
  if (!may_use(run, place, {{pointer_to(word), sizeof wanted, Access::acquires}})) return;
  const auto end = std::chrono::steady_clock::now() + all.settings.deadline;
  std::uint64_t value = load_word(word);
  while (!wait_is_over(value, wanted, flags)) {
    if (std::chrono::steady_clock::now() > end) {
      std::ostringstream text;
      text << place->text() << " waits for " << wanted << " at " << pointer_to(word) << ", where " << value
           << " stands after " << all.settings.deadline.count() << " ms";
      reports().add("endless wait", text.str());
      return fail(run.device, Result::launch_timeout);
    }
    {
      const Unlocked unlocked{run, place};
      std::this_thread::sleep_for(std::chrono::microseconds{20});
    }
    value = load_word(word);
  }
  all.words.acquired(word, value, all.cpu, run.clock);
}

}  // namespace

bool may_use(Run& run, const PlacePtr& place, const Uses& uses) {
  Process& all = process();
  for (const Accesses::Range& use : uses) {
    const auto [kind, text] = mistake_in(use, all.memory.find(address_of(use.at)), run.device);
    if (*kind == '\0') continue;
    reports().add(kind, place->text() + " " + bytes_at(use) + ", " + text);
    fail(run.device, Result::illegal_address);
    return false;
  }
  for (const Accesses::Range& use : uses) {
    const Range range{address_of(use.at), use.size_bytes};
    if (use.access == Access::reads && run.clock.is_behind_failure())
      all.races.reads_in_vain(range, run.now, place);
    else if (use.access == Access::reads || use.access == Access::shares)
      all.races.reads(range, run.now, run.clock, place);
    if (use.access == Access::writes) all.races.writes(range, run.now, run.clock, place);
  }
  return true;
}

void fail(DeviceState& device, Result result) {
  if (device.fault == Result::success) device.fault = result;
  process().changed.notify_all();
}

void perform(const Operation& operation, std::unique_lock<std::mutex>& lock, Clock& clock, Lane lane,
             DeviceState& device) {
  Run run{lock, clock, clock.tick(lane), device};
  lock.unlock();
  delay(process().settings.seed, run.now);
  lock.lock();
  if (device.fault == Result::success || operation.also_after_fault) operation.act(run);
}

OperationPtr copy_operation(PlacePtr place, Address to, Address from, std::uint64_t size_bytes) {
  return std::make_shared<Operation>(Operation{
      place, [=](Run& run) {
        const Memory& memory = process().memory;
        if (!may_use(run, place,
                     {{pointer_to(from), size_bytes, Access::reads}, {pointer_to(to), size_bytes, Access::writes}}))
          return;
        void* const target = memory.at(to);
        const void* const source = memory.at(from);
        const bool in_vain = run.clock.is_behind_failure();
        const Unlocked unlocked{run, place};
        if (in_vain)
          copy_in_vain(target, source, size_bytes);
        else
          std::memmove(target, source, size_bytes);
      }});
}

OperationPtr fill_operation(PlacePtr place, Address to, std::uint32_t value, unsigned width, std::uint64_t count) {
  return std::make_shared<Operation>(
      Operation{place, [=](Run& run) {
                  if (!may_use(run, place, {{pointer_to(to), count * width, Access::writes}})) return;
                  auto* const target = static_cast<std::byte*>(process().memory.at(to));
                  const Unlocked unlocked{run, place};
                  if (width == 1) {
                    std::memset(target, static_cast<int>(value), count);  // of memory, and large
                    return;
                  }
                  for (std::uint64_t i = 0; i < count; ++i) std::memcpy(target + i * width, &value, width);
                }});
}

OperationPtr kernel_operation(PlacePtr place, std::shared_ptr<const HostKernel> kernel, Arguments args,
                              unsigned blocks) {
  return std::make_shared<Operation>(Operation{place, [place, kernel, args, blocks](Run& run) {
                                                 Process& all = process();
                                                 const Result fault = all.calls.next(all.settings, kernel->name);
                                                 if (fault != Result::success) return fail(run.device, fault);
                                                 all.takes_time_of(kernel->name);
                                                 run_kernel(run, place, *kernel, *args, blocks);
                                               }});
}

OperationPtr wait_value_operation(PlacePtr place, Address word, std::uint64_t value, unsigned flags) {
  return std::make_shared<Operation>(
      Operation{place, [=](Run& run) { wait_for_value(run, place, word, value, flags); }});
}

OperationPtr write_value_operation(PlacePtr place, Address word, std::uint64_t value) {
  return std::make_shared<Operation>(
      Operation{place, [=](Run& run) {
                  if (!may_use(run, place, {{pointer_to(word), sizeof value, Access::releases}})) return;
                  Process& all = process();
                  // Before the store: whoever sees the value finds its clock.
                  all.words.releases(word, value, run.clock, !all.memory.is_shown(word));
                  __atomic_store_n(static_cast<std::uint64_t*>(all.memory.at(word)), value, __ATOMIC_RELEASE);
                }});
}

OperationPtr allocate_operation(PlacePtr place, AllocationPtr allocation) {
  return std::make_shared<Operation>(
      Operation{place, [=](Run& run) { process().races.writes(allocation->range, run.now, run.clock, place); }});
}

OperationPtr free_operation(PlacePtr place, AllocationPtr allocation) {
  return std::make_shared<Operation>(Operation{place,
                                               [=](Run& run) {
                                                 Process& all = process();
                                                 all.races.frees(allocation->range, run.now, run.clock, place);
                                                 all.words.forget(allocation->range);
                                                 all.memory.release(allocation);
                                               },
                                               true});
}

}  // namespace troupe::cuda::host
