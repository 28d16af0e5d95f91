#pragma once

#include <bit>
#include <caf/error.hpp>
#include <caf/meta/load_callback.hpp>
#include <caf/meta/type_name.hpp>
#include <cstdint>

namespace troupe {

/// A floating-point number in a message, as its bits: the serializer of CAF 0.17 turns a NaN into -1 and does not
/// return for an infinity. A message's inspect lists NumberBits{x.number} instead of x.number.
struct NumberBits {
  double& number;

  template <class Inspector>
  friend auto inspect(Inspector& f, NumberBits& x) {
    auto bits = std::bit_cast<std::uint64_t>(x.number);
    auto loaded = [&]() -> caf::error {
      x.number = std::bit_cast<double>(bits);
      return {};
    };
    return f(caf::meta::type_name("troupe.NumberBits"), bits, caf::meta::load_callback(loaded));
  }
};

}  // namespace troupe
