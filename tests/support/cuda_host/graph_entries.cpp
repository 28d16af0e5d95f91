// Captures and graphs.
#include <algorithm>
#include <utility>

#include "tests/support/cuda_host/entry.hpp"

namespace troupe::cuda {

using namespace host;

TROUPE_EXPORT Result cuStreamBeginCapture_v2(StreamHandle stream, CaptureMode mode) {
  TROUPE_ENTER(cuStreamBeginCapture_v2, context);
  TROUPE_STREAM(on, stream);
  return begin_capture(*on, mode, entry.place_on(on->number));
}

TROUPE_EXPORT Result cuStreamEndCapture(StreamHandle stream, GraphHandle* graph) {
  Entry entry{"cuStreamEndCapture", __builtin_return_address(0), Needs::context};
  TROUPE_STREAM(on, stream);
  const PlacePtr place = entry.place_on(on->number);
  Result result = Result::success;
  if (entry.refused() != Result::success) {  // the capture ends all the same
    if (on->capture != nullptr) on->capture->invalid = true;
    (void)end_capture(*on, place, result);
    *graph = nullptr;
    return entry.refused();
  }
  auto made = end_capture(*on, place, result);
  *graph = made == nullptr ? nullptr : entry.all().graphs.add(std::move(made), place);
  return result;
}

TROUPE_EXPORT Result cuThreadExchangeStreamCaptureMode(CaptureMode* mode) {
  TROUPE_ENTER(cuThreadExchangeStreamCaptureMode, driver);
  std::swap(*mode, interaction_mode);
  return Result::success;
}

TROUPE_EXPORT Result cuGraphGetNodes(GraphHandle graph, GraphNode* nodes, std::size_t* count) {
  TROUPE_ENTER(cuGraphGetNodes, context);
  const auto state = entry.all().graphs.find(graph, entry.place());
  if (state == nullptr) return Result::invalid_value;
  if (nodes != nullptr) return Result::not_supported;  // nobody asks for more than their number
  *count = state->nodes.size();
  return Result::success;
}

TROUPE_EXPORT Result cuGraphInstantiateWithFlags(GraphExec* exec, GraphHandle graph, unsigned long long) {
  TROUPE_ENTER(cuGraphInstantiateWithFlags, context);
  const PlacePtr place = entry.place();
  const auto state = entry.all().graphs.find(graph, place);
  if (state == nullptr) return Result::invalid_value;
  *exec = entry.all().execs.add(instantiate(*state), place);
  return Result::success;
}

TROUPE_EXPORT Result cuGraphUpload(GraphExec exec, StreamHandle stream) {
  TROUPE_ENTER(cuGraphUpload, context);
  TROUPE_STREAM(on, stream);
  return entry.all().execs.find(exec, entry.place_on(on->number)) == nullptr ? Result::invalid_value : Result::success;
}

TROUPE_EXPORT Result cuGraphLaunch(GraphExec exec, StreamHandle stream) {
  TROUPE_ENTER(cuGraphLaunch, context);
  TROUPE_STREAM(on, stream);
  const PlacePtr place = entry.place_on(on->number);
  auto state = entry.all().execs.find(exec, place);
  if (state == nullptr) return Result::invalid_value;
  if (on->capture != nullptr)
    return invalidate(*on->capture, place, "launches a graph", Result::stream_capture_unsupported);
  return entry.submit(*on, launch_operation(place, std::move(state)));
}

TROUPE_EXPORT Result cuGraphExecDestroy(GraphExec exec) {
  TROUPE_ENTER(cuGraphExecDestroy, driver);
  return entry.all().execs.end(exec, entry.place()) == nullptr ? Result::invalid_value : Result::success;
}

TROUPE_EXPORT Result cuGraphDestroy(GraphHandle graph) {
  TROUPE_ENTER(cuGraphDestroy, driver);
  return entry.all().graphs.end(graph, entry.place()) == nullptr ? Result::invalid_value : Result::success;
}

}  // namespace troupe::cuda
