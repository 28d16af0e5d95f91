#pragma once

#include <cstdint>
#include <vector>

#include "runtime/compute/stream.hpp"
#include "runtime/memory/arena.hpp"
#include "transports/collectives/detail/ownership.hpp"

namespace troupe::collectives {

/// What a group needs in its staging memory, in addition to space for the others' contributions.
struct StagingNeeds {
  std::uint64_t packed_bytes = 0;  // for an element that goes through a compressor; 0: there is no compressor
  bool device_memory = false;      // everything that is received passes through it
  bool sends_staged = false;       // and everything that is sent
  bool half = false;               // results have a copy in half precision
};

/// Where messages for one rank arrive, and where packed data waits to be sent, in the memory that its group provides.
///
/// Gradients of a bucket are received in the same place in every round: a rank contributes again after it has this
/// rank's result, so the old ones were read by then. StepSums alternate between two rounds: others may be one round
/// ahead of a rank that owns nothing of a chunk and so sends no result.
class Staging {
 public:
  Staging(const Ownership& ownership, std::uint32_t self, const StagingNeeds& needs);
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// Sets the memory, of at least size_bytes().
  void place(const Memory& memory) noexcept { memory_ = memory; }

  /// Channels are the chunks, in their order, then those of plain operations and of sums alone.
  std::size_t channel_of_plain() const noexcept { return ownership_.chunks().size(); }
  std::size_t channel_of_sums() const noexcept { return channel_of_plain() + 1; }
  std::size_t count_channels() const noexcept { return channel_of_sums() + 1; }

  /// The sums of `rank` in a round, and their total. A rank's own sums are there if its memory is the device's.
  Memory sums(std::size_t channel, std::uint64_t sequence, std::uint32_t rank) const noexcept;
  Memory total(std::size_t channel, std::uint64_t sequence) const noexcept;
  /// Another rank's contribution to this rank's part of a bucket, or to a range of that part: f32, or packed if there
  /// is a compressor.
  Memory contribution(std::uint32_t bucket, std::uint32_t rank, const ElementRange& part) const noexcept;
  /// With a compressor: space for `count` f32, at most as many as this rank's largest part of a bucket has, for adding
  /// up and for unpacking. Used in the order of the exchange's stream.
  Memory summed(std::uint64_t count) const noexcept;
  Memory unpacked(std::uint64_t count) const noexcept;
  /// What another rank contributes to a plain operation, at most Ownership::largest_part() of f32.
  Memory reduced(std::uint32_t rank, std::uint64_t size_bytes) const noexcept;
  /// This rank's gradients over a range of a bucket, packed if there is a compressor.
  Memory leaving(std::uint32_t bucket, const ElementRange& part) const noexcept;
  // If memory is the device's:
  /// New parameters on their way from or to the device, and their copy in half precision.
  Memory results(const ElementRange& part) const noexcept;
  Memory image(const ElementRange& part) const noexcept;
  /// A part of a plain operation, at most Ownership::largest_part() of f32.
  Memory plain(std::uint32_t rank, std::uint64_t size_bytes) const noexcept;

 private:
  const Ownership& ownership_;
  const std::uint32_t self_;
  const StagingNeeds needs_;
  const std::uint64_t element_bytes_;        // as sent
  std::vector<std::uint64_t> contribution_;  // offset of the first byte, by bucket
  std::vector<std::uint64_t> leaving_;       // likewise
  std::uint64_t reduced_ = 0;
  std::uint64_t summed_ = 0, unpacked_ = 0;            // with a compressor
  std::uint64_t results_ = 0, image_ = 0, plain_ = 0;  // with device memory
  std::uint64_t size_bytes_ = 0;
  Memory memory_;
};

}  // namespace troupe::collectives
