#pragma once

#include <cstdint>
#include <vector>

#include "runtime/compute/stream.hpp"
#include "runtime/memory/arena.hpp"
#include "transports/collectives/detail/ownership.hpp"

namespace troupe::collectives {

/// What a group wants of its staging memory beside room for what others contribute.
struct StagingNeeds {
  std::uint64_t packed_bytes = 0;  // of an element that goes through a filter; 0: none does
  bool device_memory = false;      // whatever leaves or arrives passes through it
  bool bf16 = false;               // results have a bf16 image
};

/// Where what arrives for one rank lands, and what it packs waits to leave, in the memory that its group gave for that.
///
/// Gradients of a bucket land where those of the round before did: a rank contributes again once it has this rank's
/// result, so they were read by then. StepSums take turns of two rounds: to a rank that owns nothing of a chunk, and so
/// answers nobody, others may be one round ahead.
class Staging {
 public:
  Staging(const Ownership& ownership, std::uint32_t self, const StagingNeeds& needs);
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// The memory, of at least size_bytes().
  void place(const Memory& memory) noexcept { memory_ = memory; }

  /// Channels are the chunks, in their order, and then those of plain operations and of sums alone.
  std::size_t channel_of_plain() const noexcept { return ownership_.chunks().size(); }
  std::size_t channel_of_sums() const noexcept { return channel_of_plain() + 1; }
  std::size_t count_channels() const noexcept { return channel_of_sums() + 1; }

  /// Those of `rank` in a round, and what all add up to. Its own are there where its memory is the device's.
  Memory sums(std::size_t channel, std::uint64_t sequence, std::uint32_t rank) const noexcept;
  Memory total(std::size_t channel, std::uint64_t sequence) const noexcept;
  /// Another rank's contribution to this rank's part, or a range of it, of a bucket: f32, or packed where there is a
  /// filter.
  Memory contribution(std::uint32_t bucket, std::uint32_t rank, const Part& part) const noexcept;
  /// Where there is a filter: room for `count` f32, at most those of this rank's largest part of a bucket, to add up in
  /// and to unpack to. The stream's, in its order.
  Memory summed(std::uint64_t count) const noexcept;
  Memory unpacked(std::uint64_t count) const noexcept;
  /// What another rank contributes to a plain operation, at most Ownership::largest_part() of f32.
  Memory reduced(std::uint32_t rank, std::uint64_t size_bytes) const noexcept;
  /// This rank's gradients over a range of a bucket, packed where there is a filter.
  Memory leaving(std::uint32_t bucket, const Part& part) const noexcept;
  // Where memory is the device's:
  /// New parameters on their way from or to it, and their bf16 image.
  Memory results(const Part& part) const noexcept;
  Memory image(const Part& part) const noexcept;
  /// A part of a plain operation, at most Ownership::largest_part() of f32.
  Memory plain(std::uint32_t rank, std::uint64_t size_bytes) const noexcept;

 private:
  const Ownership& ownership_;
  const std::uint32_t self_;
  const StagingNeeds needs_;
  const std::uint64_t element_bytes_;        // of what travels
  std::vector<std::uint64_t> contribution_;  // first byte, by bucket
  std::vector<std::uint64_t> leaving_;       // likewise
  std::uint64_t reduced_ = 0;
  std::uint64_t summed_ = 0, unpacked_ = 0;            // of a filter
  std::uint64_t results_ = 0, image_ = 0, plain_ = 0;  // of device memory
  std::uint64_t size_bytes_ = 0;
  Memory memory_;
};

}  // namespace troupe::collectives
