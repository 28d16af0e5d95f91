#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "devices/cpu/onednn.hpp"
#include "runtime/memory/lives.hpp"

namespace troupe::cpu {

/// Gives pages back.
struct UnmapPages {
  std::size_t size_bytes = 0;
  void operator()(std::byte* pages) const noexcept;
};

/// Where a program's tensors lie: all of them in one arena, where those that are never needed at the same time share
/// memory. While calls are made, a tensor has an address that stands for its place and that nothing may be read from;
/// each memory of oneDNN with such an address must then be shown to touch(), and afterwards to set_address(). A
/// program for fewer rows takes the arena of one for more, its room, where that is large enough.
class Places {
 public:
  /// `shares`: otherwise no two tensors share memory.
  Places(const dnnl::engine& engine, const Places* room, bool shares) : engine_(engine), room_(room), shares_(shares) {}
  Places(Places&&) = default;

  /// A place of its own.
  dnnl::memory take(const dnnl::memory::desc& desc);
  /// The same place in another shape, of at most as many bytes.
  dnnl::memory alias(const dnnl::memory& of, const dnnl::memory::desc& desc) const {
    return {desc, engine_, of.get_data_handle()};
  }
  /// Field `index` of a batch; its address is set by set_field().
  dnnl::memory field(std::size_t index, const dnnl::memory::desc& desc);
  void set_field(std::size_t index, void* first);

  /// How many places there are so far.
  std::size_t count() const noexcept { return blocks_.size(); }
  /// The place where `of` lies, below count(); count(): in none.
  std::size_t find(const dnnl::memory& of) const;
  /// From here on another list of calls is gone through: a tensor keeps what it has from the first call of a list that
  /// uses it to the last one, and nothing from one list to the next.
  void begin_list() noexcept { list_begin_ = call_ + 1; }
  /// The next call of the list, which are gone through in the order of their execution.
  void next_call() noexcept { ++call_; }
  /// The present call uses `of`.
  void touch(const dnnl::memory& of);
  /// Every place gets its memory. Nothing is taken or touched afterwards.
  void settle();
  /// Gives `of` the address of its place, unless it has one. After settle().
  void set_address(const dnnl::memory& of) const;

  /// Of the arena, and what it would be if nothing shared memory.
  std::uint64_t size_bytes() const noexcept { return settled_.size_bytes; }
  std::uint64_t size_bytes_apart() const { return place_apart(blocks_).size_bytes; }
  /// The most that is needed at one time: no arena can be smaller.
  std::uint64_t least_bytes() const { return most_alive(blocks_); }

 private:
  dnnl::engine engine_;
  const Places* room_;
  bool shares_;
  std::vector<LivingBlock> blocks_;         // by place; a life for each list that uses it
  std::vector<std::uint64_t> first_bytes_;  // by place, of the addresses that stand for them; ascending
  std::uint64_t next_byte_ = 0;
  std::uint32_t call_ = 0, list_begin_ = 1;
  SharedPlaces settled_;
  std::unique_ptr<std::byte, UnmapPages> arena_;  // none: the room's, or nothing is needed
  std::byte* first_ = nullptr;
  std::vector<std::vector<dnnl::memory>> fields_;
};

}  // namespace troupe::cpu
