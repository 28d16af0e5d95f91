#include <gmock/gmock.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "runtime/base/clock.hpp"
#include "tests/devices/cuda_host/rig.hpp"

// Programs that order their work: each is run under many seeds, gives the right numbers and ends without a report.

namespace troupe::cuda::testing {
namespace {

constexpr std::size_t kCount = 1000;
constexpr std::uint64_t kOnes = 0x0101010101010101;

/// Whether all words are `value`; says which is not.
bool all_are(const std::uint64_t* words, std::uint64_t value) {
  for (std::size_t i = 0; i < kCount; ++i)
    if (words[i] != value) {
      std::fprintf(stderr, "word %zu is %llu, not %llu\n", i, static_cast<unsigned long long>(words[i]),
                   static_cast<unsigned long long>(value));
      return false;
    }
  return true;
}

int copies_and_kernels_follow_each_other_in_a_stream() {
  Rig rig;
  const StreamHandle stream = rig.stream();
  const DevicePointer a = rig.memory(kCount);
  const DevicePointer b = rig.memory(kCount);
  std::uint64_t* const host = rig.pinned(kCount);
  std::fill_n(host, kCount, 5);
  rig.must(rig.driver.memcpy_htod_async, a, static_cast<const void*>(host), kCount * 8, stream);
  rig.must(rig.driver.memset_d32_async, b, 0U, kCount * 2, stream);
  rig.add("writer", b, a, kCount, stream, 3);
  rig.must(rig.driver.memcpy_dtod_async, a, b, kCount * 8, stream);
  rig.add("other", b, a, kCount, stream);
  rig.must(rig.driver.memcpy_dtoh_async, static_cast<void*>(host), b, kCount * 8, stream);
  rig.must(rig.driver.stream_synchronize, stream);
  return all_are(host, 30) ? 0 : 1;
}

int events_order_two_streams() {
  Rig rig;
  const std::array<StreamHandle, 2> streams{rig.stream(), rig.stream()};
  const std::array<EventHandle, 2> events{rig.event(), rig.event()};
  const DevicePointer sum = rig.memory(kCount);
  const DevicePointer ones = rig.memory(kCount);
  std::uint64_t* const host = rig.pinned(kCount);
  rig.fill(sum, kCount, streams[0], 0);
  rig.fill(ones, kCount, streams[0]);
  rig.must(rig.driver.event_record, events[0], streams[0]);
  for (unsigned i = 0; i < 20; ++i) {  // sum = sum * 2 + ones would show any other order; sums are taken in turn
    const unsigned mine = (i + 1) % 2;
    rig.must(rig.driver.stream_wait_event, streams[mine], events[1 - mine], 0U);
    rig.add("writer", sum, ones, kCount, streams[mine], i);
    rig.add("other", sum, sum, kCount, streams[mine]);
    rig.must(rig.driver.event_record, events[mine], streams[mine]);
  }
  rig.must(rig.driver.memcpy_dtoh_async, static_cast<void*>(host), sum, kCount * 8, streams[0]);
  rig.must(rig.driver.stream_synchronize, streams[0]);
  std::uint64_t expected = 0;
  for (std::uint64_t i = 0; i < 20; ++i) expected = (expected + kOnes * i) * 2;
  return all_are(host, expected) ? 0 : 1;
}

int memory_of_a_pool_lives_and_dies_in_stream_order() {
  Rig rig;
  const StreamHandle first = rig.stream();
  const StreamHandle second = rig.stream();
  const EventHandle made = rig.event();
  const EventHandle used = rig.event();
  const MemoryPool pool = rig.pool(10 * kCount * 8);
  std::uint64_t* const host = rig.pinned(kCount);
  for (int i = 0; i < 12; ++i) {  // more than the pool holds at a time
    DevicePointer scratch = 0;
    rig.must(rig.driver.mem_alloc_from_pool_async, &scratch, kCount * 8, pool, first);
    rig.fill(scratch, kCount, first, 2);
    rig.must(rig.driver.event_record, made, first);
    rig.must(rig.driver.stream_wait_event, second, made, 0U);
    rig.must(rig.driver.memcpy_dtoh_async, static_cast<void*>(host), scratch, kCount * 8, second);
    rig.must(rig.driver.event_record, used, second);
    rig.must(rig.driver.stream_wait_event, first, used, 0U);
    rig.must(rig.driver.mem_free_async, scratch, first);
  }
  rig.must(rig.driver.stream_synchronize, second);
  return all_are(host, 2 * kOnes) ? 0 : 1;
}

/// The CPU writes a word that a stream waits for, and sees one that the stream writes, without a call.
int words_order_a_stream_and_the_cpu() {
  Rig rig;
  const StreamHandle stream = rig.stream();
  const DevicePointer data = rig.memory(kCount);
  std::uint64_t* const host = rig.pinned(kCount);
  std::uint64_t* const words = rig.pinned(2);
  const std::atomic_ref<std::uint64_t> go{words[0]};
  const std::atomic_ref<std::uint64_t> done{words[1]};
  for (std::uint64_t step = 1; step <= 5; ++step) {
    rig.must(rig.driver.stream_wait_value64, stream, Rig::pointer_to(words), step, kWaitValueGeq);
    rig.must(rig.driver.memcpy_htod_async, data, static_cast<const void*>(host), kCount * 8, stream);
    rig.add("writer", data, data, kCount, stream);
    rig.must(rig.driver.memcpy_dtoh_async, static_cast<void*>(host), data, kCount * 8, stream);
    rig.must(rig.driver.stream_write_value64, stream, Rig::pointer_to(words + 1), step, kWriteValueDefault);
    rig.access(host, kCount * 8, 1, "filled by the CPU");
    std::fill_n(host, kCount, step);
    go.store(step, std::memory_order_release);
    const Deadline deadline = Deadline::after(std::chrono::seconds{10});
    while (done.load(std::memory_order_acquire) < step && !deadline.passed()) std::this_thread::yield();
    rig.access(host, kCount * 8, 0, "read by the CPU");
    if (!all_are(host, 2 * step)) return 1;
  }
  return 0;
}

/// The CPU carries a word of one stream on to another one, without a call of the driver in between.
int the_cpu_carries_words_between_streams() {
  Rig rig;
  const std::array<StreamHandle, 2> streams{rig.stream(), rig.stream()};
  const DevicePointer data = rig.memory(kCount);
  std::uint64_t* const host = rig.pinned(kCount);
  std::uint64_t* const words = rig.pinned(2);
  const std::atomic_ref<std::uint64_t> from{words[0]}, to{words[1]};
  for (std::uint64_t step = 1; step <= 5; ++step) {
    rig.must(rig.driver.memset_d8_async, data, static_cast<unsigned char>(step), kCount * 8, streams[0]);
    rig.must(rig.driver.stream_write_value64, streams[0], Rig::pointer_to(words), step, kWriteValueDefault);
    if (rig.launch("await", WordArgs{words + 1, step}, streams[1]) != Result::success) return 2;
    rig.must(rig.driver.memcpy_dtoh_async, static_cast<void*>(host), data, kCount * 8, streams[1]);
    const Deadline deadline = Deadline::after(std::chrono::seconds{10});
    while (from.load(std::memory_order_acquire) < step && !deadline.passed()) std::this_thread::yield();
    to.store(step, std::memory_order_release);
    rig.must(rig.driver.stream_synchronize, streams[1]);
    if (!all_are(host, kOnes * step)) return 1;
  }
  return 0;
}

int words_order_kernels_of_two_streams() {
  Rig rig;
  const std::array<StreamHandle, 2> streams{rig.stream(), rig.stream()};
  const DevicePointer sum = rig.memory(kCount);
  std::uint64_t* const host = rig.pinned(kCount);
  std::uint64_t* const words = rig.pinned(2);
  rig.fill(sum, kCount, streams[0]);
  for (std::uint64_t i = 1; i <= 6; ++i) {
    if (rig.launch("publish", WordArgs{words, i}, streams[0]) != Result::success) return 2;
    if (rig.launch("await", WordArgs{words, i}, streams[1]) != Result::success) return 2;
    rig.add("reader", sum, sum, kCount, streams[1]);
    if (rig.launch("publish", WordArgs{words + 1, i}, streams[1]) != Result::success) return 2;
    rig.must(rig.driver.stream_wait_value64, streams[0], Rig::pointer_to(words + 1), i, kWaitValueGeq);
    rig.add("writer", sum, sum, kCount, streams[0]);
  }
  rig.must(rig.driver.memcpy_dtoh_async, static_cast<void*>(host), sum, kCount * 8, streams[0]);
  rig.must(rig.driver.stream_synchronize, streams[0]);
  return all_are(host, kOnes << 12U) ? 0 : 1;
}

/// total += a * block + b * block, where a and b are worked on by two branches.
struct Branches {
  explicit Branches(Rig& rig_of)
      : rig(rig_of), main(rig.stream()), side(rig.stream()), fork(rig.event()), join(rig.event()) {
    rig.must(rig.driver.stream_begin_capture, main, CaptureMode::thread_local_);
    rig.fill(a, kCount, main);
    rig.must(rig.driver.event_record, fork, main);
    rig.must(rig.driver.stream_wait_event, side, fork, 0U);
    rig.fill(b, kCount, side, 2);
    add(b, b, side);
    add(a, a, main);
    rig.must(rig.driver.event_record, join, side);
    rig.must(rig.driver.stream_wait_event, main, join, 0U);
    add(total, a, main);
    add(total, b, main);
    GraphHandle graph = nullptr;
    rig.must(rig.driver.stream_end_capture, main, &graph);
    rig.must(rig.driver.graph_instantiate_with_flags, &exec, graph, 0ULL);
    std::size_t nodes = 0;
    rig.must(rig.driver.graph_get_nodes, graph, static_cast<GraphNode*>(nullptr), &nodes);
    if (nodes != 6) give_up("a graph of 6 nodes", Result::unknown);
    rig.must(rig.driver.graph_destroy, graph);
  }
  ~Branches() { rig.must(rig.driver.graph_exec_destroy, exec); }
  Branches(const Branches&) = delete;
  Branches& operator=(const Branches&) = delete;

  void add(DevicePointer to, DevicePointer from, StreamHandle stream) const {
    const AddBlockArgs args{Rig::words_at(to), Rig::words_at(from), kCount, block};
    if (rig.launch("add_block", args, stream) != Result::success) give_up("add_block", Result::unknown);
  }
  static std::uint64_t sum(std::uint64_t factor) { return 3 * kOnes * (1 + factor) * factor; }

  Rig& rig;
  const StreamHandle main;
  const StreamHandle side;
  const EventHandle fork;
  const EventHandle join;
  const DevicePointer a = rig.memory(kCount);
  const DevicePointer b = rig.memory(kCount);
  const DevicePointer total = rig.memory(kCount);
  std::uint64_t* const block = rig.pinned(1);
  GraphExec exec = nullptr;
};

int a_graph_of_two_branches_is_launched_again_with_other_values() {
  Rig rig;
  Branches graph{rig};
  std::uint64_t* const host = rig.pinned(kCount);
  rig.fill(graph.total, kCount, graph.main, 0);
  std::uint64_t expected = 0;
  for (std::uint64_t factor = 1; factor <= 6; ++factor) {
    rig.access(graph.block, 8, 1, "step block");
    *graph.block = factor;
    rig.must(rig.driver.graph_upload, graph.exec, graph.main);
    rig.must(rig.driver.graph_launch, graph.exec, graph.main);
    rig.must(rig.driver.stream_synchronize, graph.main);
    expected += Branches::sum(factor);
  }
  rig.must(rig.driver.memcpy_dtoh_async, static_cast<void*>(host), graph.total, kCount * 8, graph.main);
  rig.must(rig.driver.stream_synchronize, graph.main);
  return all_are(host, expected) ? 0 : 1;
}

/// One launch follows the other, on whichever streams.
int launches_of_one_graph_follow_each_other() {
  Rig rig;
  Branches graph{rig};
  *graph.block = 2;
  std::uint64_t* const host = rig.pinned(kCount);
  const EventHandle begun = rig.event();
  rig.fill(graph.total, kCount, graph.main, 0);
  rig.must(rig.driver.event_record, begun, graph.main);
  rig.must(rig.driver.stream_wait_event, graph.side, begun, 0U);
  for (int i = 0; i < 4; ++i) rig.must(rig.driver.graph_launch, graph.exec, i % 2 == 0 ? graph.main : graph.side);
  rig.must(rig.driver.ctx_synchronize);
  rig.must(rig.driver.memcpy_dtoh_async, static_cast<void*>(host), graph.total, kCount * 8, graph.main);
  rig.must(rig.driver.stream_synchronize, graph.main);
  return all_are(host, 4 * Branches::sum(2)) ? 0 : 1;
}

int another_thread_may_allocate_while_a_thread_captures() {
  Rig rig;
  const StreamHandle stream = rig.stream();
  const DevicePointer data = rig.memory(kCount);
  rig.must(rig.driver.stream_begin_capture, stream, CaptureMode::thread_local_);
  rig.fill(data, kCount, stream);
  std::thread other{[&] {
    rig.must(rig.driver.ctx_set_current, rig.context(0));
    DevicePointer mine = 0;
    rig.must(rig.driver.mem_alloc, &mine, std::size_t{64});
    rig.must(rig.driver.mem_free, mine);
  }};
  other.join();
  CaptureMode mode = CaptureMode::relaxed;  // and this one may, where it says that it knows what it does
  rig.must(rig.driver.thread_exchange_stream_capture_mode, &mode);
  DevicePointer mine = 0;
  rig.must(rig.driver.mem_alloc, &mine, std::size_t{64});
  rig.must(rig.driver.mem_free, mine);
  rig.must(rig.driver.thread_exchange_stream_capture_mode, &mode);
  GraphHandle graph = nullptr;
  rig.must(rig.driver.stream_end_capture, stream, &graph);
  rig.must(rig.driver.graph_destroy, graph);
  return 0;
}

int memory_goes_from_device_to_device() {
  Rig rig{2};
  const StreamHandle first = rig.stream();
  const DevicePointer here = rig.memory(kCount);
  std::uint64_t* const host = rig.pinned(kCount);
  rig.fill(here, kCount, first, 3);
  rig.must(rig.driver.stream_synchronize, first);
  rig.must(rig.driver.ctx_set_current, rig.context(1));
  rig.must(rig.driver.ctx_enable_peer_access, rig.context(0), 0U);
  const StreamHandle second = rig.stream();
  const DevicePointer there = rig.memory(kCount);
  rig.must(rig.driver.memcpy_async, there, here, kCount * 8, second);
  rig.must(rig.driver.memcpy_dtoh_async, static_cast<void*>(host), there, kCount * 8, second);
  rig.must(rig.driver.stream_synchronize, second);
  return all_are(host, 3 * kOnes) ? 0 : 1;
}

/// Its memory, its handle and its words, which two processes share.
struct Shared {
  IpcMemHandle handle;
  std::atomic<std::uint64_t> step;
};

int wait_for(const std::atomic<std::uint64_t>& step, std::uint64_t value) {
  const Deadline deadline = Deadline::after(std::chrono::seconds{10});
  while (step.load() < value && !deadline.passed()) std::this_thread::yield();
  return step.load() >= value ? 0 : 3;
}

int own_memory(Shared& shared) {
  Rig rig;
  const StreamHandle stream = rig.stream();
  const DevicePointer data = rig.memory(kCount);
  std::uint64_t* const host = rig.pinned(kCount);
  rig.fill(data, kCount, stream, 4);
  rig.must(rig.driver.stream_synchronize, stream);
  rig.must(rig.driver.ipc_get_mem_handle, &shared.handle, data);
  shared.step = 1;
  if (wait_for(shared.step, 2) != 0) return 3;
  rig.must(rig.driver.memcpy_dtoh_async, static_cast<void*>(host), data, kCount * 8, stream);
  rig.must(rig.driver.stream_synchronize, stream);
  return all_are(host, 8 * kOnes) ? 0 : 1;
}

int use_memory(Shared& shared) {
  Rig rig;
  const StreamHandle stream = rig.stream();
  if (wait_for(shared.step, 1) != 0) return 3;
  DevicePointer data = 0;
  rig.must(rig.driver.ipc_open_mem_handle, &data, shared.handle, kIpcLazyEnablePeerAccess);
  rig.add("writer", data, data, kCount, stream);
  rig.must(rig.driver.stream_synchronize, stream);
  rig.must(rig.driver.ipc_close_mem_handle, data);
  shared.step = 2;
  return 0;
}

int two_processes_share_memory() {
  void* const at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& shared = *new (at) Shared{};
  const pid_t child = fork();
  if (child == 0) std::exit(use_memory(shared));
  const int code = own_memory(shared);
  int status = 0;
  waitpid(child, &status, 0);
  return code != 0 ? code : WEXITSTATUS(status);
}

int events_tell_how_far_a_stream_is() {
  (void)::setenv("TROUPE_CUDA_HOST_TIMES", "troupe_copy=1", 1);
  Rig rig;
  const StreamHandle stream = rig.stream();
  std::array<EventHandle, 2> events{};
  for (EventHandle& event : events) rig.must(rig.driver.event_create, &event, kEventBlockingSync);
  std::uint64_t* const word = rig.pinned(1);
  rig.must(rig.driver.event_record, events[0], stream);
  rig.must(rig.driver.stream_wait_value64, stream, Rig::pointer_to(word), 1ULL, kWaitValueEq);
  rig.must(rig.driver.event_record, events[1], stream);
  const bool waits =
      rig.driver.event_query(events[1]) == Result::not_ready && rig.driver.stream_query(stream) == Result::not_ready;
  std::atomic_ref<std::uint64_t>{*word}.store(1);
  rig.must(rig.driver.event_synchronize, events[1]);
  rig.must(rig.driver.event_query, events[0]);
  float milliseconds = -1;
  rig.must(rig.driver.event_elapsed_time, &milliseconds, events[0], events[1]);
  rig.must(rig.driver.stream_synchronize, stream);
  rig.must(rig.driver.stream_query, stream);
  for (const EventHandle event : events) rig.must(rig.driver.event_destroy, event);
  return waits && milliseconds >= 0 ? 0 : 1;
}

/// A wait that compares cyclically ends when a line is poisoned: its word is 2^63 more.
int a_poisoned_word_ends_a_wait() {
  Rig rig;
  const StreamHandle stream = rig.stream();
  std::uint64_t* const word = rig.pinned(1);
  *word = 7;
  rig.must(rig.driver.stream_wait_value64, stream, Rig::pointer_to(word), 9ULL, kWaitValueGeq);
  std::atomic_ref<std::uint64_t>{*word}.store(7 + (1ULL << 63U));
  rig.must(rig.driver.stream_synchronize, stream);
  return 0;
}

/// The poison comes before anybody has seen the value that a kernel has written there.
int a_poisoned_word_still_orders_what_its_value_does() {
  Rig rig;
  const std::array<StreamHandle, 2> streams{rig.stream(), rig.stream()};
  const DevicePointer sum = rig.memory(kCount);
  std::uint64_t* const host = rig.pinned(kCount);
  std::uint64_t* const word = rig.pinned(1);
  const std::atomic_ref<std::uint64_t> line{*word};
  rig.fill(sum, kCount, streams[0]);
  if (rig.launch("publish", WordArgs{word, 1}, streams[0]) != Result::success) return 2;
  const Deadline deadline = Deadline::after(std::chrono::seconds{10});
  while (line.load(std::memory_order_acquire) < 1 && !deadline.passed()) std::this_thread::yield();
  line.fetch_or(1ULL << 63U);
  if (rig.launch("await", WordArgs{word, 1}, streams[1]) != Result::success) return 2;
  rig.add("reader", sum, sum, kCount, streams[1]);
  rig.must(rig.driver.memcpy_dtoh_async, static_cast<void*>(host), sum, kCount * 8, streams[1]);
  rig.must(rig.driver.stream_synchronize, streams[1]);
  return all_are(host, 2 * kOnes) ? 0 : 1;
}

/// As a product of cuBLASLt reads weights that NCCL writes: the wait between them has failed, so nobody uses the
/// result. The failure is also that of what an event or a graph orders behind it.
int work_behind_a_failure_reads_what_is_written_meanwhile() {
  Rig rig;
  const std::array<StreamHandle, 3> streams{rig.stream(), rig.stream(), rig.stream()};
  constexpr std::size_t kWords = sizeof(StreamState) / 8;
  const DevicePointer data = rig.memory(kCount), state = rig.memory(kWords);
  const std::array<DevicePointer, 3> results{rig.memory(kCount), rig.memory(kCount), rig.memory(kCount)};
  const EventHandle border = rig.event();
  rig.fill(data, kCount, streams[0]);
  rig.fill(state, kWords, streams[0], 0);
  rig.must(rig.driver.stream_synchronize, streams[0]);
  GraphHandle graph = nullptr;
  GraphExec exec = nullptr;
  rig.must(rig.driver.stream_begin_capture, streams[0], CaptureMode::thread_local_);
  rig.must(rig.driver.memcpy_async, results[0], data, kCount * 8, streams[0]);
  rig.must(rig.driver.stream_end_capture, streams[0], &graph);
  rig.must(rig.driver.graph_instantiate_with_flags, &exec, graph, 0ULL);
  rig.must(rig.driver.graph_destroy, graph);

  rig.add("writer", data, data, kCount, streams[1]);
  if (rig.launch("end", EndArgs{.stream = reinterpret_cast<StreamState*>(state)}, streams[0]) != Result::success)
    return 2;
  rig.must(rig.driver.memcpy_async, results[1], data, kCount * 8, streams[0]);
  rig.must(rig.driver.event_record, border, streams[0]);
  rig.must(rig.driver.stream_wait_event, streams[2], border, 0U);
  rig.must(rig.driver.memcpy_async, results[2], data, kCount * 8, streams[2]);
  rig.must(rig.driver.graph_launch, exec, streams[0]);
  rig.add("writer", data, data, kCount, streams[1]);
  for (const StreamHandle stream : streams) rig.must(rig.driver.stream_synchronize, stream);
  rig.must(rig.driver.graph_exec_destroy, exec);
  return 0;
}

int registered_memory_is_copied_and_given_back() {
  Rig rig;
  const StreamHandle stream = rig.stream();
  const DevicePointer data = rig.memory(kCount);
  Words mine(kCount, 9);
  Words result(kCount);
  rig.must(rig.driver.mem_host_register, static_cast<void*>(mine.data()), kCount * 8, kHostRegisterPortable);
  rig.must(rig.driver.mem_host_register, static_cast<void*>(result.data()), kCount * 8, kHostRegisterPortable);
  DevicePointer seen = 0;
  rig.must(rig.driver.mem_host_get_device_pointer, &seen, static_cast<void*>(mine.data()), 0U);
  rig.must(rig.driver.memcpy_async, data, seen, kCount * 8, stream);
  rig.must(rig.driver.memcpy_async, Rig::pointer_to(result.data()), data, kCount * 8, stream);
  rig.must(rig.driver.stream_synchronize, stream);
  rig.must(rig.driver.mem_host_unregister, static_cast<void*>(mine.data()));
  rig.must(rig.driver.mem_host_unregister, static_cast<void*>(result.data()));
  return all_are(result.data(), 9) ? 0 : 1;
}

struct Right {
  const char* name;
  int (*program)();
  const char* setting = "DEVICES=1";
};

void PrintTo(const Right& row, std::ostream* out) { *out << row.name; }

class CudaHost : public ::testing::TestWithParam<Right> {};

TEST_P(CudaHost, RunsRightProgramsWithoutAReportUnderAnySeed) {
  for (int seed = 0; seed < 8; ++seed) {
    const Ending ending = run_apart(GetParam().program, {"SEED=" + std::to_string(seed), GetParam().setting});
    ASSERT_EQ(ending.code, 0) << "seed " << seed << "\n" << ending.text;
    ASSERT_EQ(ending.text, "") << "seed " << seed;
  }
}

constexpr Right kRight[] = {
    {"CopiesAndKernels", copies_and_kernels_follow_each_other_in_a_stream},
    {"Events", events_order_two_streams},
    {"Pool", memory_of_a_pool_lives_and_dies_in_stream_order},
    {"WordsOfTheCpu", words_order_a_stream_and_the_cpu},
    {"WordsOfKernels", words_order_kernels_of_two_streams},
    {"WordsCarriedByTheCpu", the_cpu_carries_words_between_streams},
    {"GraphAgain", a_graph_of_two_branches_is_launched_again_with_other_values},
    {"GraphOnTwoStreams", launches_of_one_graph_follow_each_other},
    {"ThreadsAndCaptures", another_thread_may_allocate_while_a_thread_captures},
    {"TwoDevices", memory_goes_from_device_to_device, "DEVICES=2"},
    {"TwoProcesses", two_processes_share_memory},
    {"EventQueries", events_tell_how_far_a_stream_is},
    {"PoisonedWord", a_poisoned_word_ends_a_wait},
    {"PoisonedWordInOrder", a_poisoned_word_still_orders_what_its_value_does},
    {"BehindAFailure", work_behind_a_failure_reads_what_is_written_meanwhile},
    {"RegisteredMemory", registered_memory_is_copied_and_given_back},
};
INSTANTIATE_TEST_SUITE_P(All, CudaHost, ::testing::ValuesIn(kRight),
                         [](const auto& row) { return std::string{row.param.name}; });

// Errors on command: what a call returns then.

int fails_as_told() {
  Rig rig;
  const StreamHandle stream = rig.stream();
  DevicePointer data = 0;
  rig.must(rig.driver.mem_alloc, &data, std::size_t{64});
  const bool second_fails = rig.driver.mem_alloc(&data, 64) == Result::out_of_memory;
  std::uint64_t* const words = rig.pinned(8);
  const DevicePointer more = rig.memory(8);
  rig.fill(more, 8, stream);
  rig.add("writer", more, more, 8, stream);  // the error comes with the stream, and stays
  const bool sticks = rig.driver.stream_synchronize(stream) == Result::ecc_uncorrectable &&
                      rig.driver.memcpy_async(Rig::pointer_to(words), more, 64, stream) == Result::ecc_uncorrectable;
  _exit(second_fails && sticks ? 0 : 1);  // nothing can be given back in a context that has failed
}

int has_no_device() {
  std::string why;
  const auto driver = Driver::load(why);
  return driver && driver->init(0) == Result::no_device ? 0 : 1;
}

int says_what_it_is() {
  Rig rig;
  int version = 0;
  int mode = 0;
  char name[64];
  char bus[16];
  DeviceId found = -1;
  rig.must(rig.driver.driver_get_version, &version);
  rig.must(rig.driver.device_get_attribute, &mode, DeviceAttribute::compute_mode, 0);
  rig.must(rig.driver.device_get_name, name, 64, 0);
  rig.must(rig.driver.device_get_pci_bus_id, bus, 16, 0);
  rig.must(rig.driver.device_get_by_pci_bus_id, &found, static_cast<const char*>(bus));
  return version == 11040 && mode == 3 && std::string{name} == "Stand-in" && found == 0 ? 0 : 1;
}

int a_device_and_a_pool_are_full() {
  Rig rig;
  const StreamHandle stream = rig.stream();
  const MemoryPool pool = rig.pool(4096);
  DevicePointer data = 0;
  if (rig.driver.mem_alloc(&data, 1 << 20) != Result::out_of_memory) return 1;
  rig.must(rig.driver.mem_alloc_from_pool_async, &data, std::size_t{4000}, pool, stream);
  DevicePointer more = 0;
  if (rig.driver.mem_alloc_from_pool_async(&more, 4000, pool, stream) != Result::out_of_memory) return 2;
  rig.must(rig.driver.mem_free_async, data, stream);
  rig.must(rig.driver.mem_alloc_from_pool_async, &data, std::size_t{4000}, pool, stream);
  rig.must(rig.driver.mem_free_async, data, stream);
  rig.must(rig.driver.stream_synchronize, stream);
  std::size_t free = 0;
  std::size_t total = 0;
  rig.must(rig.driver.mem_get_info, &free, &total);
  return free == total ? 0 : 3;
}

TEST(CudaHostFaults, FailTheCallsAndKernelsThatTheyName) {
  const Ending ending =
      run_apart(fails_as_told, {"FAULT=cuMemAlloc_v2:2=out_of_memory,writer=ecc_uncorrectable", "SEED=1"});
  EXPECT_EQ(ending.code, 0) << ending.text;
}

/// As the driver's errors do: the capture is over, and its stream may be destroyed.
int a_capture_ends_with_an_error() {
  Rig rig;
  const StreamHandle stream = rig.stream();
  const DevicePointer data = rig.memory(kCount);
  rig.must(rig.driver.stream_begin_capture, stream, CaptureMode::thread_local_);
  rig.fill(data, kCount, stream);
  GraphHandle graph = nullptr;
  return rig.driver.stream_end_capture(stream, &graph) == Result::out_of_memory && graph == nullptr ? 0 : 1;
}

TEST(CudaHostFaults, LeaveNoCaptureOpen) {
  const Ending ending = run_apart(a_capture_ends_with_an_error, {"FAULT=cuStreamEndCapture=out_of_memory"});
  EXPECT_EQ(ending.code, 0) << ending.text;
  EXPECT_EQ(ending.text, "");
}

TEST(CudaHostFaults, LeaveNoDevice) {
  EXPECT_EQ(run_apart(has_no_device, {"FAULT=cuInit=no_device"}).code, 0);
  EXPECT_EQ(run_apart(has_no_device, {"DEVICES=0"}).code, 0);
}

TEST(CudaHostFaults, MakeTheDriverOldAndTheDeviceExclusive) {
  const Ending ending = run_apart(says_what_it_is, {"DRIVER=11040", "MODE=exclusive"});
  EXPECT_EQ(ending.code, 0) << ending.text;
}

TEST(CudaHostFaults, AreNotNeededToFillADeviceAndAPool) {
  const Ending ending = run_apart(a_device_and_a_pool_are_full, {"MEMORY=65536"});
  EXPECT_EQ(ending.code, 0) << ending.text;
}

}  // namespace
}  // namespace troupe::cuda::testing
