#pragma once

#include <bit>
#include <caf/meta/type_name.hpp>
#include <cstdint>

namespace troupe {

/// The bits of a floating-point number, for sending it to another process: the serializer of CAF 0.17 turns a NaN into
/// -1 and does not return for an infinity. A message's inspect lists these bits instead of its numbers, and converts
/// them back in a load callback.
class NumberBits {
 public:
  NumberBits() = default;
  explicit NumberBits(double number) noexcept : bits_(std::bit_cast<std::uint64_t>(number)) {}
  double number() const noexcept { return std::bit_cast<double>(bits_); }

  template <class Inspector>
  friend auto inspect(Inspector& f, NumberBits& x) {
    return f(caf::meta::type_name("troupe.NumberBits"), x.bits_);
  }

 private:
  std::uint64_t bits_ = 0;
};

}  // namespace troupe
