#pragma once

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "runtime/base/error.hpp"

// Cap'n Proto messages as bytes, for the sources that write and read a conversation's schema.
namespace troupe::wire {

inline kj::ArrayPtr<const kj::byte> as_data(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}
inline std::vector<std::byte> as_bytes(kj::ArrayPtr<const kj::byte> data) {
  const auto* const first = reinterpret_cast<const std::byte*>(data.begin());
  return {first, first + data.size()};
}

inline std::vector<std::byte> encoded(capnp::MessageBuilder& message) {
  const auto words = capnp::messageToFlatArray(message);
  return as_bytes(words.asBytes());
}

/// What `read` makes of the root of the message in `bytes`. Throws Error{corrupt}, whose text begins with `what`, if
/// they are no message, or over `limits`.
template <class Root, class Read>
auto decoded(std::span<const std::byte> bytes, const char* what, Read read, capnp::ReaderOptions limits = {}) {
  TROUPE_CHECK(bytes.size() % sizeof(capnp::word) == 0, Code::corrupt, what, " has ", bytes.size(),
               " bytes, which is not a whole number of words");
  auto words = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));  // aligned, as the reader requires
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(words.begin()));
  try {
    capnp::FlatArrayMessageReader message{words, limits};
    return read(message.getRoot<Root>());
  } catch (const kj::Exception& error) {
    fail(Code::corrupt, text(what, " cannot be read: ", error.getDescription().cStr()));
  }
}

}  // namespace troupe::wire
