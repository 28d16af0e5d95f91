#pragma once

#include <vector>

#include "runtime/compute/rank_gather.hpp"
#include "runtime/exchange/communicator.hpp"

namespace troupe {

/// A RankGather by all_gather() of a communicator that is used for nothing else, so its calls do not depend on the
/// order of the exchanges' calls.
class CommunicatorGather final : public RankGather {
 public:
  /// `parts`: [ranks] parts of equal size, one after the other. `communicator` outlives this object.
  CommunicatorGather(Communicator& communicator, const Memory& parts) : communicator_(communicator), parts_(parts) {}

  std::uint32_t ranks() const noexcept override { return communicator_.ranks(); }
  Rank rank() const noexcept override { return communicator_.rank(); }
  Memory part(Rank rank) const noexcept override {
    const std::uint64_t each = parts_.size_bytes / ranks();
    return slice(parts_, rank.value * each, each);
  }
  void gather(Stream& stream, std::uint64_t size_bytes) override {
    owned_.clear();
    for (Rank rank{0}; rank.value < ranks(); ++rank.value) owned_.push_back({rank, slice(part(rank), 0, size_bytes)});
    communicator_.all_gather(stream, owned_);
  }

 private:
  Communicator& communicator_;
  const Memory parts_;
  std::vector<OwnedPart> owned_;  // reused
};

}  // namespace troupe
