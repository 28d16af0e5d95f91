#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "actors/exchange/hosted_shard.hpp"
#include "actors/remote/remote_actors.hpp"

namespace troupe {

/// The limit of one read.
inline constexpr std::uint64_t kMostReadElements = 256;

/// The question to a shard, and the part of its answer before the elements.
struct StripeQuestion {
  std::uint64_t first = 0;  // index of the first element in the stripe
  std::uint64_t count = 0;
};
struct StripeAnswer {
  std::uint64_t version = 0;
};

/// Reads a few elements of a stripe from the shard that hosts it, in this process or another one: their present values,
/// whatever the clocks, all of one version. One read at a time; the object must live until it has ended.
class StripeRead : private CallDone {
 public:
  /// `remote` outlives it. Throws Error{invalid} if `shard` is empty.
  StripeRead(RemoteActors& remote, const HostedShard& shard);

  /// Begins a read of `count` elements from `first` on. Any thread; on the control lane's thread, as in read(), it
  /// needs no change of threads. Throws Error{invalid} for no elements and for more than kMostReadElements.
  void start(std::uint64_t first, std::uint64_t count);

 protected:
  /// Called on the thread of CallDone::answered; must not block. `values` are valid until the next read. If `status` is
  /// not ok there are none: it is the shard's error (Error{invalid} outside of the stripe, or if the shard hosts
  /// nothing), or one of CallDone::answered.
  virtual void read(const Status& status, std::uint64_t version, std::span<const float> values) noexcept = 0;

 private:
  void answered(const Status& status, std::span<const std::byte> answer) noexcept final;

  RemoteActors& remote_;
  const Callee shard_;
  std::uint64_t count_ = 0;
  std::array<float, kMostReadElements> values_;  // not initialized
};

}  // namespace troupe
