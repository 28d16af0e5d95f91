#include "devices/cuda/device_state.hpp"

namespace troupe::cuda {
namespace {

/// Blocks for the programs that a session keeps, of its step's stream and its node's, and one for the next.
constexpr std::size_t kStepBlocks = 2 * Programs::kKept + 1;

}  // namespace

StreamLine::StreamLine(std::shared_ptr<const Gpu> gpu, AddressSpace& space,
                       const std::atomic<std::chrono::nanoseconds>& spin)
    : space_(space),
      memory_(std::move(gpu), sizeof(TimelineWord) + sizeof(StreamReport)),
      line_(space.make_private_timeline(), *memory_.as<TimelineWord>(), nullptr, spin) {
  space_.bind(line_);
}

StreamLine::~StreamLine() {
  space_.unbind(line_.id());
  space_.end_private_timeline(line_.id());
}

DeviceState::DeviceState(std::shared_ptr<const Gpu> gpu, AddressSpace& space, std::chrono::milliseconds wait_deadline,
                         Libraries libraries)
    : gpu_(std::move(gpu)),
      space_(space),
      wait_deadline_(wait_deadline),
      libraries_(std::move(libraries)),
      memory_(gpu_, space),
      mirrors_(gpu_, space),
      step_blocks_(std::make_shared<StepBlocks>(gpu_, kStepBlocks)),
      recorder_(gpu_),
      stream_memory_(gpu_) {}

StreamLine& DeviceState::make_line() {
  const std::lock_guard lock{mutex_};
  StreamLine& made = lines_.emplace_back(gpu_, space_, spin_);
  words_.emplace(made.line().id(), made.word());
  return made;
}

std::uint64_t* DeviceState::own_word(TimelineId line) {
  const std::lock_guard lock{mutex_};
  const auto found = words_.find(line);
  return found == words_.end() ? nullptr : found->second;
}

LinePlace DeviceState::place_to_wait(Point point) {
  LinePlace place{.line = &space_.timeline(point.line)};
  if ((place.word = own_word(point.line)) == nullptr && (place.word = memory_.word(point.line)) == nullptr)
    place.word = mirrors_.follow(point);
  return place;
}

LinePlace DeviceState::place_to_signal(TimelineId line) {
  LinePlace place{.line = &space_.timeline(line)};
  if ((place.word = own_word(line)) == nullptr) place.word = memory_.word(line);
  place.carried = place.word == nullptr;
  if (place.carried) place.word = mirrors_.outbox(line);
  return place;
}

}  // namespace troupe::cuda
