#include "tests/support/cuda_host/streams.hpp"

#include <utility>

#include "tests/support/cuda_host/graphs.hpp"

namespace troupe::cuda::host {
namespace {

/// Runs what waits, in order. An operation leaves the queue when it begins; `busy` says that one is under way.
void run_stream(StreamThread& stream) {
  Process& all = process();
  std::unique_lock lock{all.mutex};
  for (;;) {
    stream.wake.wait(lock, [&] { return stream.ended || !stream.waiting.empty(); });
    if (stream.waiting.empty()) return;
    StreamThread::Item item = std::move(stream.waiting.front());
    stream.waiting.pop_front();
    stream.busy = true;
    stream.current = item.operation->place;
    stream.clock.join(item.cpu);
    perform(*item.operation, lock, stream.clock, stream.lane, stream.device);
    stream.busy = false;
    all.changed.notify_all();
  }
}

}  // namespace

std::shared_ptr<StreamThread> start_stream(DeviceState& device) {
  Process& all = process();
  auto stream = std::make_shared<StreamThread>(++all.streams_made, device, all.new_lane());
  stream->thread = std::thread{[raw = stream.get()] { run_stream(*raw); }};
  return stream;
}

/// Threads that have nothing to do are joined at once: a process may make thousands of streams.
void retire(const std::shared_ptr<StreamThread>& stream, std::unique_lock<std::mutex>& lock) {
  stream->ended = true;
  stream->wake.notify_all();
  if (!stream->idle()) return process().retired.push_back(stream);
  lock.unlock();
  stream->thread.join();
}

void join_retired(std::vector<std::shared_ptr<StreamThread>> retired) {
  for (const auto& stream : retired) stream->thread.join();
}

Result submit(StreamThread& stream, OperationPtr operation) {
  ++stream.submitted;
  if (stream.capture != nullptr) return add_node(stream, std::move(operation));
  stream.waiting.push_back({std::move(operation), process().cpu});
  stream.wake.notify_all();
  return Result::success;
}

OperationPtr record_operation(PlacePtr place, std::shared_ptr<Record> record) {
  return std::make_shared<Operation>(Operation{std::move(place),
                                               [record](Run& run) {
                                                 record->clock = run.clock;
                                                 record->told_microseconds = process().told_microseconds;
                                                 record->done = true;
                                                 process().changed.notify_all();
                                               },
                                               true});
}

OperationPtr wait_event_operation(PlacePtr place, std::shared_ptr<Record> record) {
  return std::make_shared<Operation>(Operation{std::move(place),
                                               [record](Run& run) {
                                                 process().changed.wait(run.lock, [&] { return record->done; });
                                                 run.clock.follow(record->clock);
                                               },
                                               true});
}

}  // namespace troupe::cuda::host
