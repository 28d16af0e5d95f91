#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "transports/collectives/detail/direct_head.hpp"

namespace troupe::collectives {

/// Whether all ranks make the same calls in the same order, by what each message says of its call. Remembers the newest
/// calls only, of which there must be room for as many as may be under way at all ranks together.
class CallOrder {
 public:
  explicit CallOrder(std::size_t remembered) : calls_(remembered) {}
  /// Code::invalid with both ranks and what they called, when `from` has made another call of that number than a rank
  /// before.
  Status agree(Rank from, const RoundShape& shape);

 private:
  struct Seen {
    RoundShape shape;  // call 0: none yet
    Rank from;
  };
  std::vector<Seen> calls_;  // by number modulo the size
};

}  // namespace troupe::collectives
