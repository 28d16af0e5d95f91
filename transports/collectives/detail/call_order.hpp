#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "transports/collectives/detail/direct_head.hpp"

namespace troupe::collectives {

/// Checks that all ranks make the same calls in the same order, by what each message says of its call. Remembers only
/// the newest calls; `size` must be at least the number of calls that are in progress at all ranks together.
class CallOrder {
 public:
  explicit CallOrder(std::size_t remembered) : calls_(remembered) {}
  /// Code::invalid with both ranks and their calls if `from` has made a different call with that number than another
  /// rank before.
  Status agree(Rank from, const RoundShape& shape);

 private:
  struct Seen {
    RoundShape shape;  // call 0: none yet
    Rank from;
  };
  std::vector<Seen> calls_;  // by number modulo the size
};

}  // namespace troupe::collectives
