#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/compute/stream.hpp"

namespace troupe::collectives {

/// What a message of a round carries.
enum class Cargo : std::uint8_t {
  contribution = 1,  // a rank's share of what the receiver adds up, and its sums
  result = 2,        // the sender's part, done
  bf16_result = 3,   // the bf16 image of it
};
inline constexpr std::uint8_t kAborted = 4;  // in the same place: an AbortNotice

/// What of an update a round does: all of it, or one of its parts, of which a step with a verdict has each by itself.
/// Only a round that does all, or `parameters`, has results.
enum class RoundPart : std::uint8_t { all, gradients, sums, parameters };

/// What a round does that is no update: a plain operation of the communicator.
enum class PlainOperation : std::uint8_t { none, all_reduce, reduce_scatter, all_gather, barrier };

/// One round as every rank must see it: disagreement is an error, not a hang.
struct RoundShape {
  std::uint64_t sequence = 0;  // of the chunk's rounds, or of plain operations', or of those for sums alone; from 1
  std::uint64_t call = 0;      // of the communicator, from 1
  std::uint64_t step = 0;      // of an update
  std::uint64_t elements = 0;  // of the chunk; of a plain operation, a hash of its parts' sizes
  std::uint32_t bucket = 0;    // of an update
  std::uint32_t chunk = 0;     // of the bucket
  PlainOperation plain = PlainOperation::none;  // otherwise an update
  bool sums = false;  // every rank gets every other's StepSums, not only those that add up gradients
  RoundPart part = RoundPart::all;
  friend bool operator==(const RoundShape&, const RoundShape&) = default;
};
/// "step 4 bucket 1" or "a barrier"; short, for timelines keep 103 characters of why they were poisoned.
std::string describe(const RoundShape& shape);

struct DirectHead {
  Cargo cargo = Cargo::contribution;
  std::uint32_t view = 0;
  std::uint32_t rank = 0;  // the sender
  GroupId group{};
  RoundShape round;
  StepSums sums;  // the sender's, with a contribution to an update
};

/// As it travels: fixed fields in the order of the bytes. Both ends have one byte order, which the hello compares.
inline constexpr std::size_t kDirectHeadBytes = 64 + sizeof(StepSums);
/// Groups with a higher number have no room in it.
inline constexpr std::uint32_t kLargestGroup = 65535;
std::array<std::byte, kDirectHeadBytes> encode(const DirectHead& head) noexcept;
/// Nothing when the bytes are not a head: another size, mark or cargo.
std::optional<DirectHead> decode(std::span<const std::byte> bytes) noexcept;

/// Tells the others why a rank will send no more, so that they need not wait for a deadline.
struct AbortNotice {
  std::uint32_t view = 0;
  std::uint32_t rank = 0;  // the sender
  Status why;
  GroupId group{};
};
std::vector<std::byte> encode(const AbortNotice& notice);
/// Nothing when the bytes are not one; what they say is cut to a few hundred characters.
std::optional<AbortNotice> decode_abort_notice(std::span<const std::byte> bytes);

/// The group of either of them; nothing when the bytes are neither.
std::optional<GroupId> group_of(std::span<const std::byte> bytes) noexcept;

}  // namespace troupe::collectives
