#pragma once

#include <caf/binary_deserializer.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "actors/remote/detail/ended_actors.hpp"

namespace troupe::remote {

/// Reads the same as caf::binary_deserializer, but limits what a few bytes can cause: that class makes a vector of 4
/// GiB for five bytes, and calls itself once for each message within a message. Handles of actors of this process that
/// have ended are handles of ended actors, and not empty ones (EndedActors); they end with this object.
class BoundedReader final : public caf::deserializer {
 public:
  /// `own_node`: as for EndedActors.
  BoundedReader(caf::execution_unit& unit, std::span<const std::byte> bytes, std::span<const std::byte> own_node);

  /// The limit that was exceeded, or that an object was begun and not ended: CAF loses errors of messages within
  /// messages.
  caf::error refusal() const;

  caf::error begin_object(std::uint16_t& type, std::string& name) override;
  caf::error end_object() override;
  caf::error begin_sequence(std::size_t& count_elements) override;
  caf::error end_sequence() override;
  caf::error apply_raw(std::size_t size_bytes, void* to) override;

 protected:
  caf::error apply_impl(std::int8_t& x) override;
  caf::error apply_impl(std::uint8_t& x) override;
  caf::error apply_impl(std::int16_t& x) override;
  caf::error apply_impl(std::uint16_t& x) override;
  caf::error apply_impl(std::int32_t& x) override;
  caf::error apply_impl(std::uint32_t& x) override;
  caf::error apply_impl(std::int64_t& x) override;
  caf::error apply_impl(std::uint64_t& x) override;
  caf::error apply_impl(float& x) override;
  caf::error apply_impl(double& x) override;
  caf::error apply_impl(long double& x) override;
  caf::error apply_impl(std::string& x) override;
  caf::error apply_impl(std::u16string& x) override;
  caf::error apply_impl(std::u32string& x) override;

 private:
  caf::binary_deserializer inner_;
  unsigned depth_ = 0;  // of nested objects
  caf::error refusal_;
  EndedActors ended_;
};

}  // namespace troupe::remote
