#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tests/support/cuda_host/clock.hpp"
#include "tests/support/cuda_host/reports.hpp"

namespace troupe::cuda::host {

using Address = std::uintptr_t;
struct Range {
  Address begin = 0;
  std::uint64_t size_bytes = 0;
  Address end() const noexcept { return begin + size_bytes; }
};

/// Who used which bytes last, and whether everybody who uses them now comes behind. Two uses of a byte of which one
/// writes must be ordered; which of them ran first in this run does not matter, so a race is found in any run that does
/// both. Guarded by Process::mutex.
class Races {
 public:
  void reads(Range range, Moment now, const Clock& clock, const PlacePtr& place);
  void writes(Range range, Moment now, const Clock& clock, const PlacePtr& place);
  /// A read by work of a library behind a failure of its stream. Nothing that it computes is used, so others may write
  /// there meanwhile; but the memory must be there.
  void reads_in_vain(Range range, Moment now, const PlacePtr& place);
  /// The memory is taken away; what comes to lie there next starts anew.
  void frees(Range range, Moment now, const Clock& clock, const PlacePtr& place);

 private:
  struct Use {
    Moment moment;
    PlacePtr place;
  };
  /// Bytes with one history. Invariant: segments do not overlap, and of `reads` none is before another that is in it,
  /// nor before `write`.
  struct Segment {
    Address end = 0;
    Use write;  // without a place: never
    std::vector<Use> reads;
  };
  struct VainRead {
    Range range;
    Use use;
  };
  using Segments = std::map<Address, Segment>;

  Segments::iterator cut_at(Address at);
  /// Calls act(segment) for pieces that make up `range`; those without a history are made.
  template <class Act>
  void for_each_piece(Range range, Act act);
  static void check(const char* kind, const Use& past, Range range, const Clock& clock, const PlacePtr& place);

  Segments segments_;
  std::vector<VainRead> vain_reads_;  // few: streams that have failed get no further steps
};

}  // namespace troupe::cuda::host
