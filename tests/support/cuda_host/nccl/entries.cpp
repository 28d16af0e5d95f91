// What the stand-in of NCCL exports.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "tests/support/cuda_host/nccl/comm.hpp"

namespace troupe::nccl {
namespace host {
namespace {

using cuda::host::Needs;
using cuda::host::process;
using cuda::host::reports;

constexpr int kVersion = 22809;

/// All communicators of this process. Guarded by Process::mutex.
cuda::host::Handles<CommState, Comm>& comms() {
  static auto& all = *std::make_unique<cuda::host::Handles<CommState, Comm>>("a communicator").release();
  return all;
}
PlacePtr& open_group() {  // the last that was begun and not ended; null: there is none
  static auto& place = *std::make_unique<PlacePtr>().release();
  return place;
}

/// What this thread has called since its first ncclGroupStart.
struct Group {
  struct One {
    std::shared_ptr<CommState> comm;
    std::shared_ptr<StreamThread> stream;
    Call call;
  };
  int depth = 0;
  std::vector<One> calls;
  Result error = Result::success;  // of a call: then none of the group happens
};
thread_local Group group;

/// What a call ends with that may not go on, or success.
Result refusal(const Entry& entry) {
  const auto refused = static_cast<unsigned>(entry.refused());
  if (refused > cuda::host::kNcclFault) return Result{refused - cuda::host::kNcclFault};
  return refused == 0 ? Result::success : Result::unhandled_cuda_error;
}

Result misuse(const char* kind, const std::string& text) {
  reports().add(kind, text);
  return Result::invalid_usage;
}

// ---- Communicators ----

Result sit_down(Entry& entry, CommState& comm) {
  Clique& clique = comm.clique();
  for (int r = 0; r < comm.ranks; ++r) {
    const Seat& seat = clique.seats[r];
    if (seat.taken != 0 && seat.device == comm.device)
      return misuse("duplicate GPU", entry.place()->text() + " joins as rank " + std::to_string(comm.rank) +
                                         " on device " + std::to_string(comm.device) + ", where rank " +
                                         std::to_string(r) + " is");
  }
  Seat& seat = clique.seats[comm.rank];
  if (clique.ranks.exchange(comm.ranks) > 0 && clique.ranks != comm.ranks) return Result::invalid_argument;
  if (seat.taken.exchange(1) != 0) return Result::invalid_usage;
  seat.device = comm.device;
  seat.process = getpid();
  ++clique.seated;
  return Result::success;
}

/// The group has come to its stream by now, unless the caller asks once more.
bool settle(CommState& comm) {
  if (!comm.unsettled) return true;
  CommState::Unsettled& waiting = *comm.unsettled;
  if (waiting.asks-- > 0) return false;
  if (waiting.stream->submitted != waiting.submitted || waiting.stream->capture.get() != waiting.capture)
    reports().add("went on too early",
                  waiting.operation->place->text() +
                      " is still on its way to the stream, on which something else was done meanwhile: ask "
                      "ncclCommGetAsyncError until it is not in progress");
  if (!waiting.there) (void)cuda::host::submit(*waiting.stream, waiting.operation);
  comm.unsettled.reset();
  return true;
}

/// The communicator of a call, ready for it; null: `result` says why.
std::shared_ptr<CommState> ready(const Entry& entry, Comm handle, Result& result) {
  const auto comm = comms().find(handle, entry.place());
  result = Result::invalid_argument;
  if (comm == nullptr) return nullptr;
  if (!comm->is_connected()) {
    result = misuse("went on too early", entry.place()->text() + " uses a communicator from " + comm->made->text() +
                                             " that is not connected yet");
    return nullptr;
  }
  if (comm->unsettled) {
    result = misuse("went on too early", entry.place()->text() + " comes before " +
                                             comm->unsettled->operation->place->text() + " is no longer in progress");
    return nullptr;
  }
  result = comm->error;
  return result == Result::success ? comm : nullptr;
}

Result launch(const std::shared_ptr<CommState>& comm, const std::shared_ptr<StreamThread>& stream,
              std::vector<Call> calls) {
  const PlacePtr place = calls.front().place;
  auto operation = std::make_shared<const cuda::host::Operation>(cuda::host::Operation{
      place, [comm, calls = std::move(calls), place](Run& run) { run_group(run, *comm, calls, place); }});
  if (stream->capture != nullptr) comm->recorded.push_back(operation);
  const std::uint64_t seed = process().settings.seed;
  const bool late = !comm->blocking && seed != 0 && (seed * 31 + comm->groups++ * 7) % 3 == 0;
  if (!late && cuda::host::submit(*stream, operation) != cuda::Result::success) return Result::unhandled_cuda_error;
  if (comm->blocking) return Result::success;
  comm->unsettled =
      CommState::Unsettled{stream, operation, stream->capture.get(), stream->submitted, late ? 2 : 0, !late};
  return Result::in_progress;
}

/// All calls of the thread's group: those of a communicator are one operation.
Result launch_group(Entry& entry) {
  std::vector<Group::One> calls = std::move(group.calls);
  group.calls.clear();
  Result result = std::exchange(group.error, Result::success);
  if (result != Result::success) return result;
  while (!calls.empty()) {
    const std::shared_ptr<CommState> comm = calls.front().comm;
    const std::shared_ptr<StreamThread> stream = calls.front().stream;
    std::vector<Call> own;
    std::vector<Group::One> rest;
    for (Group::One& one : calls) {
      if (one.comm != comm) {
        rest.push_back(std::move(one));
        continue;
      }
      if (one.stream != stream)
        return misuse("several streams", entry.place()->text() + " ends a group with calls on several streams");
      own.push_back(std::move(one.call));
    }
    calls = std::move(rest);
    const Result launched = launch(comm, stream, std::move(own));
    if (launched != Result::success && result == Result::success) result = launched;
  }
  return result;
}

/// The call, where it can be made; else `result` says why not.
std::optional<Group::One> checked(Entry& entry, Comm handle, StreamHandle stream, Call call, Result& result) {
  if ((result = refusal(entry)) != Result::success) return std::nullopt;
  const auto comm = ready(entry, handle, result);
  if (comm == nullptr) return std::nullopt;
  result = Result::invalid_argument;
  const auto on = entry.stream(stream);
  if (on == nullptr || call.root >= comm->ranks || (!call.is_collective() && call.root == comm->rank))
    return std::nullopt;
  call.place = entry.place_on(on->number);
  if (on->device.number == comm->device) return Group::One{comm, on, std::move(call)};
  result = misuse("wrong device", call.place->text() + " is on device " + std::to_string(on->device.number) +
                                      ", its communicator on device " + std::to_string(comm->device));
  return std::nullopt;
}

Result add_call(Entry& entry, Comm handle, StreamHandle stream, Call call) {
  Result result = Result::success;
  auto made = checked(entry, handle, stream, std::move(call), result);
  if (made) {
    group.calls.push_back(std::move(*made));
    return group.depth > 0 ? Result::success : launch_group(entry);
  }
  if (group.depth > 0) group.error = result;
  return result;
}

__attribute__((destructor)) void end_of_process() {
  const std::lock_guard lock{process().mutex};
  comms().report_leaks();
  if (open_group() != nullptr)
    reports().add("leak", "the process ends within the group that " + open_group()->text() + " began");
}

std::uintptr_t address(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

}  // namespace
}  // namespace host

using namespace host;

TROUPE_NCCL_ENTRY_POINTS(TROUPE_ENTRY_DECLARE)

// Begins an entry point: `entry` is the call.
#define TROUPE_NCCL_ENTER(name, needs)                           \
  Entry entry{#name, __builtin_return_address(0), Needs::needs}; \
  if (const Result refused = refusal(entry); refused != Result::success) return refused

TROUPE_EXPORT Result ncclGetVersion(int* version) {
  const char* const told = std::getenv("TROUPE_CUDA_HOST_NCCL");
  *version = told == nullptr ? kVersion : std::atoi(told);
  return Result::success;
}

TROUPE_EXPORT const char* ncclGetErrorString(Result result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  const auto at = static_cast<unsigned>(result);
  return at < std::size(kTexts) ? kTexts[at] : "unknown result code";
}

TROUPE_EXPORT const char* ncclGetLastError(Comm) { return ""; }

TROUPE_EXPORT Result ncclGetUniqueId(UniqueId* id) {
  TROUPE_NCCL_ENTER(ncclGetUniqueId, nothing);
  return make_clique(*id) ? Result::success : Result::system_error;
}

TROUPE_EXPORT Result ncclCommInitRankConfig(Comm* handle, int ranks, UniqueId id, int rank, Config* config) {
  Entry entry{"ncclCommInitRankConfig", __builtin_return_address(0), Needs::context};
  const Result refused = refusal(entry);
  const bool never_comes = refused == Result::in_progress;  // on command: its peers wait for it
  if (refused != Result::success && !never_comes) return refused;
  if (ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks || config->magic != Config{}.magic)
    return Result::invalid_argument;
  auto comm = std::make_shared<CommState>();
  comm->rank = rank;
  comm->ranks = ranks;
  comm->device = entry.device().number;
  comm->blocking = config->blocking != 0;
  comm->made = entry.place();
  comm->sent.resize(static_cast<std::size_t>(ranks));
  comm->received.resize(static_cast<std::size_t>(ranks));
  comm->open = open_clique(id);
  if (comm->open.clique == nullptr) return Result::remote_error;
  if (const Result seated = never_comes ? Result::success : sit_down(entry, *comm); seated != Result::success)
    return seated;
  *handle = comms().add(comm, entry.place());
  if (!comm->blocking) return Result::in_progress;
  // Ranks in other processes tell nobody when they come.
  const auto end = std::chrono::steady_clock::now() + 2 * entry.all().settings.deadline;
  while (!comm->is_connected()) {
    if (std::chrono::steady_clock::now() > end)
      return misuse("endless wait", entry.place()->text() + " waits in vain for all ranks to join");
    entry.wait_a_moment();
  }
  return Result::success;
}

TROUPE_EXPORT Result ncclCommGetAsyncError(Comm handle, Result* error) {
  TROUPE_NCCL_ENTER(ncclCommGetAsyncError, driver);
  const auto comm = comms().find(handle, entry.place());
  if (comm == nullptr) return Result::invalid_argument;
  *error = comm->error;
  if (comm->error == Result::success && (!comm->is_connected() || !settle(*comm))) *error = Result::in_progress;
  return Result::success;
}

/// Operations on streams end at once; recorded ones must be gone, as NCCL waits for them.
TROUPE_EXPORT Result ncclCommAbort(Comm handle) {
  Entry entry{"ncclCommAbort", __builtin_return_address(0), Needs::driver};
  const Result refused = refusal(entry);
  if (refused != Result::success && refused != Result::in_progress) return refused;
  const PlacePtr place = entry.place();
  const auto comm = comms().end(handle, place);
  if (comm == nullptr) return Result::invalid_argument;
  comm->aborted = true;
  comm->unsettled.reset();
  entry.all().changed.notify_all();
  const auto end = std::chrono::steady_clock::now() + 2 * entry.all().settings.deadline;
  const auto is_recorded = [&comm] {
    return std::any_of(comm->recorded.begin(), comm->recorded.end(), [](const auto& one) { return !one.expired(); });
  };
  while (comm->running > 0 || is_recorded()) {
    if (std::chrono::steady_clock::now() > end)
      return misuse("endless wait",
                    place->text() + " waits in vain for " +
                        (comm->running > 0 ? "a collective" : "the graphs in which there are collectives"));
    entry.wait_a_moment();
  }
  while (refused == Result::in_progress) entry.wait_a_moment();  // on command: it never returns
  return Result::success;
}

TROUPE_EXPORT Result ncclGroupStart() {
  TROUPE_NCCL_ENTER(ncclGroupStart, nothing);
  if (group.depth++ == 0) open_group() = entry.place();
  return Result::success;
}

TROUPE_EXPORT Result ncclGroupEnd() {
  Entry entry{"ncclGroupEnd", __builtin_return_address(0), Needs::nothing};
  if (group.depth == 0) return misuse("no group", entry.place()->text() + " ends a group that was not begun");
  if (--group.depth > 0) return refusal(entry);
  open_group() = nullptr;
  if (const Result refused = refusal(entry); refused != Result::success) {  // the group ends all the same
    group.calls.clear();
    return refused;
  }
  return launch_group(entry);
}

TROUPE_EXPORT Result ncclAllReduce(const void* from, void* to, std::size_t count, Type type, Operator, Comm comm,
                                   StreamHandle stream) {
  Entry entry{"ncclAllReduce", __builtin_return_address(0), Needs::driver};
  return add_call(entry, comm, stream,
                  {Call::Kind::all_reduce, "ncclAllReduce", address(from), address(to), count, type, -1, nullptr});
}

TROUPE_EXPORT Result ncclReduce(const void* from, void* to, std::size_t count, Type type, Operator, int root, Comm comm,
                                StreamHandle stream) {
  Entry entry{"ncclReduce", __builtin_return_address(0), Needs::driver};
  return add_call(entry, comm, stream,
                  {Call::Kind::reduce, "ncclReduce", address(from), address(to), count, type, root, nullptr});
}

TROUPE_EXPORT Result ncclBroadcast(const void* from, void* to, std::size_t count, Type type, int root, Comm comm,
                                   StreamHandle stream) {
  Entry entry{"ncclBroadcast", __builtin_return_address(0), Needs::driver};
  return add_call(entry, comm, stream,
                  {Call::Kind::broadcast, "ncclBroadcast", address(from), address(to), count, type, root, nullptr});
}

TROUPE_EXPORT Result ncclAllGather(const void* from, void* to, std::size_t count, Type type, Comm comm,
                                   StreamHandle stream) {
  Entry entry{"ncclAllGather", __builtin_return_address(0), Needs::driver};
  return add_call(entry, comm, stream,
                  {Call::Kind::all_gather, "ncclAllGather", address(from), address(to), count, type, -1, nullptr});
}

TROUPE_EXPORT Result ncclSend(const void* from, std::size_t count, Type type, int peer, Comm comm,
                              StreamHandle stream) {
  Entry entry{"ncclSend", __builtin_return_address(0), Needs::driver};
  return add_call(entry, comm, stream, {Call::Kind::send, "ncclSend", address(from), 0, count, type, peer, nullptr});
}

TROUPE_EXPORT Result ncclRecv(void* to, std::size_t count, Type type, int peer, Comm comm, StreamHandle stream) {
  Entry entry{"ncclRecv", __builtin_return_address(0), Needs::driver};
  return add_call(entry, comm, stream, {Call::Kind::recv, "ncclRecv", 0, address(to), count, type, peer, nullptr});
}

}  // namespace troupe::nccl
