#include "stream_progress.hpp"

#include <utility>

namespace opencl {

Progress::~Progress() {
  std::unique_lock lock{mutex_};
  quiet_.wait(lock, [this] { return callbacks_ == 0; });  // it ends, since every wait in the queue had a deadline
}

void Progress::end(const Status& why) noexcept {
  if (ended_.exchange(true, std::memory_order_acq_rel)) return;
  std::atomic_ref{fault_.code}.store(Fault::ended_by_host, std::memory_order_release);
  own_.poison(why);
  waits_.look_again();
}

void Progress::enqueue(Marker marker) {
  cl_event made = nullptr;
  check(clEnqueueMarkerWithWaitList(queue_, 0, nullptr, &made), "clEnqueueMarkerWithWaitList");
  const OwnedEvent event{made};
  marker.sequence = ++sequence_;
  auto callback = std::make_unique<Callback>(Callback{this, marker.sequence});
  {
    const std::lock_guard lock{mutex_};
    markers_.push_back(std::move(marker));
    ++callbacks_;
  }
  const cl_int error = clSetEventCallback(event.get(), CL_COMPLETE, &Progress::passed, callback.get());
  if (error == CL_SUCCESS) {
    (void)callback.release();  // owned by the callback now
  } else {
    const std::lock_guard lock{mutex_};
    --callbacks_;
  }
  check(error, "clSetEventCallback");
  check(clFlush(queue_), "clFlush");
}

void CL_CALLBACK Progress::passed(cl_event, cl_int status, void* callback) {
  const std::unique_ptr<Callback> own{static_cast<Callback*>(callback)};
  own->progress->come_to(own->sequence, status);
}

/// The queue is in order: all markers up to this one have been passed, whichever callback comes first.
void Progress::come_to(std::uint64_t sequence, cl_int status) noexcept {
  const std::lock_guard lock{mutex_};
  if (status < 0) end({Code::device_fault, text("OpenCL: a command ended with error ", status)});
  while (!markers_.empty() && markers_.front().sequence <= sequence) {
    const Marker marker = std::move(markers_.front());
    markers_.pop_front();
    if (!ended()) {
      if (const Status found = reported_before(marker.sequence); !found.ok()) end(found);
    }
    if (marker.point) {
      waits_.arrived(marker.point);
    } else if (!ended()) {
      marker.line->signal(marker.value);
    }
  }
  if (--callbacks_ == 0) quiet_.notify_all();
}

/// What a kernel before the marker `sequence` has reported. Kernels after it may be running.
Status Progress::reported_before(std::uint64_t sequence) noexcept {
  const std::uint64_t code = std::atomic_ref{fault_.code}.load(std::memory_order_acquire);
  if (code <= Fault::being_written || fault_.sequence >= sequence) return {};
  if (code == Fault::no_such_class) {
    return {Code::corrupt, text("row ", fault_.where, " of a batch has label ", fault_.what,
                                ", which the model has no class for: check the data set's labels")};
  }
  return {Code::corrupt, text("an update's journal tells of update ", fault_.where, " with ", fault_.what,
                              " blocks done, which cannot precede this one")};
}

}  // namespace opencl
