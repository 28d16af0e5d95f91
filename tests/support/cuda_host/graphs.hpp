#pragma once

#include <thread>
#include <vector>

#include "tests/support/cuda_host/streams.hpp"

namespace troupe::cuda::host {

struct GraphState {
  struct Node {
    OperationPtr operation;
    std::vector<std::size_t> after;  // nodes that it comes behind; all have smaller numbers
  };
  std::vector<Node> nodes;
};

/// A capture that goes on: one stream began it, others joined it through events.
struct Capture {
  PlacePtr begun;
  CaptureMode mode = CaptureMode::global;
  std::thread::id thread;
  StreamThread* origin = nullptr;
  std::vector<StreamThread*> members;  // with the origin
  bool invalid = false;
  std::shared_ptr<GraphState> graph = std::make_shared<GraphState>();
};

/// A graph that can be launched: its nodes lie in chains, each a thread and a lane of its own while it runs. One launch
/// follows the other.
struct ExecState {
  std::vector<GraphState::Node> nodes;
  struct Chain {
    Lane lane;
    std::vector<std::size_t> nodes;
  };
  std::vector<Chain> chains;
  bool busy = false;
  Clock last;  // of the launch before
};

Result begin_capture(StreamThread& stream, CaptureMode mode, const PlacePtr& place);
/// Null where the capture cannot become a graph: `result` says why.
std::shared_ptr<GraphState> end_capture(StreamThread& stream, const PlacePtr& place, Result& result);
/// A node behind what the stream has captured.
Result add_node(StreamThread& stream, OperationPtr operation);
/// The stream records `event` inside its capture.
void capture_record(StreamThread& stream, EventState& event);
/// The stream waits for an event where one of them is captured.
Result capture_wait(StreamThread& stream, EventState& event, const PlacePtr& place);
/// The capture is worth nothing any more.
Result invalidate(Capture& capture, const PlacePtr& place, const std::string& why, Result result);

std::shared_ptr<ExecState> instantiate(const GraphState& graph);
OperationPtr launch_operation(PlacePtr place, std::shared_ptr<ExecState> exec);

}  // namespace troupe::cuda::host
