#include "transports/collectives/detail/direct_head.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runtime/base/error.hpp"

namespace troupe::collectives {
namespace {

constexpr std::uint32_t kMark = 0x33584454;  // "TDX3"

constexpr std::size_t kLongestReason = 400;

struct Packed {
  std::uint32_t mark;
  std::uint8_t payload_kind;
  std::uint8_t plain;
  std::uint8_t sums;
  std::uint8_t code;  // of an AbortNotice
  std::uint32_t view;
  std::uint32_t rank;
  std::uint32_t bucket;
  std::uint16_t part;
  std::uint16_t group;
  std::uint64_t sequence;
  std::uint64_t call;
  std::uint64_t step;
  std::uint64_t elements;
  std::uint32_t chunk;
  std::uint32_t reserved;
  StepSums step_sums;
};
static_assert(sizeof(Packed) == kDirectHeadBytes && std::is_trivially_copyable_v<Packed>);

}  // namespace

std::string describe(const RoundShape& shape) {
  constexpr std::array<std::string_view, 4> kParts{"", " gradients", " sums", " parameters"};
  constexpr std::array<std::string_view, 5> kPlain{"", "an all_reduce", "a reduce_scatter", "an all_gather",
                                                   "a barrier"};
  if (shape.plain != PlainOperation::none) return std::string{kPlain.at(static_cast<std::size_t>(shape.plain))};
  return text("step ", shape.step, " bucket ", shape.bucket, kParts.at(static_cast<std::size_t>(shape.part)));
}

std::array<std::byte, kDirectHeadBytes> encode(const DirectHead& head) noexcept {
  Packed packed{};
  packed.mark = kMark;
  packed.payload_kind = static_cast<std::uint8_t>(head.payload_kind);
  packed.plain = static_cast<std::uint8_t>(head.round.plain);
  packed.sums = head.round.sums ? 1 : 0;
  packed.part = static_cast<std::uint16_t>(head.round.part);
  packed.group = static_cast<std::uint16_t>(head.group.value);
  packed.view = head.view;
  packed.rank = head.rank;
  packed.bucket = head.round.bucket;
  packed.chunk = head.round.chunk;
  packed.sequence = head.round.sequence;
  packed.call = head.round.call;
  packed.step = head.round.step;
  packed.elements = head.round.elements;
  packed.step_sums = head.sums;
  std::array<std::byte, kDirectHeadBytes> bytes;
  std::memcpy(bytes.data(), &packed, sizeof packed);
  return bytes;
}

std::optional<DirectHead> decode(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() != kDirectHeadBytes) return std::nullopt;
  Packed packed;
  std::memcpy(&packed, bytes.data(), sizeof packed);
  if (packed.mark != kMark || packed.payload_kind < 1 || packed.payload_kind > 3 ||
      packed.plain > static_cast<std::uint8_t>(PlainOperation::barrier) || packed.sums > 1 ||
      packed.part > static_cast<std::uint16_t>(RoundPart::parameters)) {
    return std::nullopt;
  }
  DirectHead head;
  head.payload_kind = static_cast<PayloadKind>(packed.payload_kind);
  head.view = packed.view;
  head.rank = packed.rank;
  head.group = {packed.group};
  head.round = {packed.sequence,
                packed.call,
                packed.step,
                packed.elements,
                packed.bucket,
                packed.chunk,
                static_cast<PlainOperation>(packed.plain),
                packed.sums == 1,
                static_cast<RoundPart>(packed.part)};
  head.sums = packed.step_sums;
  return head;
}

std::vector<std::byte> encode(const AbortNotice& notice) {
  Packed packed{};
  packed.mark = kMark;
  packed.payload_kind = kAborted;
  packed.code = static_cast<std::uint8_t>(notice.why.code());
  packed.view = notice.view;
  packed.rank = notice.rank;
  packed.group = static_cast<std::uint16_t>(notice.group.value);
  const std::string_view why = notice.why.text().substr(0, kLongestReason);
  std::vector<std::byte> bytes(sizeof packed + why.size());
  std::memcpy(bytes.data(), &packed, sizeof packed);
  std::memcpy(bytes.data() + sizeof packed, why.data(), why.size());
  return bytes;
}

std::optional<AbortNotice> decode_abort_notice(std::span<const std::byte> bytes) {
  if (bytes.size() < kDirectHeadBytes) return std::nullopt;
  Packed packed;
  std::memcpy(&packed, bytes.data(), sizeof packed);
  const bool known = packed.code > 0 && packed.code <= static_cast<std::uint8_t>(Code::corrupt);
  if (packed.mark != kMark || packed.payload_kind != kAborted || !known) return std::nullopt;
  const std::span<const std::byte> why = bytes.subspan(sizeof packed);
  const std::string reason(reinterpret_cast<const char*>(why.data()), std::min(why.size(), kLongestReason));
  return AbortNotice{packed.view, packed.rank, {static_cast<Code>(packed.code), reason}, {packed.group}};
}

std::optional<GroupId> group_of(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < kDirectHeadBytes) return std::nullopt;
  Packed packed;
  std::memcpy(&packed, bytes.data(), sizeof packed);
  if (packed.mark != kMark) return std::nullopt;
  return GroupId{packed.group};
}

}  // namespace troupe::collectives
