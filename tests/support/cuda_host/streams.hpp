#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <thread>

#include "tests/support/cuda_host/operations.hpp"

namespace troupe::cuda::host {

/// A stream: a thread that runs one operation after the other. Its own members are guarded by Process::mutex.
struct StreamThread {
  /// What was asked, and what the CPU knew then.
  struct Item {
    OperationPtr operation;
    Clock cpu;
  };

  StreamThread(int number_of_stream, DeviceState& of_device, Lane of_lane)
      : number(number_of_stream), device(of_device), lane(of_lane) {}
  bool idle() const noexcept { return waiting.empty() && !busy; }

  const int number;
  DeviceState& device;
  const Lane lane;
  Clock clock;
  std::deque<Item> waiting;
  std::uint64_t submitted = 0;  // operations so far, captured ones with them
  bool busy = false;
  PlacePtr current;    // what it is busy with
  bool ended = false;  // the thread returns when the work is done
  std::condition_variable wake;
  std::thread thread;

  std::shared_ptr<Capture> capture;  // under way
  std::vector<std::size_t> tips;     // nodes that what is captured next comes behind
};

/// One recording of an event.
struct Record {
  PlacePtr place;
  bool done = false;
  Clock clock;
  float told_microseconds = 0;  // of Process, when it was done
};

struct EventState {
  unsigned flags = 0;
  std::shared_ptr<Record> latest;    // null: never recorded
  std::shared_ptr<Capture> capture;  // recorded in that one
  std::vector<std::size_t> tips;
};

std::shared_ptr<StreamThread> start_stream(DeviceState& device);
/// The thread ends when its work is done. `lock` is that of Process::mutex, which is given up if that is now.
void retire(const std::shared_ptr<StreamThread>& stream, std::unique_lock<std::mutex>& lock);
/// Waits for threads of streams that were destroyed. Call it without the mutex.
void join_retired(std::vector<std::shared_ptr<StreamThread>> retired);

/// Gives the stream its next operation, or adds a node to the graph that it captures.
TROUPE_HOST_SHARED Result submit(StreamThread& stream, OperationPtr operation);

OperationPtr record_operation(PlacePtr place, std::shared_ptr<Record> record);
OperationPtr wait_event_operation(PlacePtr place, std::shared_ptr<Record> record);

}  // namespace troupe::cuda::host
