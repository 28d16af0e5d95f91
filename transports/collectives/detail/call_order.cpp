#include "transports/collectives/detail/call_order.hpp"

namespace troupe::collectives {
namespace {

bool same_call(const RoundShape& a, const RoundShape& b) noexcept {
  if (a.plain != b.plain) return false;
  return a.plain != PlainOperation::none || (a.step == b.step && a.bucket == b.bucket && a.part == b.part);
}

}  // namespace

Status CallOrder::agree(Rank from, const RoundShape& shape) {
  Seen& seen = calls_[shape.call % calls_.size()];
  if (seen.shape.call > shape.call) return {};  // ended long ago
  if (seen.shape.call < shape.call) {
    seen = {shape, from};
    return {};
  }
  if (same_call(seen.shape, shape)) return {};
  return {Code::invalid, text("rank ", from.value, " is at ", describe(shape), ", rank ", seen.from.value, " at ",
                              describe(seen.shape))};
}

}  // namespace troupe::collectives
