#include "runtime/onnx/detail/onnx_tensor.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/onnx/detail/protobuf_reader.hpp"

namespace troupe::detail {
namespace {

using Bytes = std::span<const std::byte>;

/// Types as onnx.proto numbers them.
enum Type : std::int64_t {
  kF32 = 1,
  kU8 = 2,
  kI8 = 3,
  kI32 = 6,
  kI64 = 7,
  kBool = 9,
  kF16 = 10,
  kF64 = 11,
  kBf16 = 16
};

std::size_t bytes_of_each(std::int64_t type) {
  switch (type) {
    case kU8:
    case kI8:
    case kBool: return 1;
    case kF16:
    case kBf16: return 2;
    case kF32:
    case kI32: return 4;
    case kI64:
    case kF64: return 8;
    default: return 0;
  }
}

/// IEEE 754 binary16.
float from_f16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int fraction = bits & 0x3ff;
  float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                             : std::ldexp(static_cast<float>(fraction | 0x400), exponent - 25);
  if (exponent == 0x1f) size = fraction == 0 ? HUGE_VALF : std::nanf("");
  return (bits & 0x8000) != 0 ? -size : size;
}

/// What a tensor message has; at most one of the lists has numbers.
struct Message {
  std::int64_t type = 0, place = 0;
  std::vector<std::int64_t> dims, integers;
  std::vector<float> f32;
  std::vector<double> f64;
  std::string_view name;
  Bytes raw;
  std::vector<Bytes> external;
};

Message message_in(Bytes bytes) {
  Message made;
  for (ProtobufReader reader(bytes); reader.next();) {
    switch (reader.field()) {
      case 1: reader.numbers(made.dims); break;
      case 2: made.type = reader.number(); break;
      case 4: reader.f32s(made.f32); break;
      case 5:
      case 7: reader.numbers(made.integers); break;
      case 8: made.name = reader.text(); break;
      case 9: made.raw = reader.bytes(); break;
      case 10: reader.f64s(made.f64); break;
      case 13: made.external.push_back(reader.bytes()); break;
      case 14: made.place = reader.number(); break;
      default: reader.skip();
    }
  }
  return made;
}

std::uint64_t count_of(const Message& message) {
  std::uint64_t count = 1;
  for (const std::int64_t dim : message.dims) {
    const bool fits = dim >= 0 && !__builtin_mul_overflow(count, static_cast<std::uint64_t>(dim), &count);
    TROUPE_CHECK(fits, Code::invalid, "tensor \"", message.name, "\" has a dimension of ", dim);
  }
  return count;
}

std::uint64_t whole_in(const Message& message, std::string_view words) {
  const auto number = number_in<std::uint64_t>(words);
  TROUPE_CHECK(number, Code::invalid, "tensor \"", message.name, "\" lies at \"", words,
               "\" of another file, which is no number of bytes");
  return *number;
}

std::vector<std::byte> external_bytes(const Message& message, std::uint64_t size_bytes, ExternalData& external) {
  std::string_view location;
  std::uint64_t offset = 0, length = size_bytes;
  for (const Bytes entry : message.external) {
    std::string_view key, value;
    for (ProtobufReader reader(entry); reader.next();) {
      if (reader.field() == 1)
        key = reader.text();
      else if (reader.field() == 2)
        value = reader.text();
      else
        reader.skip();
    }
    if (key == "location") location = value;
    if (key == "offset") offset = whole_in(message, value);
    if (key == "length") length = whole_in(message, value);
  }
  TROUPE_CHECK(length == size_bytes, Code::invalid, "tensor \"", message.name, "\" has ", length,
               " bytes in another file, its dimensions have ", size_bytes);
  return external.read(message.name, location, offset, size_bytes);
}

/// Each element of `raw`, little-endian, as `as` makes it.
template <class Element, class To, class As>
void take_raw(Bytes raw, std::vector<To>& to, As as) {
  to.resize(raw.size() / sizeof(Element));
  for (std::size_t i = 0; i < to.size(); ++i) {
    Element element;
    std::memcpy(&element, raw.data() + i * sizeof(Element), sizeof(Element));
    to[i] = as(element);
  }
}

void take_raw(OnnxNumbers& numbers, std::int64_t type, Bytes raw) {
  const auto as_f32 = [](auto number) { return static_cast<float>(number); };
  const auto as_whole = [](auto number) { return static_cast<std::int64_t>(number); };
  switch (type) {
    case kF32: return take_raw<float>(raw, numbers.f32, as_f32);
    case kF64: return take_raw<double>(raw, numbers.f32, as_f32);
    case kF16: return take_raw<std::uint16_t>(raw, numbers.f32, from_f16);
    case kBf16: return take_raw<std::uint16_t>(raw, numbers.f32, from_bf16);
    case kI64: return take_raw<std::int64_t>(raw, numbers.integers, as_whole);
    case kI32: return take_raw<std::int32_t>(raw, numbers.integers, as_whole);
    case kI8: return take_raw<std::int8_t>(raw, numbers.integers, as_whole);
    default: return take_raw<std::uint8_t>(raw, numbers.integers, as_whole);
  }
}

/// Floats of 16 bits are told as integers with their bits.
void take_lists(OnnxNumbers& numbers, Message& message) {
  const auto convert = [&](const auto& from, auto as) {
    for (const auto number : from) numbers.f32.push_back(as(number));
  };
  switch (message.type) {
    case kF32: numbers.f32 = std::move(message.f32); break;
    case kF64: convert(message.f64, [](double number) { return static_cast<float>(number); }); break;
    case kF16: convert(message.integers, [](std::int64_t bits) { return from_f16(std::uint16_t(bits)); }); break;
    case kBf16: convert(message.integers, [](std::int64_t bits) { return from_bf16(std::uint16_t(bits)); }); break;
    default: numbers.integers = std::move(message.integers);
  }
}

}  // namespace

bool is_whole(std::int64_t type) noexcept { return type != kF32 && type != kF16 && type != kF64 && type != kBf16; }

OnnxNumbers parse_tensor(Bytes bytes, ExternalData& external) {
  Message message = message_in(bytes);
  const std::size_t each = bytes_of_each(message.type);
  TROUPE_CHECK(each > 0, Code::unsupported, "tensor \"", message.name, "\" has type ", message.type,
               " of ONNX; this build reads floats of 16, 32 and 64 bits, and whole numbers; convert it");
  const std::uint64_t count = count_of(message);
  std::uint64_t size_bytes = 0;
  TROUPE_CHECK(!__builtin_mul_overflow(count, each, &size_bytes), Code::invalid, "tensor \"", message.name, "\" has ",
               count, " numbers");
  OnnxNumbers numbers;
  numbers.name = message.name;
  numbers.whole = is_whole(message.type);
  if (message.place != 0) {
    take_raw(numbers, message.type, external_bytes(message, size_bytes, external));
  } else if (!message.raw.empty()) {
    TROUPE_CHECK(message.raw.size() % each == 0, Code::invalid, message.raw.size(), " bytes of numbers of ", each);
    take_raw(numbers, message.type, message.raw);
  } else {
    take_lists(numbers, message);
  }
  TROUPE_CHECK(count == numbers.count(), Code::invalid, "tensor \"", message.name, "\" has ", numbers.count(),
               " numbers, which its dimensions do not");
  numbers.dims = std::move(message.dims);
  return numbers;
}

}  // namespace troupe::detail
