#include "actors/remote/detail/bounded_reader.hpp"

#include <caf/sec.hpp>

#include "actors/remote/detail/exact_writer.hpp"

namespace troupe::remote {
namespace {

/// The limit for nested objects: messages in messages, errors with messages, ...
constexpr unsigned kDeepest = 64;
constexpr const char* kEmptyMessage = "@<>";
/// A sequence may have eight elements per byte, as a sequence of bool has, and a few elements without any byte.
constexpr std::size_t kMostPerByte = 8;
constexpr std::size_t kMostWithoutBytes = 4096;

caf::span<const caf::byte> as_caf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const caf::byte*>(bytes.data()), bytes.size()};
}

}  // namespace

BoundedReader::BoundedReader(caf::execution_unit& unit, std::span<const std::byte> bytes,
                             std::span<const std::byte> own_node)
    : caf::deserializer(&unit), inner_(&unit, as_caf(bytes)), ended_(unit.system(), own_node) {}

caf::error BoundedReader::refusal() const {
  if (refusal_ || depth_ == 0) return refusal_;
  return caf::make_error(caf::sec::invalid_argument, "a message within a message that cannot be read");
}

caf::error BoundedReader::begin_object(std::uint16_t& type, std::string& name) {
  if (++depth_ > kDeepest) refusal_ = caf::make_error(caf::sec::invalid_argument, "a message nested too deeply");
  if (refusal_) return refusal_;
  auto error = inner_.begin_object(type, name);
  if (name == kEmptyMessage) --depth_;  // CAF does not report the end of this kind of object
  return error;
}

caf::error BoundedReader::end_object() {
  --depth_;
  return inner_.end_object();
}

caf::error BoundedReader::begin_sequence(std::size_t& count_elements) {
  // As CAF writes it: seven bits per byte, the lowest first, at most 32 bits in all.
  std::uint32_t count = 0;
  for (unsigned shift = 0;; shift += 7) {
    std::uint8_t seven = 0;
    if (shift > 28) return refusal_ = caf::make_error(caf::sec::end_of_stream);
    if (auto error = inner_(seven)) return error;
    count |= static_cast<std::uint32_t>(seven & 0x7f) << shift;
    if ((seven & 0x80) == 0) break;
  }
  if (count > kMostPerByte * inner_.remaining() + kMostWithoutBytes) {
    return refusal_ = caf::make_error(caf::sec::end_of_stream);
  }
  count_elements = count;
  return caf::none;
}

caf::error BoundedReader::end_sequence() { return inner_.end_sequence(); }
caf::error BoundedReader::apply_raw(std::size_t size_bytes, void* to) { return inner_.apply_raw(size_bytes, to); }

caf::error BoundedReader::apply_impl(std::int8_t& x) { return inner_(x); }
caf::error BoundedReader::apply_impl(std::uint8_t& x) { return inner_(x); }
caf::error BoundedReader::apply_impl(std::int16_t& x) { return inner_(x); }
caf::error BoundedReader::apply_impl(std::uint16_t& x) { return inner_(x); }
caf::error BoundedReader::apply_impl(std::int32_t& x) { return inner_(x); }
caf::error BoundedReader::apply_impl(std::uint32_t& x) { return inner_(x); }
caf::error BoundedReader::apply_impl(std::int64_t& x) { return inner_(x); }
caf::error BoundedReader::apply_impl(std::uint64_t& x) {
  if (auto error = inner_(x)) return error;
  const auto next = inner_.remainder();
  if (ended_.note(x, {reinterpret_cast<const std::byte*>(next.data()), next.size()})) return caf::none;
  return refusal_ = caf::make_error(caf::sec::invalid_argument, "a message with too many actors that have ended");
}
// As ExactWriter writes it.
caf::error BoundedReader::apply_impl(float& x) { return inner_.apply_raw(sizeof x, &x); }
caf::error BoundedReader::apply_impl(double& x) { return inner_.apply_raw(sizeof x, &x); }
caf::error BoundedReader::apply_impl(long double& x) { return inner_.apply_raw(kLongDoubleBytes, &x); }
caf::error BoundedReader::apply_impl(std::string& x) { return inner_(x); }
caf::error BoundedReader::apply_impl(std::u16string& x) { return inner_(x); }
caf::error BoundedReader::apply_impl(std::u32string& x) { return inner_(x); }

}  // namespace troupe::remote
