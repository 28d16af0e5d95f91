#pragma once

#include <bit>
#include <caf/meta/type_name.hpp>
#include <cstdint>

namespace troupe {

/// A number on its way to another process, as its bits: the serializer of CAF 0.17 makes -1 of a NaN and does not
/// return from an infinity. A message's inspect lists these in the place of its numbers, and takes the numbers from
/// them in a load callback.
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
