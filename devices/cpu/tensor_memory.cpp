#include "devices/cpu/tensor_memory.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace troupe::cpu {

using dnnl::memory;

namespace {

/// Addresses from here on represent places. No process can have memory there: bits 52 to 55 are set, and on x86-64 and
/// AArch64 no address has these set while bit 63 is clear.
constexpr std::uintptr_t kFirstStandIn = std::uintptr_t{0xF0} << 48;

}  // namespace

void UnmapPages::operator()(std::byte* pages) const noexcept { (void)munmap(pages, size_bytes); }

memory TensorMemory::take(const memory::desc& desc) {
  const std::uint64_t size = desc.get_size();
  if (size == 0) return {desc, engine_, nullptr};
  first_bytes_.push_back(next_byte_);
  blocks_.push_back({size});
  next_byte_ += size;
  return {desc, engine_, reinterpret_cast<void*>(kFirstStandIn + first_bytes_.back())};
}

memory TensorMemory::field(std::size_t index, const memory::desc& desc) {
  if (fields_.size() <= index) fields_.resize(index + 1);
  return fields_[index].emplace_back(desc, engine_, nullptr);
}

void TensorMemory::set_field(std::size_t index, void* first) {
  if (index >= fields_.size()) return;
  for (const memory& part : fields_[index]) part.set_data_handle(first);
}

std::size_t TensorMemory::find(const memory& of) const {
  const auto address = reinterpret_cast<std::uintptr_t>(of ? of.get_data_handle() : nullptr);
  if (address < kFirstStandIn || address >= kFirstStandIn + next_byte_) return count();
  const auto after = std::ranges::upper_bound(first_bytes_, address - kFirstStandIn);
  return static_cast<std::size_t>(after - first_bytes_.begin()) - 1;
}

void TensorMemory::touch(const memory& of) {
  const std::size_t place = find(of);
  if (place == count()) return;
  std::vector<Lifetime>& lifetimes = blocks_[place].lifetimes;
  if (lifetimes.empty() || lifetimes.back().first < list_begin_)
    lifetimes.push_back({call_, call_});
  else
    lifetimes.back().last = call_;
}

void TensorMemory::assign_offsets() {
  assigned_ = shares_ ? share_by_lifetimes(blocks_) : place_apart(blocks_);
  if (assigned_.size_bytes == 0) return;
  if (room_ != nullptr && room_->assigned_.size_bytes >= assigned_.size_bytes) {
    first_ = room_->first_;
    return;
  }
  void* const pages = mmap(nullptr, assigned_.size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TROUPE_CHECK_ERRNO(pages != MAP_FAILED, Code::out_of_memory, "cannot get ", assigned_.size_bytes,
                     " bytes for activations");
  // A step goes through more memory than the processor has translations of small pages for. A system without large ones
  // refuses, which changes nothing.
  madvise(pages, assigned_.size_bytes, MADV_HUGEPAGE);
  first_ = static_cast<std::byte*>(pages);
  arena_ = {first_, UnmapPages{assigned_.size_bytes}};
}

void TensorMemory::set_address(const memory& of) const {
  const std::size_t place = find(of);
  if (place == count()) return;
  const auto address = reinterpret_cast<std::uintptr_t>(of.get_data_handle());
  of.set_data_handle(first_ + assigned_.offsets[place] + (address - kFirstStandIn - first_bytes_[place]));
}

}  // namespace troupe::cpu
