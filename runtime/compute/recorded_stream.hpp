#pragma once

#include <functional>
#include <span>

#include "runtime/compute/program.hpp"
#include "runtime/compute/stream.hpp"

namespace troupe {

/// A stream, and the programs of the work that it repeats.
struct RecordedStream {
  Stream& stream;
  Programs& programs;
};

/// Enqueues what `work` enqueues on these streams, on each of them as one piece (Stream::enqueue). Work of one may wait
/// for work of another. The streams get their pieces when `work` has returned, in this order.
inline void enqueue_as_pieces(std::span<const RecordedStream> streams, const std::function<void()>& work) {
  if (streams.empty()) return work();
  const RecordedStream& last = streams.back();  // its piece is the outermost one, which ends last
  last.stream.enqueue(last.programs,
                      [rest = streams.first(streams.size() - 1), &work] { enqueue_as_pieces(rest, work); });
}

}  // namespace troupe
