#include "devices/cuda/stream_lanes.hpp"

#include <limits>

namespace troupe::cuda {

DriverStream::DriverStream(std::shared_ptr<const Gpu> gpu, int priority) : gpu_(std::move(gpu)) {
  gpu_->use();
  TROUPE_CUDA(gpu_->driver(), stream_create_with_priority(&handle_, kStreamNonBlocking, priority), "a stream of ",
              gpu_->name());
}

DriverStream::~DriverStream() {
  (void)gpu_->driver().ctx_set_current(gpu_->context());
  (void)gpu_->driver().stream_destroy(handle_);
}

StreamLanes::StreamLanes(const std::shared_ptr<const Gpu>& gpu)
    : gpu_(gpu), main_(gpu, 0), beside_(gpu, std::numeric_limits<int>::min()), aside_(gpu, 0) {
  TROUPE_CUDA(gpu_->driver(), event_create(&border_, kEventDisableTiming), "an event of ", gpu_->name());
}

StreamLanes::~StreamLanes() {
  (void)gpu_->driver().ctx_set_current(gpu_->context());
  (void)gpu_->driver().event_destroy(border_);
}

/// A wait is for what the event recorded last when the wait was enqueued, so one event does for all.
void StreamLanes::order(Lane before, Lane after) const {
  TROUPE_CUDA(gpu_->driver(), event_record(border_, of(before)), "a border between the lanes of a stream");
  TROUPE_CUDA(gpu_->driver(), stream_wait_event(of(after), border_, 0), "a border between the lanes of a stream");
}

}  // namespace troupe::cuda
