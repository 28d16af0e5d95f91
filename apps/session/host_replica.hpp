#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/compute/device.hpp"

namespace troupe {

/// A piece of a step that a thread of the app executes while the stream waits for it.
struct HostWork {
  bool evaluation = false;
  Memory batch;
  std::uint32_t rows = 0;  // of the batch
  Memory sums;             // StepSums: a step writes them, an evaluation adds to them
  Point ready;             // from this point on its input is written
  Point done;              // the point to signal when it is done; on failure its line is poisoned
};

/// A replica that computes nothing: it passes every piece of work to `post` and makes the stream wait for it. Works
/// with any device's stream.
class HostReplica final : public Replica {
 public:
  HostReplica(AddressSpace& space, std::vector<Bucket> buckets, std::function<void(const HostWork&)> post)
      : buckets_(std::move(buckets)), post_(std::move(post)), line_(space) {}
  void step(Stream& stream, Memory batch, std::uint32_t rows, Memory sums, BucketSink& sink) override {
    for (const Bucket& bucket : buckets_) sink.acquire(bucket, stream);
    hand_over(stream, {.batch = batch, .rows = rows, .sums = sums});
    for (const Bucket& bucket : buckets_) sink.ready(bucket, stream);
  }
  void evaluate(Stream& stream, Memory batch, std::uint32_t rows, Memory sums) override {
    hand_over(stream, {.evaluation = true, .batch = batch, .rows = rows, .sums = sums});
  }

 private:
  void hand_over(Stream& stream, HostWork work) {
    work.ready = stream.mark();
    work.done = {line_.id(), ++handed_over_};
    post_(work);
    stream.wait(work.done);
  }

  std::vector<Bucket> buckets_;
  std::function<void(const HostWork&)> post_;
  const PrivateTimeline line_;
  std::uint64_t handed_over_ = 0;
};

}  // namespace troupe
