// Device memory, pools, pinned and registered memory.
#include <algorithm>
#include <sstream>

#include "tests/support/cuda_host/entry.hpp"

namespace troupe::cuda {
namespace {

using namespace host;

bool has_space(Process& all, const DeviceState& device, std::uint64_t size_bytes) {
  return size_bytes <= all.settings.memory_bytes - std::min(all.settings.memory_bytes, device.used_bytes);
}

/// The CPU takes memory away: everything that used it must have been waited for.
void take_away(Entry& entry, const AllocationPtr& found, const PlacePtr& place) {
  Process& all = entry.all();
  found->freeing = place;
  all.races.frees(found->range, all.cpu.tick(kCpu), all.cpu, place);
  all.words.forget(found->range);
  all.memory.release(found);
}

/// What begins at `address` and may be freed by this call; null: a report.
AllocationPtr to_free(Entry& entry, Address address, const PlacePtr& place, MemoryKind kind) {
  const AllocationPtr found = entry.all().memory.find(address);
  if (found == nullptr || found->range.begin != address || found->kind != kind) {
    std::ostringstream text;
    text << place->text() << " is given 0x" << std::hex << address << ", which no such memory begins at";
    if (found != nullptr) text << " (it lies in " << found->text() << ")";
    reports().add("unknown memory", text.str());
    return nullptr;
  }
  if (found->freeing == nullptr) return found;
  reports().add("double free", place->text() + " frees " + found->text());
  return nullptr;
}

Result free_pinned(Entry& entry, void* pointer, MemoryKind kind) {
  const PlacePtr place = entry.place();
  const AllocationPtr found = to_free(entry, reinterpret_cast<Address>(pointer), place, kind);
  if (found == nullptr)
    return kind == MemoryKind::registered ? Result::host_memory_not_registered : Result::invalid_value;
  take_away(entry, found, place);
  return Result::success;
}

std::shared_ptr<PoolState> pool_with(Process& all, std::uint64_t number) {
  std::shared_ptr<PoolState> found;
  all.pools.for_each([&](PoolState& pool) {
    if (pool.number == number) found = {std::shared_ptr<PoolState>{}, &pool};
  });
  return found;
}

/// A driver may wait for all work of the device before it gives memory or registers it.
void report_if_late(const Entry& entry) {
  for (const auto& [stream, launch] : process().prepared)
    return reports().add("late memory", entry.place()->text() + " comes after " + launch->text());
}

}  // namespace

TROUPE_EXPORT Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  TROUPE_ENTER(cuMemGetInfo_v2, context);
  *total = entry.all().settings.memory_bytes;
  *free = *total - std::min<std::uint64_t>(*total, entry.device().used_bytes);
  return Result::success;
}

TROUPE_EXPORT Result cuMemPoolCreate(MemoryPool* pool, const MemPoolProps* props) {
  TROUPE_ENTER(cuMemPoolCreate, context);
  Process& all = entry.all();
  if (props->alloc_type != AllocationType::pinned || props->location.type != LocationType::device ||
      props->location.id < 0 || static_cast<std::size_t>(props->location.id) >= all.devices.size())
    return Result::invalid_value;
  auto state = std::make_shared<PoolState>();
  state->number = ++all.pools_made;
  state->device = props->location.id;
  state->most_bytes = props->max_size;
  *pool = all.pools.add(std::move(state), entry.place());
  return Result::success;
}

TROUPE_EXPORT Result cuMemPoolDestroy(MemoryPool pool) {
  TROUPE_ENTER(cuMemPoolDestroy, driver);
  const PlacePtr place = entry.place();
  const auto state = entry.all().pools.end(pool, place);
  if (state == nullptr) return Result::invalid_value;
  const Result fault = entry.all().devices[static_cast<std::size_t>(state->device)].fault;
  if (fault != Result::success) return fault;  // its streams give nothing back any more
  for (const auto& [address, allocation] : entry.all().memory.all())
    if (allocation->pool == state->number && allocation->freeing == nullptr)
      reports().add("leak", place->text() + " destroys a pool with " + allocation->text());
  return Result::success;
}

TROUPE_EXPORT Result cuMemAllocFromPoolAsync(DevicePointer* pointer, std::size_t bytes, MemoryPool pool,
                                             StreamHandle stream) {
  TROUPE_ENTER(cuMemAllocFromPoolAsync, context);
  TROUPE_STREAM(on, stream);
  Process& all = entry.all();
  const PlacePtr place = entry.place_on(on->number);
  const auto state = all.pools.find(pool, place);
  if (state == nullptr || bytes == 0) return Result::invalid_value;
  if (on->capture != nullptr)
    return invalidate(*on->capture, place, "allocates memory", Result::stream_capture_unsupported);
  DeviceState& device = all.devices[static_cast<std::size_t>(state->device)];
  if (!has_space(all, device, bytes) || (state->most_bytes != 0 && bytes > state->most_bytes - state->used_bytes))
    return Result::out_of_memory;
  const AllocationPtr made = all.memory.allocate(state->device, bytes, place);
  if (made == nullptr) return Result::out_of_memory;
  made->pool = state->number;
  device.used_bytes += bytes;
  state->used_bytes += bytes;
  *pointer = made->range.begin;
  return entry.submit(*on, allocate_operation(place, made));
}

TROUPE_EXPORT Result cuMemFreeAsync(DevicePointer pointer, StreamHandle stream) {
  TROUPE_ENTER(cuMemFreeAsync, context);
  TROUPE_STREAM(on, stream);
  const PlacePtr place = entry.place_on(on->number);
  const AllocationPtr found = to_free(entry, pointer, place, MemoryKind::device);
  if (found == nullptr) return Result::invalid_value;
  if (on->capture != nullptr)
    return invalidate(*on->capture, place, "frees memory", Result::stream_capture_unsupported);
  found->freeing = place;
  entry.all().devices[static_cast<std::size_t>(found->device)].used_bytes -= found->range.size_bytes;
  if (const auto pool = pool_with(entry.all(), found->pool)) pool->used_bytes -= found->range.size_bytes;
  return entry.submit(*on, free_operation(place, found));
}

TROUPE_EXPORT Result cuMemAlloc_v2(DevicePointer* pointer, std::size_t bytes) {
  TROUPE_ENTER(cuMemAlloc_v2, context);
  report_if_late(entry);
  const Result allowed = entry.outside_capture();
  if (allowed != Result::success) return allowed;
  if (bytes == 0) return Result::invalid_value;
  if (!has_space(entry.all(), entry.device(), bytes)) return Result::out_of_memory;
  const AllocationPtr made = entry.all().memory.allocate_shared(current_device, bytes, entry.place());
  if (made == nullptr) return Result::out_of_memory;
  entry.device().used_bytes += bytes;
  *pointer = made->range.begin;
  return Result::success;
}

TROUPE_EXPORT Result cuMemFree_v2(DevicePointer pointer) {
  TROUPE_ENTER(cuMemFree_v2, driver);
  if (pointer == 0) return Result::success;
  const Result allowed = entry.outside_capture();
  if (allowed != Result::success) return allowed;
  const PlacePtr place = entry.place();
  const AllocationPtr found = to_free(entry, pointer, place, MemoryKind::device);
  if (found == nullptr || found->imported || found->pool != 0) return Result::invalid_value;
  if (const int opener = entry.all().settings.closed ? found->opener() : 0; opener != 0)
    reports().add("freed while open", place->text() + " frees memory that process " + std::to_string(opener) +
                                          " has open: " + found->text());
  entry.all().devices[static_cast<std::size_t>(found->device)].used_bytes -= found->range.size_bytes;
  take_away(entry, found, place);
  return Result::success;
}

TROUPE_EXPORT Result cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  TROUPE_ENTER(cuMemHostAlloc, context);
  report_if_late(entry);
  const Result allowed = entry.outside_capture();
  if (allowed != Result::success) return allowed;
  if (bytes == 0) return Result::invalid_value;
  const AllocationPtr made = entry.all().memory.allocate_pinned(bytes, entry.place());
  if (made == nullptr) return Result::out_of_memory;
  *pointer = reinterpret_cast<void*>(made->range.begin);
  return Result::success;
}

TROUPE_EXPORT Result cuMemFreeHost(void* pointer) {
  TROUPE_ENTER(cuMemFreeHost, driver);
  const Result allowed = entry.outside_capture();
  return allowed == Result::success ? free_pinned(entry, pointer, MemoryKind::pinned) : allowed;
}

TROUPE_EXPORT Result cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned) {
  TROUPE_ENTER(cuMemHostRegister_v2, context);
  report_if_late(entry);
  const Result allowed = entry.outside_capture();
  if (allowed != Result::success) return allowed;
  if (pointer == nullptr || bytes == 0) return Result::invalid_value;
  const auto begin = reinterpret_cast<Address>(pointer);
  if (entry.all().memory.overlaps_live({begin, bytes})) return Result::host_memory_already_registered;
  entry.all().memory.add_registered(begin, bytes, entry.place());
  return Result::success;
}

TROUPE_EXPORT Result cuMemHostUnregister(void* pointer) {
  TROUPE_ENTER(cuMemHostUnregister, driver);
  const Result allowed = entry.outside_capture();
  return allowed == Result::success ? free_pinned(entry, pointer, MemoryKind::registered) : allowed;
}

TROUPE_EXPORT Result cuMemHostGetDevicePointer_v2(DevicePointer* device, void* pointer, unsigned flags) {
  TROUPE_ENTER(cuMemHostGetDevicePointer_v2, context);
  const AllocationPtr found = entry.all().memory.find(reinterpret_cast<Address>(pointer));
  if (flags != 0 || found == nullptr || found->freeing != nullptr || found->device >= 0) return Result::invalid_value;
  *device = reinterpret_cast<DevicePointer>(pointer);
  return Result::success;
}

}  // namespace troupe::cuda
