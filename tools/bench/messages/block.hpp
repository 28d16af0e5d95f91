#pragma once

#include <array>
#include <caf/deserializer.hpp>
#include <caf/meta/type_name.hpp>
#include <caf/serializer.hpp>
#include <cstdint>
#include <type_traits>

namespace troupe::bench {

/// A message of 1 KB that is what its bytes are, as a program would define one for a hot path.
struct Block {
  static constexpr const char* name = "troupe.bench.Block";
  std::array<char, 1024> bytes;  // not set: whoever makes a block fills it
  bool operator==(const Block&) const = default;
};

/// At once, so that CAF's own networking does not take it byte by byte.
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Block& block) {
  if constexpr (std::is_base_of_v<caf::serializer, Inspector> || std::is_base_of_v<caf::deserializer, Inspector>) {
    return f.apply_raw(block.bytes.size(), block.bytes.data());
  } else {
    return f(caf::meta::type_name(Block::name));
  }
}

}  // namespace troupe::bench
