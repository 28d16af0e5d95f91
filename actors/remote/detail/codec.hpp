#pragma once

#include <caf/execution_unit.hpp>
#include <caf/mailbox_element.hpp>
#include <cstddef>
#include <span>
#include <typeinfo>
#include <unordered_map>
#include <vector>

#include "actors/remote/tensor.hpp"
#include "runtime/error.hpp"

namespace troupe::remote {

/// Messages to bytes and back. What goes wrong, in a user's inspect too, is a Status and never an exception. One
/// thread.
class Codec {
 public:
  /// `unit` names the actor system and its proxies, and outlives the codec.
  explicit Codec(caf::execution_unit& unit) noexcept : unit_(unit) {}

  /// Appends the message to `bytes`: the forwarding stack, if there is one, and the content; tensors go to the current
  /// slots. A type that is not registered, or stays in its process, is `unsupported`, and nothing was written.
  Status encode(caf::mailbox_element& message, std::vector<char>& bytes);
  /// Appends an error; one whose context cannot be written loses it.
  void encode(const caf::error& error, std::vector<char>& bytes);

  struct Decoded {
    caf::mailbox_element::forwarding_stack stages;
    caf::message content;
  };
  Status decode(std::span<const std::byte> bytes, bool has_stages, Decoded& to);
  Status decode(std::span<const std::byte> bytes, caf::error& to);

 private:
  Status check(const caf::type_erased_tuple& content);

  caf::execution_unit& unit_;
  std::unordered_map<const std::type_info*, bool> known_;
};

}  // namespace troupe::remote
