#include "actors/exchange/stripe_read.hpp"

#include <cstring>

namespace troupe {

StripeRead::StripeRead(RemoteActors& remote, const HostedShard& shard)
    : remote_(remote), shard_(remote.callee(caf::actor_cast<caf::actor>(shard))) {}

void StripeRead::start(std::uint64_t first, std::uint64_t count) {
  TROUPE_CHECK(count > 0 && count <= kMostReadElements, Code::invalid, "a read of ", count, " elements; 1 to ",
               kMostReadElements, " can be read at once");
  count_ = count;
  const StripeQuestion question{first, count};
  remote_.call(shard_, std::as_bytes(std::span{&question, 1}), *this);
}

void StripeRead::answered(const Status& status, std::span<const std::byte> answer) noexcept {
  if (!status.ok()) return read(status, 0, {});
  StripeAnswer head;
  if (answer.size() != sizeof head + count_ * sizeof(float))
    return read({Code::corrupt, text("a shard answers a read of ", count_, " elements with ", answer.size(), " bytes")},
                0, {});
  std::memcpy(&head, answer.data(), sizeof head);
  std::memcpy(values_.data(), answer.data() + sizeof head, count_ * sizeof(float));
  read({}, head.version, std::span(values_).first(count_));
}

}  // namespace troupe
