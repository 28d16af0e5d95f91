#include "tests/support/cuda_host/graphs.hpp"

#include <algorithm>
#include <utility>

namespace troupe::cuda::host {
namespace {

void leave(const std::shared_ptr<Capture>& capture) {
  for (StreamThread* member : capture->members) {
    member->capture = nullptr;
    member->tips.clear();
  }
  process().captures.erase(capture);
}

/// Whether each node is the origin's end or before it.
std::vector<bool> before_end(const Capture& capture) {
  std::vector<bool> found(capture.graph->nodes.size());
  for (const std::size_t tip : capture.origin->tips) found[tip] = true;
  for (std::size_t i = found.size(); i-- > 0;)
    if (found[i])
      for (const std::size_t earlier : capture.graph->nodes[i].after) found[earlier] = true;
  return found;
}

void add_missing(std::vector<std::size_t>& tips, const std::vector<std::size_t>& more) {
  for (const std::size_t tip : more)
    if (std::find(tips.begin(), tips.end(), tip) == tips.end()) tips.push_back(tip);
}

/// What one launch knows of its nodes.
struct Progress {
  explicit Progress(std::size_t nodes) : done(nodes), clocks(nodes) {}
  std::vector<bool> done;
  std::vector<Clock> clocks;
};

void run_chain(const ExecState& exec, const ExecState::Chain& chain, Progress& progress, const Clock& begin,
               std::unique_lock<std::mutex>& lock, DeviceState& device) {
  Process& all = process();
  Clock clock = begin;
  for (const std::size_t i : chain.nodes) {
    const GraphState::Node& node = exec.nodes[i];
    for (const std::size_t earlier : node.after) {
      all.changed.wait(lock, [&] { return progress.done[earlier]; });
      clock.follow(progress.clocks[earlier]);
    }
    perform(*node.operation, lock, clock, chain.lane, device);
    progress.clocks[i] = clock;
    progress.done[i] = true;
    all.changed.notify_all();
  }
}

/// Each chain but the first on a thread of its own.
void run_graph(Run& run, ExecState& exec) {
  Process& all = process();
  Progress progress{exec.nodes.size()};
  const Clock begin = run.clock;
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < exec.chains.size(); ++i)
    others.emplace_back([&, i] {
      std::unique_lock lock{all.mutex};
      run_chain(exec, exec.chains[i], progress, begin, lock, run.device);
    });
  if (!exec.chains.empty()) run_chain(exec, exec.chains[0], progress, begin, run.lock, run.device);
  run.lock.unlock();
  for (std::thread& other : others) other.join();
  run.lock.lock();
  for (const Clock& clock : progress.clocks) run.clock.follow(clock);
}

}  // namespace

Result begin_capture(StreamThread& stream, CaptureMode mode, const PlacePtr& place) {
  if (stream.capture != nullptr) return Result::illegal_state;
  auto capture = std::make_shared<Capture>();
  capture->begun = place;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = &stream;
  capture->members.push_back(&stream);
  stream.capture = capture;
  stream.tips.clear();
  process().captures.insert(capture);
  return Result::success;
}

Result invalidate(Capture& capture, const PlacePtr& place, const std::string& why, Result result) {
  capture.invalid = true;
  reports().add("capture", place->text() + " " + why + " in the capture that " + capture.begun->text() + " began");
  return result;
}

Result add_node(StreamThread& stream, OperationPtr operation) {
  Capture& capture = *stream.capture;
  if (capture.invalid) return Result::stream_capture_invalidated;
  capture.graph->nodes.push_back({std::move(operation), stream.tips});
  stream.tips = {capture.graph->nodes.size() - 1};
  return Result::success;
}

void capture_record(StreamThread& stream, EventState& event) {
  event.capture = stream.capture;
  event.tips = stream.tips;
}

Result capture_wait(StreamThread& stream, EventState& event, const PlacePtr& place) {
  if (event.capture == nullptr)
    return invalidate(*stream.capture, place, "waits for an event that was recorded outside",
                      Result::stream_capture_isolation);
  if (process().captures.count(event.capture) == 0) {
    reports().add("capture", place->text() + " waits for an event that was recorded in the capture that " +
                                 event.capture->begun->text() + " began and that is over");
    return Result::captured_event;
  }
  if (stream.capture != nullptr && stream.capture != event.capture)
    return invalidate(
        *stream.capture, place,
        "waits for an event that was recorded in another capture, which " + event.capture->begun->text() + " began,",
        Result::stream_capture_merge);
  if (stream.capture == nullptr) {
    stream.capture = event.capture;
    event.capture->members.push_back(&stream);
  }
  add_missing(stream.tips, event.tips);
  return Result::success;
}

std::shared_ptr<GraphState> end_capture(StreamThread& stream, const PlacePtr& place, Result& result) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) {
    result = Result::illegal_state;
    return nullptr;
  }
  if (capture->mode != CaptureMode::relaxed && capture->thread != std::this_thread::get_id()) {
    result = invalidate(*capture, place, "ends on another thread than the one that began it",
                        Result::stream_capture_wrong_thread);
    return nullptr;
  }
  if (capture->origin != &stream) {
    result = invalidate(*capture, place, "ends on stream " + std::to_string(stream.number) + " what began on another",
                        Result::stream_capture_unmatched);
    return nullptr;
  }
  result = capture->invalid ? Result::stream_capture_invalidated : Result::success;
  const std::vector<bool> joined = before_end(*capture);
  for (std::size_t i = 0; i < joined.size() && result == Result::success; ++i)
    if (!joined[i])
      result =
          invalidate(*capture, place, "comes without waiting for " + capture->graph->nodes[i].operation->place->text(),
                     Result::stream_capture_unjoined);
  leave(capture);
  // Events that were recorded in it know the capture that is over, but hold nothing of its graph.
  const std::shared_ptr<GraphState> graph = std::move(capture->graph);
  return result == Result::success ? graph : nullptr;
}

/// A node goes on with the chain of the first of those before it that nobody has gone on with.
std::shared_ptr<ExecState> instantiate(const GraphState& graph) {
  auto exec = std::make_shared<ExecState>();
  exec->nodes = graph.nodes;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto& after = graph.nodes[i].after;
    const auto chain = std::find_if(exec->chains.begin(), exec->chains.end(), [&](const ExecState::Chain& c) {
      return std::find(after.begin(), after.end(), c.nodes.back()) != after.end();
    });
    if (chain == exec->chains.end())
      exec->chains.push_back({process().new_lane(), {i}});
    else
      chain->nodes.push_back(i);
  }
  return exec;
}

OperationPtr launch_operation(PlacePtr place, std::shared_ptr<ExecState> exec) {
  return std::make_shared<Operation>(Operation{std::move(place), [exec](Run& run) {
                                                 Process& all = process();
                                                 all.changed.wait(run.lock, [&] { return !exec->busy; });
                                                 exec->busy = true;
                                                 run.clock.join(exec->last);
                                                 run_graph(run, *exec);
                                                 exec->last = run.clock;
                                                 exec->busy = false;
                                                 all.changed.notify_all();
                                               }});
}

}  // namespace troupe::cuda::host
