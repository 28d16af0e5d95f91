#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::detail {

/// Writes the fields of one message in protobuf's wire format, in the order of the calls.
class ProtobufMessage {
 public:
  ProtobufMessage& number(std::uint32_t field, std::int64_t value) {
    return key(field, 0).raw_number(static_cast<std::uint64_t>(value));
  }
  ProtobufMessage& f32(std::uint32_t field, float value) {
    key(field, 5);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift);
    return *this;
  }
  /// A text or a message.
  ProtobufMessage& bytes(std::uint32_t field, std::string_view value) {
    start(field, value.size());
    bytes_ += value;
    return *this;
  }
  ProtobufMessage& message(std::uint32_t field, const ProtobufMessage& value) { return bytes(field, value.bytes_); }
  /// The bytes before a field's content of `size_bytes` bytes.
  ProtobufMessage& start(std::uint32_t field, std::uint64_t size_bytes) { return key(field, 2).raw_number(size_bytes); }
  const std::string& str() const noexcept { return bytes_; }

 private:
  ProtobufMessage& key(std::uint32_t field, std::uint32_t type) { return raw_number(field << 3 | type); }
  ProtobufMessage& raw_number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
    return *this;
  }
  std::string bytes_;
};

}  // namespace troupe::detail
