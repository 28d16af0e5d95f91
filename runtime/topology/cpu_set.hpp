#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::topology {

/// A set of processors, by the system's numbers, below kEnd.
class CpuSet {
 public:
  static constexpr std::uint32_t kEnd = 1 << 16;

  /// Throws Error{invalid} for a number that is not below kEnd.
  void add(std::uint32_t cpu);
  void add(const CpuSet& other);
  bool has(std::uint32_t cpu) const noexcept;
  bool includes(const CpuSet& other) const noexcept;
  bool empty() const noexcept { return words_.empty(); }
  std::uint32_t count() const noexcept;
  std::vector<std::uint32_t> numbers() const;
  friend bool operator==(const CpuSet&, const CpuSet&) = default;

  /// "0-3,8", the form of the kernel and taskset.
  std::string list() const;
  /// Throws Error{invalid}.
  static CpuSet from_list(std::string_view text);
  /// "0x000000ff,,0x0": hwloc's 32-bit words, highest first. An infinite set ("0xf...f") is read as empty, because it
  /// names no processors.
  std::string mask() const;
  static CpuSet from_mask(std::string_view text);

 private:
  void trim();
  std::vector<std::uint64_t> words_;  // the last word is not 0
};

}  // namespace troupe::topology
