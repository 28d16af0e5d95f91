#pragma once

#include <bit>
#include <caf/meta/type_name.hpp>
#include <cstdint>
#include <optional>

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

/// The same of a number that may be absent.
class OptionalNumberBits {
 public:
  OptionalNumberBits() = default;
  explicit OptionalNumberBits(const std::optional<double>& number) noexcept
      : given_(number.has_value()), bits_(number.value_or(0)) {}
  std::optional<double> number() const noexcept { return given_ ? std::optional{bits_.number()} : std::nullopt; }

  template <class Inspector>
  friend auto inspect(Inspector& f, OptionalNumberBits& x) {
    return f(caf::meta::type_name("troupe.OptionalNumberBits"), x.given_, x.bits_);
  }

 private:
  bool given_ = false;
  NumberBits bits_;
};

}  // namespace troupe
