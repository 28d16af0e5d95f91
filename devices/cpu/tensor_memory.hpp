#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "devices/cpu/onednn.hpp"
#include "runtime/memory/lifetimes.hpp"

namespace troupe::cpu {

/// Unmaps pages.
struct UnmapPages {
  std::size_t size_bytes = 0;
  void operator()(std::byte* pages) const noexcept;
};

/// The memory of a program's tensors: one arena, in which tensors that are never needed at the same time share memory.
/// While calls are made, a tensor has an address that only represents its place and must not be read; every oneDNN
/// memory with such an address must then be passed to touch(), and later to set_address(). A program for fewer rows
/// uses the arena of a program for more rows (`room`) if that is large enough.
class TensorMemory {
 public:
  /// With `shares` false, no two tensors share memory.
  TensorMemory(const dnnl::engine& engine, const TensorMemory* room, bool shares)
      : engine_(engine), room_(room), shares_(shares) {}
  TensorMemory(TensorMemory&&) = default;

  /// A new place.
  dnnl::memory take(const dnnl::memory::desc& desc);
  /// The same place with another shape, which needs at most the same number of bytes.
  dnnl::memory alias(const dnnl::memory& of, const dnnl::memory::desc& desc) const {
    return {desc, engine_, of.get_data_handle()};
  }
  /// Field `index` of a batch; its address is set by set_field().
  dnnl::memory field(std::size_t index, const dnnl::memory::desc& desc);
  void set_field(std::size_t index, void* first);

  /// The number of places so far.
  std::size_t count() const noexcept { return blocks_.size(); }
  /// The number of the place that contains `of`, below count(); count(): it is in no place.
  std::size_t find(const dnnl::memory& of) const;
  /// Begins another list of calls. A tensor keeps its contents from the first to the last call of a list that uses it;
  /// contents do not last from one list to the next.
  void begin_list() noexcept { list_begin_ = call_ + 1; }
  /// Begins the next call of the list; calls are visited in the order of their execution.
  void next_call() noexcept { ++call_; }
  /// The present call uses `of`.
  void touch(const dnnl::memory& of);
  /// Gives every place its memory. take() and touch() must not be called afterwards.
  void assign_offsets();
  /// Gives `of` the address of its place if it does not have one. Call it after assign_offsets().
  void set_address(const dnnl::memory& of) const;

  /// The size of the arena, and what it would be if no tensors shared memory.
  std::uint64_t size_bytes() const noexcept { return assigned_.size_bytes; }
  std::uint64_t size_bytes_apart() const { return place_apart(blocks_).size_bytes; }
  /// The most that is needed at any one time: no arena can be smaller.
  std::uint64_t least_bytes() const { return most_alive(blocks_); }

 private:
  dnnl::engine engine_;
  const TensorMemory* room_;
  bool shares_;
  std::vector<BlockLifetimes> blocks_;      // by place; one lifetime for each list that uses it
  std::vector<std::uint64_t> first_bytes_;  // by place, of the addresses that represent them; ascending
  std::uint64_t next_byte_ = 0;
  std::uint32_t call_ = 0, list_begin_ = 1;
  BlockOffsets assigned_;
  std::unique_ptr<std::byte, UnmapPages> arena_;  // null: the room's is used, or nothing is needed
  std::byte* first_ = nullptr;
  std::vector<std::vector<dnnl::memory>> fields_;
};

}  // namespace troupe::cpu
