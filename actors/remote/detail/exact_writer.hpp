#pragma once

#include <caf/binary_serializer.hpp>
#include <caf/serializer.hpp>
#include <limits>
#include <vector>

namespace troupe::remote {

/// The bytes of a long double that have a meaning: those of x86 have 64 binary digits, and unused bytes behind them.
inline constexpr std::size_t kLongDoubleBytes =
    std::numeric_limits<long double>::digits == 64 ? 10 : sizeof(long double);

/// CAF's binary serializer, except that floating-point numbers are written as their bits: CAF 0.17 turns a NaN into -1
/// and does not return for an infinity, and it writes a long double as text, of which it reads an infinity as 0.
/// BoundedReader reads the result. One thread.
class ExactWriter final : public caf::serializer {
 public:
  ExactWriter(caf::execution_unit* unit, std::vector<char>& bytes) : caf::serializer(unit), inner_(unit, bytes) {}

  caf::error begin_object(std::uint16_t& type, std::string& name) override { return inner_.begin_object(type, name); }
  caf::error end_object() override { return inner_.end_object(); }
  caf::error begin_sequence(std::size_t& count) override { return inner_.begin_sequence(count); }
  caf::error end_sequence() override { return inner_.end_sequence(); }
  caf::error apply_raw(std::size_t size_bytes, void* from) override { return inner_.apply_raw(size_bytes, from); }

 protected:
  caf::error apply_impl(std::int8_t& x) override { return inner_(x); }
  caf::error apply_impl(std::uint8_t& x) override { return inner_(x); }
  caf::error apply_impl(std::int16_t& x) override { return inner_(x); }
  caf::error apply_impl(std::uint16_t& x) override { return inner_(x); }
  caf::error apply_impl(std::int32_t& x) override { return inner_(x); }
  caf::error apply_impl(std::uint32_t& x) override { return inner_(x); }
  caf::error apply_impl(std::int64_t& x) override { return inner_(x); }
  caf::error apply_impl(std::uint64_t& x) override { return inner_(x); }
  caf::error apply_impl(float& x) override { return inner_.apply_raw(sizeof x, &x); }
  caf::error apply_impl(double& x) override { return inner_.apply_raw(sizeof x, &x); }
  caf::error apply_impl(long double& x) override { return inner_.apply_raw(kLongDoubleBytes, &x); }
  caf::error apply_impl(std::string& x) override { return inner_(x); }
  caf::error apply_impl(std::u16string& x) override { return inner_(x); }
  caf::error apply_impl(std::u32string& x) override { return inner_(x); }

 private:
  caf::binary_serializer inner_;
};

}  // namespace troupe::remote
