// Streams, events, copies, words, kernels.
#include <cstring>

#include "tests/support/cuda_host/entry.hpp"
#include "tests/support/cuda_host/test_image.hpp"

namespace troupe::cuda {
namespace {

using namespace host;

/// What CUDA would copy through memory of its own, at a time that a program does not know.
Result refuse_pageable(Entry& entry, StreamThread& stream, Address host_side) {
  const AllocationPtr found = entry.all().memory.find(host_side);
  if (found != nullptr) return Result::success;  // where it is not right, the operation itself tells
  const PlacePtr place = entry.place_on(stream.number);
  if (stream.capture != nullptr)
    return invalidate(*stream.capture, place, "copies memory that is neither pinned nor registered",
                      Result::stream_capture_unsupported);
  reports().add("pageable memory", place->text() + " copies memory that is neither pinned nor registered");
  return Result::invalid_value;
}

Result refuse_outside(Entry& entry, StreamThread& stream, Address begin, std::uint64_t size_bytes) {
  const AllocationPtr found = entry.all().memory.find(begin);
  if (found == nullptr || begin + size_bytes <= found->range.end()) return Result::success;
  reports().add("out of range", entry.place_on(stream.number)->text() + " of " + std::to_string(size_bytes) +
                                    " bytes ends behind " + found->text());
  return Result::invalid_value;
}

Result copy(Entry& entry, StreamThread& stream, Address to, Address from, std::size_t bytes) {
  if (bytes == 0) return Result::success;
  for (const Address side : {to, from}) {
    Result checked = refuse_pageable(entry, stream, side);
    if (checked == Result::success) checked = refuse_outside(entry, stream, side, bytes);
    if (checked != Result::success) return checked;
  }
  return entry.submit(stream, copy_operation(entry.place_on(stream.number), to, from, bytes));
}

Result fill(Entry& entry, StreamThread& stream, Address to, std::uint32_t value, unsigned width, std::size_t count) {
  if (count == 0) return Result::success;
  if (to % width != 0) return Result::invalid_value;
  const Result checked = refuse_outside(entry, stream, to, count * width);
  if (checked != Result::success) return checked;
  return entry.submit(stream, fill_operation(entry.place_on(stream.number), to, value, width, count));
}

/// A word that streams can wait for: 8 bytes that the driver knows.
bool is_word(Entry& entry, StreamThread& stream, Address word) {
  const AllocationPtr found = entry.all().memory.find(word);
  if (word % 8 == 0 && found != nullptr && found->freeing == nullptr) return true;
  reports().add("unknown memory", entry.place_on(stream.number)->text() +
                                      " is given a word that does not lie in device, pinned or registered memory");
  return false;
}

}  // namespace

TROUPE_EXPORT Result cuStreamCreateWithPriority(StreamHandle* stream, unsigned flags, int) {
  TROUPE_ENTER(cuStreamCreateWithPriority, context);
  const PlacePtr place = entry.place();
  if (flags != kStreamNonBlocking)
    reports().add("default stream", place->text() + " makes a stream that waits for the default stream");
  *stream = entry.all().streams.add(start_stream(entry.device()), place);
  return Result::success;
}

TROUPE_EXPORT Result cuStreamDestroy_v2(StreamHandle stream) {
  TROUPE_ENTER(cuStreamDestroy_v2, driver);
  TROUPE_STREAM(on, stream);
  if (on->capture != nullptr) return entry.not_capturing(*on);
  entry.all().streams.end(stream, entry.place_on(on->number));
  entry.all().prepared.erase(on->number);
  retire(on, entry.lock());
  return Result::success;
}

TROUPE_EXPORT Result cuStreamQuery(StreamHandle stream) {
  TROUPE_ENTER(cuStreamQuery, context);
  TROUPE_STREAM(on, stream);
  const Result allowed = entry.not_capturing(*on);
  if (allowed != Result::success) return allowed;
  if (!on->idle()) return Result::not_ready;
  entry.all().cpu.join(on->clock);
  return Result::success;
}

TROUPE_EXPORT Result cuStreamSynchronize(StreamHandle stream) {
  TROUPE_ENTER(cuStreamSynchronize, context);
  TROUPE_STREAM(on, stream);
  const Result allowed = entry.not_capturing(*on);
  if (allowed != Result::success) return allowed;
  const Result waited = entry.wait(on->device, [&] { return on->idle(); });
  if (waited == Result::success) entry.all().cpu.join(on->clock);
  return waited;
}

TROUPE_EXPORT Result cuStreamWaitEvent(StreamHandle stream, EventHandle event, unsigned) {
  TROUPE_ENTER(cuStreamWaitEvent, context);
  TROUPE_STREAM(on, stream);
  const PlacePtr place = entry.place_on(on->number);
  const auto state = entry.all().events.find(event, place);
  if (state == nullptr) return Result::invalid_handle;
  if (on->capture != nullptr || state->capture != nullptr) return capture_wait(*on, *state, place);
  if (state->latest == nullptr) {
    reports().add("event never recorded",
                  place->text() + " waits for an event that nothing has recorded: it orders nothing");
    return Result::success;
  }
  return entry.submit(*on, wait_event_operation(place, state->latest));
}

TROUPE_EXPORT Result cuEventCreate(EventHandle* event, unsigned flags) {
  TROUPE_ENTER(cuEventCreate, context);
  auto state = std::make_shared<EventState>();
  state->flags = flags;
  *event = entry.all().events.add(std::move(state), entry.place());
  return Result::success;
}

TROUPE_EXPORT Result cuEventDestroy_v2(EventHandle event) {
  TROUPE_ENTER(cuEventDestroy_v2, driver);
  return entry.all().events.end(event, entry.place()) == nullptr ? Result::invalid_handle : Result::success;
}

TROUPE_EXPORT Result cuEventRecord(EventHandle event, StreamHandle stream) {
  TROUPE_ENTER(cuEventRecord, context);
  TROUPE_STREAM(on, stream);
  const PlacePtr place = entry.place_on(on->number);
  const auto state = entry.all().events.find(event, place);
  if (state == nullptr) return Result::invalid_handle;
  if (on->capture != nullptr) {
    capture_record(*on, *state);
    return Result::success;
  }
  state->capture = nullptr;
  state->latest = std::make_shared<Record>();
  state->latest->place = place;
  return entry.submit(*on, record_operation(place, state->latest));
}

TROUPE_EXPORT Result cuEventQuery(EventHandle event) {
  TROUPE_ENTER(cuEventQuery, context);
  const auto state = entry.all().events.find(event, entry.place());
  if (state == nullptr) return Result::invalid_handle;
  if (state->capture != nullptr)
    return invalidate(*state->capture, entry.place(), "asks for an event that was recorded", Result::captured_event);
  const Result allowed = entry.outside_capture();
  if (allowed != Result::success || state->latest == nullptr) return allowed;
  if (!state->latest->done) return Result::not_ready;
  entry.all().cpu.join(state->latest->clock);
  return Result::success;
}

TROUPE_EXPORT Result cuEventSynchronize(EventHandle event) {
  TROUPE_ENTER(cuEventSynchronize, context);
  const auto state = entry.all().events.find(event, entry.place());
  if (state == nullptr) return Result::invalid_handle;
  if (state->capture != nullptr)
    return invalidate(*state->capture, entry.place(), "waits for an event that was recorded", Result::captured_event);
  const Result allowed = entry.outside_capture();
  const std::shared_ptr<Record> record = state->latest;
  if (allowed != Result::success || record == nullptr) return allowed;
  const Result waited = entry.wait(entry.device(), [&] { return record->done; });
  if (waited == Result::success) entry.all().cpu.join(record->clock);
  return waited;
}

TROUPE_EXPORT Result cuEventElapsedTime(float* milliseconds, EventHandle start, EventHandle end) {
  TROUPE_ENTER(cuEventElapsedTime, context);
  const auto first = entry.all().events.find(start, entry.place());
  const auto second = entry.all().events.find(end, entry.place());
  if (first == nullptr || second == nullptr || first->latest == nullptr || second->latest == nullptr ||
      ((first->flags | second->flags) & kEventDisableTiming) != 0)
    return Result::invalid_handle;
  if (!first->latest->done || !second->latest->done) return Result::not_ready;
  if (!entry.all().settings.times) return Result::not_supported;
  *milliseconds = (second->latest->told_microseconds - first->latest->told_microseconds) / 1000;
  return Result::success;
}

TROUPE_EXPORT Result cuStreamWaitValue64_v2(StreamHandle stream, DevicePointer word, std::uint64_t value,
                                            unsigned flags) {
  TROUPE_ENTER(cuStreamWaitValue64_v2, context);
  TROUPE_STREAM(on, stream);
  if (!is_word(entry, *on, word)) return Result::invalid_value;
  return entry.submit(*on, wait_value_operation(entry.place_on(on->number), word, value, flags));
}

TROUPE_EXPORT Result cuStreamWriteValue64_v2(StreamHandle stream, DevicePointer word, std::uint64_t value, unsigned) {
  TROUPE_ENTER(cuStreamWriteValue64_v2, context);
  TROUPE_STREAM(on, stream);
  if (!is_word(entry, *on, word)) return Result::invalid_value;
  return entry.submit(*on, write_value_operation(entry.place_on(on->number), word, value));
}

TROUPE_EXPORT Result cuMemcpyAsync(DevicePointer to, DevicePointer from, std::size_t bytes, StreamHandle stream) {
  TROUPE_ENTER(cuMemcpyAsync, context);
  TROUPE_STREAM(on, stream);
  return copy(entry, *on, to, from, bytes);
}

TROUPE_EXPORT Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, std::size_t bytes, StreamHandle stream) {
  TROUPE_ENTER(cuMemcpyHtoDAsync_v2, context);
  TROUPE_STREAM(on, stream);
  return copy(entry, *on, to, reinterpret_cast<Address>(from), bytes);
}

TROUPE_EXPORT Result cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, std::size_t bytes, StreamHandle stream) {
  TROUPE_ENTER(cuMemcpyDtoHAsync_v2, context);
  TROUPE_STREAM(on, stream);
  return copy(entry, *on, reinterpret_cast<Address>(to), from, bytes);
}

TROUPE_EXPORT Result cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, std::size_t bytes,
                                          StreamHandle stream) {
  TROUPE_ENTER(cuMemcpyDtoDAsync_v2, context);
  TROUPE_STREAM(on, stream);
  return copy(entry, *on, to, from, bytes);
}

TROUPE_EXPORT Result cuMemsetD8Async(DevicePointer to, unsigned char value, std::size_t count, StreamHandle stream) {
  TROUPE_ENTER(cuMemsetD8Async, context);
  TROUPE_STREAM(on, stream);
  return fill(entry, *on, to, value, 1, count);
}

TROUPE_EXPORT Result cuMemsetD32Async(DevicePointer to, unsigned value, std::size_t count, StreamHandle stream) {
  TROUPE_ENTER(cuMemsetD32Async, context);
  TROUPE_STREAM(on, stream);
  return fill(entry, *on, to, value, 4, count);
}

}  // namespace troupe::cuda
