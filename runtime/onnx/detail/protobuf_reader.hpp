#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

namespace troupe::detail {

/// Goes through the fields of one message in protobuf's wire format, which stays alive. Every read is bounded by the
/// message; throws Error{invalid} where it is cut off, or not of that format.
class ProtobufReader {
 public:
  explicit ProtobufReader(std::span<const std::byte> message) noexcept : rest_(message) {}

  /// Comes to the next field; false at the end. Its value must be taken, by one of the calls below, before the next
  /// one.
  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t key = raw_number();
    field_ = static_cast<std::uint32_t>(key >> 3);
    type_ = static_cast<std::uint32_t>(key & 7);
    TROUPE_CHECK(key >> 3 > 0 && key >> 3 < (1U << 29), Code::invalid, "no message of protobuf: it has field ",
                 key >> 3);
    return true;
  }
  std::uint32_t field() const noexcept { return field_; }

  std::int64_t number() {
    check_type(kVarint);
    return static_cast<std::int64_t>(raw_number());
  }
  float f32() {
    check_type(kFixed32);
    return std::bit_cast<float>(static_cast<std::uint32_t>(fixed(4)));
  }
  /// A text, numbers without keys, or a message.
  std::span<const std::byte> bytes() {
    check_type(kBytes);
    return take(raw_number());
  }
  std::string_view text() {
    const std::span<const std::byte> found = bytes();
    return {reinterpret_cast<const char*>(found.data()), found.size()};
  }
  /// One number of a list, or several of them without keys.
  void numbers(std::vector<std::int64_t>& to) {
    if (type_ != kBytes) return to.push_back(number());
    ProtobufReader all(bytes());
    while (!all.rest_.empty()) to.push_back(static_cast<std::int64_t>(all.raw_number()));
  }
  void f32s(std::vector<float>& to) {
    if (type_ != kBytes) return to.push_back(f32());
    ProtobufReader all(bytes());
    while (!all.rest_.empty()) to.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(all.fixed(4))));
  }
  void f64s(std::vector<double>& to) {
    if (type_ == kFixed64) return to.push_back(std::bit_cast<double>(fixed(8)));
    ProtobufReader all(bytes());
    while (!all.rest_.empty()) to.push_back(std::bit_cast<double>(all.fixed(8)));
  }
  void skip() {
    switch (type_) {
      case kVarint: raw_number(); break;
      case kFixed64: take(8); break;
      case kBytes: bytes(); break;
      case kFixed32: take(4); break;
      default: fail(Code::invalid, troupe::text("no message of protobuf: field ", field_, " has type ", type_));
    }
  }

 private:
  static constexpr std::uint32_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

  void check_type(std::uint32_t wanted) const {
    TROUPE_CHECK(type_ == wanted, Code::invalid, "field ", field_, " has type ", type_, " of protobuf, not ", wanted);
  }
  std::span<const std::byte> take(std::uint64_t size_bytes) {
    TROUPE_CHECK(size_bytes <= rest_.size(), Code::invalid, "cut off: ", size_bytes, " bytes of field ", field_, ", ",
                 rest_.size(), " are there");
    const auto taken = rest_.first(size_bytes);
    rest_ = rest_.subspan(size_bytes);
    return taken;
  }
  std::uint64_t fixed(std::size_t size_bytes) {
    std::uint64_t value = 0;
    int shift = 0;
    for (const std::byte byte : take(size_bytes)) {
      value |= static_cast<std::uint64_t>(byte) << shift;
      shift += 8;
    }
    return value;
  }
  std::uint64_t raw_number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<std::uint64_t>(take(1)[0]);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail(Code::invalid, "no message of protobuf: a number has more than 64 bits");
  }

  std::span<const std::byte> rest_;
  std::uint32_t field_ = 0;
  std::uint32_t type_ = 0;
};

}  // namespace troupe::detail
