#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "actors/exchange/hosted_shard.hpp"
#include "actors/remote/remote_actors.hpp"

namespace troupe {

/// Of one read.
inline constexpr std::uint64_t kMostReadElements = 256;

/// What a shard is called with, and what stands before the elements in its answer.
struct StripeQuestion {
  std::uint64_t first = 0;  // element of the stripe
  std::uint64_t count = 0;
};
struct StripeAnswer {
  std::uint64_t version = 0;
};

/// Reads a few elements of a stripe from the shard that hosts it, in this process or another one: as they are now,
/// whatever the clocks, all of one version. One read at a time; it lives until that has ended.
class StripeRead : private CallDone {
 public:
  /// `remote` outlives it. Throws Error{invalid} for no shard.
  StripeRead(RemoteActors& remote, const HostedShard& shard);

  /// Begins a read of `count` elements from `first`. Any thread; without a change of threads on the control lane's, as
  /// in read(). Throws Error{invalid} for no elements and more than kMostReadElements.
  void start(std::uint64_t first, std::uint64_t count);

 protected:
  /// Where CallDone::answered is; must not block. `values` live until the next read. When `status` is not ok there
  /// are none: the shard's own failure (Error{invalid} outside of the stripe, or when it hosts nothing), or one of
  /// CallDone::answered.
  virtual void read(const Status& status, std::uint64_t version, std::span<const float> values) noexcept = 0;

 private:
  void answered(const Status& status, std::span<const std::byte> answer) noexcept final;

  RemoteActors& remote_;
  const Callee shard_;
  std::uint64_t count_ = 0;
  std::array<float, kMostReadElements> values_;  // not set
};

}  // namespace troupe
