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

/// The payload of a message of a round.
enum class PayloadKind : std::uint8_t {
  contribution = 1,  // a rank's contribution to what the receiver adds up, and its sums
  result = 2,        // the sender's part after its work
  half_result = 3,   // the copy of the result in half precision
};
inline constexpr std::uint8_t kAborted = 4;  // in place of the payload kind: an AbortNotice

/// The part of an update that a round does. A step with a verdict has a separate round for each part; otherwise one
/// round does `all`. Only rounds with `all` or `parameters` have results.
enum class RoundPart : std::uint8_t { all, gradients, sums, parameters };

/// The plain operation of the communicator that a round does; none: it is part of an update.
enum class PlainOperation : std::uint8_t { none, all_reduce, reduce_scatter, all_gather, barrier };

/// One round as every rank must see it: a difference is an error, so that it does not become an endless wait.
struct RoundShape {
  std::uint64_t sequence = 0;  // of the chunk's rounds, of plain operations', or of those for sums alone; from 1
  std::uint64_t call = 0;      // number of the communicator's call, from 1
  std::uint64_t step = 0;      // of an update; for a plain operation, a hash of its parts' sizes
  std::uint64_t elements = 0;  // of the chunk; for a plain operation, the bytes of all parts
  std::uint32_t bucket = 0;    // for an update
  std::uint32_t chunk = 0;     // in the bucket
  PlainOperation plain = PlainOperation::none;  // none: it is an update
  bool sums = false;  // every rank gets every other's StepSums, not only ranks that add up gradients
  RoundPart part = RoundPart::all;
  friend bool operator==(const RoundShape&, const RoundShape&) = default;
};
/// Returns "step 4 bucket 1" or "a barrier"; short, since timelines keep 103 characters of a poison's reason.
std::string describe(const RoundShape& shape);

struct DirectHead {
  PayloadKind payload_kind = PayloadKind::contribution;
  std::uint32_t view = 0;
  std::uint32_t rank = 0;  // the sender
  GroupId group{};
  RoundShape round;
  StepSums sums;  // the sender's, in a contribution to an update
};

/// As it is sent: fixed fields in the order of the bytes. Both ends have the same byte order, which the hello compares.
inline constexpr std::size_t kDirectHeadBytes = 64 + sizeof(StepSums);
/// A larger group number does not fit into a head.
inline constexpr std::uint32_t kLargestGroup = 65535;
std::array<std::byte, kDirectHeadBytes> encode(const DirectHead& head) noexcept;
/// Nothing if the bytes are not a head: another size, mark or payload kind.
std::optional<DirectHead> decode(std::span<const std::byte> bytes) noexcept;

/// Tells the others why a rank will send nothing more, so that they need not wait for a deadline.
struct AbortNotice {
  std::uint32_t view = 0;
  std::uint32_t rank = 0;  // the sender
  Status why;
  GroupId group{};
};
std::vector<std::byte> encode(const AbortNotice& notice);
/// Nothing if the bytes are not one; the text is cut to a few hundred characters.
std::optional<AbortNotice> decode_abort_notice(std::span<const std::byte> bytes);

/// The group of a head or an abort notice; nothing if the bytes are neither.
std::optional<GroupId> group_of(std::span<const std::byte> bytes) noexcept;

}  // namespace troupe::collectives
