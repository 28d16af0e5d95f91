#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/random.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {

/// `count` numbers, value(i), as f32 or, for std::uint16_t, rounded to bf16.
template <class Element, class Value>
std::vector<Element> numbers(std::size_t count, Value&& value) {
  std::vector<Element> made(count);
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (sizeof(Element) == sizeof(float))
      made[i] = static_cast<float>(value(i));
    else
      made[i] = to_bf16(static_cast<float>(value(i)));
  }
  return made;
}

/// N(0, 1).
template <class Element = float>
std::vector<Element> random_numbers(std::uint64_t key, std::size_t count) {
  return numbers<Element>(count, [key](std::size_t i) { return random_normal(key, i); });
}

/// From -3 to 3, so that many are equal, and sums of products are exact.
template <class Element = float>
std::vector<Element> whole_numbers(std::uint64_t key, std::size_t count) {
  return numbers<Element>(count, [key](std::size_t i) { return static_cast<double>(random_below(key, i, 7)) - 3; });
}

}  // namespace troupe
