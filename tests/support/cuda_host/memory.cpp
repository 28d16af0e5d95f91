#include "tests/support/cuda_host/memory.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace troupe::cuda::host {
namespace {

constexpr std::uint64_t kPage = 4096;

std::uint64_t whole_pages(std::uint64_t size_bytes) { return (size_bytes + kPage - 1) / kPage * kPage; }

Address reserve_addresses(std::uint64_t size_bytes) {
  void* const at = mmap(nullptr, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? 0 : reinterpret_cast<Address>(at);
}

bool map_at(Address at, std::uint64_t size_bytes, int flags, int file) {
  return mmap(reinterpret_cast<void*>(at), size_bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, file, 0) !=
         MAP_FAILED;
}

/// Gives the bytes back and keeps the addresses.
void close_addresses(Address at, std::uint64_t size_bytes) {
  (void)mmap(reinterpret_cast<void*>(at), size_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/// Whether the process has neither ended nor been killed.
bool lives(int process) {
  std::ifstream about{"/proc/" + std::to_string(process) + "/stat"};
  std::string line;
  std::getline(about, line);
  const auto name_end = line.rfind(')');
  return name_end != std::string::npos && line.compare(name_end, 3, ") Z") != 0 &&
         line.compare(name_end, 3, ") X") != 0;
}

/// Changes an entry of the list of processes from `from` to `to`.
void replace_opener(SharedState& shared, std::int32_t from, std::int32_t to) {
  for (auto& opener : shared.openers) {
    std::int32_t expected = from;
    if (opener.compare_exchange_strong(expected, to)) return;
  }
}

}  // namespace

int Allocation::opener() const {
  if (shared == nullptr || imported) return 0;
  for (const auto& opener : shared->openers)
    if (const int process = opener.load(); process != 0 && lives(process)) return process;
  return 0;
}

std::string Allocation::text() const {
  std::string line = std::to_string(range.size_bytes) + " bytes of ";
  line += kind == MemoryKind::device   ? "device memory"
          : kind == MemoryKind::pinned ? "pinned memory"
                                       : "registered memory";
  line += " from " + allocated->text();
  if (freeing != nullptr) line += ", freed by " + freeing->text();
  return line;
}

Memory::Memory() : shown_(reserve_addresses(kReserved)), hidden_(reserve_addresses(kReserved)) {}

/// Addresses with a page behind them that belongs to nobody. Without a size: there are no more.
Range Memory::reserve(std::uint64_t size_bytes) {
  const std::uint64_t taken = whole_pages(size_bytes) + kPage;
  if (shown_ == 0 || hidden_ == 0 || taken > kReserved - used_) return {};
  const Range range{shown_ + used_, size_bytes};
  used_ += taken;
  return range;
}

AllocationPtr Memory::add(Range range, MemoryKind kind, int device, const PlacePtr& place) {
  auto made = std::make_shared<Allocation>();
  made->range = range;
  made->kind = kind;
  made->device = device;
  made->allocated = place;
  allocations_[range.begin] = made;
  return made;
}

AllocationPtr Memory::allocate(int device, std::uint64_t size_bytes, const PlacePtr& place) {
  const Range range = reserve(size_bytes);
  if (range.size_bytes == 0 ||
      !map_at(range.begin + distance(), whole_pages(size_bytes), MAP_PRIVATE | MAP_ANONYMOUS, -1))
    return nullptr;
  return add(range, MemoryKind::device, device, place);
}

/// The page behind the bytes tells other processes when they are freed.
bool Memory::map_file(const AllocationPtr& allocation) {
  const std::uint64_t pages = whole_pages(allocation->range.size_bytes);
  const Address begin = allocation->range.begin + distance();
  if (!map_at(begin, pages + kPage, MAP_SHARED, allocation->file)) return false;
  allocation->shared = reinterpret_cast<SharedState*>(begin + pages);
  return true;
}

AllocationPtr Memory::allocate_shared(int device, std::uint64_t size_bytes, const PlacePtr& place) {
  const int file = memfd_create("cuda stand-in", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  if (ftruncate(file, static_cast<off_t>(whole_pages(size_bytes) + kPage)) == 0)
    if (AllocationPtr made = map(device, file, size_bytes, place)) return made;
  close(file);
  return nullptr;
}

AllocationPtr Memory::import(int device, int file, std::uint64_t size_bytes, const PlacePtr& place) {
  AllocationPtr made = map(device, file, size_bytes, place);
  if (made == nullptr) return nullptr;
  made->imported = true;
  replace_opener(*made->shared, 0, getpid());
  return made;
}

AllocationPtr Memory::map(int device, int file, std::uint64_t size_bytes, const PlacePtr& place) {
  const Range range = reserve(size_bytes);
  if (range.size_bytes == 0) return nullptr;
  const AllocationPtr made = add(range, MemoryKind::device, device, place);
  made->file = file;
  if (map_file(made)) return made;
  allocations_.erase(range.begin);
  return nullptr;
}

/// What was freed here before: these are other bytes now.
void Memory::forget(Address begin, std::uint64_t size_bytes) {
  for (auto at = allocations_.lower_bound(begin); at != allocations_.end() && at->first < begin + size_bytes;)
    at = allocations_.erase(at);
}

AllocationPtr Memory::allocate_pinned(std::uint64_t size_bytes, const PlacePtr& place) {
  void* const at = mmap(nullptr, whole_pages(size_bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  forget(reinterpret_cast<Address>(at), whole_pages(size_bytes));
  return add({reinterpret_cast<Address>(at), size_bytes}, MemoryKind::pinned, -1, place);
}

AllocationPtr Memory::add_registered(Address begin, std::uint64_t size_bytes, const PlacePtr& place) {
  forget(begin, size_bytes);
  return add({begin, size_bytes}, MemoryKind::registered, -1, place);
}

void Memory::release(const AllocationPtr& allocation) {
  allocation->freed = true;
  const std::uint64_t pages = whole_pages(allocation->range.size_bytes);
  if (allocation->kind == MemoryKind::pinned) close_addresses(allocation->range.begin, pages);
  if (allocation->kind != MemoryKind::device) return;
  if (allocation->shared != nullptr && allocation->imported) replace_opener(*allocation->shared, getpid(), 0);
  if (allocation->shared != nullptr && !allocation->imported) allocation->shared->freed = 1;
  close_addresses(allocation->range.begin + distance(), pages + (allocation->shared == nullptr ? 0 : kPage));
  allocation->shared = nullptr;
  if (allocation->file >= 0) close(allocation->file);
  allocation->file = -1;
}

AllocationPtr Memory::find(Address address) const {
  const auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return nullptr;
  const AllocationPtr& found = std::prev(next)->second;
  return address < found->range.end() ? found : nullptr;
}

bool Memory::overlaps_live(Range range) const {
  return std::any_of(allocations_.begin(), allocations_.end(), [&](const auto& known) {
    const Allocation& other = *known.second;
    return !other.freed && other.range.begin < range.end() && range.begin < other.range.end();
  });
}

}  // namespace troupe::cuda::host
