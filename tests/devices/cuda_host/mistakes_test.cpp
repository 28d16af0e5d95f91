#include <gmock/gmock.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <sstream>

#include "tests/devices/cuda_host/mistakes.hpp"

// Programs with one mistake each, of kinds that hardware would tolerate most of the time. Each must be found for every
// order of execution, and the report must name both places. The table is at the end.

namespace troupe::cuda::testing::mistakes {

constexpr std::size_t kCount = 100;
constexpr std::size_t kBytes = kCount * 8;

/// Two streams and memory that both know.
struct Two : Rig {
  const StreamHandle first = stream();
  const StreamHandle second = stream();
  const DevicePointer a = memory(kCount);
  const DevicePointer b = memory(kCount);
  const DevicePointer c = memory(kCount);

  Two() {
    for (const DevicePointer pointer : {a, b, c}) fill(pointer, kCount, first);
    must(driver.stream_synchronize, first);
  }
  /// The CPU waits for both, and has made no mistake in that.
  void finish() {
    must(driver.stream_synchronize, first);
    must(driver.stream_synchronize, second);
  }
};

int missing_wait() {
  Two rig;
  rig.add("writer", rig.a, rig.b, kCount, rig.first);
  rig.add("reader", rig.c, rig.a, kCount, rig.second);
  rig.finish();
  return 0;
}

int overwritten_while_it_is_read() {
  Two rig;
  rig.add("reader", rig.c, rig.a, kCount, rig.first);
  rig.fill(rig.a, kCount, rig.second);
  rig.finish();
  return 0;
}

int written_twice() {
  Two rig;
  rig.fill(rig.a, kCount, rig.first);
  rig.must(rig.driver.memcpy_dtod_async, rig.a, rig.b, kBytes, rig.second);
  rig.finish();
  return 0;
}

int ranges_overlap_by_one_word() {
  Two rig;
  rig.add("writer", rig.a, rig.b, kCount / 2 + 1, rig.first);
  rig.add("reader", rig.c, rig.a + kBytes / 2, kCount / 2, rig.second);
  rig.finish();
  return 0;
}

int event_recorded_too_early() {
  Two rig;
  const EventHandle event = rig.event();
  rig.must(rig.driver.event_record, event, rig.first);
  rig.add("writer", rig.a, rig.b, kCount, rig.first);
  rig.must(rig.driver.stream_wait_event, rig.second, event, 0U);
  rig.add("reader", rig.c, rig.a, kCount, rig.second);
  rig.finish();
  return 0;
}

int event_recorded_after_the_wait() {
  Two rig;
  const EventHandle event = rig.event();
  rig.must(rig.driver.stream_wait_event, rig.second, event, 0U);
  rig.must(rig.driver.event_record, event, rig.first);
  rig.finish();
  return 0;
}

int word_written_before_the_data() {
  Two rig;
  std::uint64_t* const word = rig.pinned(1);
  rig.must(rig.driver.stream_write_value64, rig.first, Rig::pointer_to(word), 1ULL, kWriteValueDefault);
  rig.add("writer", rig.a, rig.b, kCount, rig.first);
  rig.must(rig.driver.stream_wait_value64, rig.second, Rig::pointer_to(word), 1ULL, kWaitValueGeq);
  rig.add("reader", rig.c, rig.a, kCount, rig.second);
  rig.finish();
  return 0;
}

int kernel_waits_for_the_wrong_word() {
  Two rig;
  const DevicePointer words = rig.memory(2);
  std::uint64_t* const past = rig.pinned(1);
  *past = 1;  // of a line that is past that point
  rig.add("writer", rig.a, rig.b, kCount, rig.first);
  (void)rig.launch("publish", WordArgs{Rig::words_at(words), 1}, rig.first);
  (void)rig.launch("await", WordArgs{past, 1}, rig.second);
  rig.add("reader", rig.c, rig.a, kCount, rig.second);
  rig.must(rig.driver.stream_synchronize, rig.second);
  rig.finish();
  return 0;
}

int endless_wait() {
  Two rig;
  std::uint64_t* const word = rig.pinned(1);
  rig.must(rig.driver.stream_wait_value64, rig.first, Rig::pointer_to(word), 1ULL, kWaitValueGeq);
  (void)rig.driver.stream_synchronize(rig.first);
  _exit(rig.reports(nullptr, 0) > 0 ? host::kMistakesExitCode : 0);  // the context has failed
}

int word_in_unknown_memory() {
  Two rig;
  std::uint64_t word = 0;
  (void)rig.driver.stream_wait_value64(rig.first, Rig::pointer_to(&word), 1, kWaitValueGeq);
  return 0;
}

// Memory that is gone.

int freed_buffer() {
  Two rig;
  rig.add("reader", rig.c, rig.a, kCount, rig.first);
  rig.must(rig.driver.mem_free, rig.a);
  rig.forget(rig.a);
  (void)rig.driver.stream_synchronize(rig.first);
  _exit(rig.reports(nullptr, 0) > 0 ? host::kMistakesExitCode : 0);
}

int freed_in_the_stream_and_used() {
  Two rig;
  const MemoryPool pool = rig.pool();
  DevicePointer scratch = 0;
  rig.must(rig.driver.mem_alloc_from_pool_async, &scratch, kBytes, pool, rig.first);
  rig.must(rig.driver.mem_free_async, scratch, rig.first);
  rig.add("writer", scratch, rig.a, kCount, rig.first);
  (void)rig.driver.stream_synchronize(rig.first);
  _exit(rig.reports(nullptr, 0) > 0 ? host::kMistakesExitCode : 0);
}

int freed_on_another_stream() {
  Two rig;
  const MemoryPool pool = rig.pool();
  DevicePointer scratch = 0;
  rig.must(rig.driver.mem_alloc_from_pool_async, &scratch, kBytes, pool, rig.first);
  rig.fill(scratch, kCount, rig.first);
  rig.must(rig.driver.stream_synchronize, rig.first);
  rig.add("reader", rig.a, scratch, kCount, rig.first);
  rig.must(rig.driver.mem_free_async, scratch, rig.second);
  (void)rig.driver.stream_synchronize(rig.first);
  (void)rig.driver.stream_synchronize(rig.second);
  _exit(rig.reports(nullptr, 0) > 0 ? host::kMistakesExitCode : 0);
}

int used_before_it_is_allocated() {
  Two rig;
  const MemoryPool pool = rig.pool();
  DevicePointer scratch = 0;
  rig.must(rig.driver.mem_alloc_from_pool_async, &scratch, kBytes, pool, rig.first);
  rig.add("writer", scratch, rig.a, kCount, rig.second);
  rig.finish();
  rig.must(rig.driver.mem_free_async, scratch, rig.first);
  return 0;
}

int freed_lease() {
  Two rig;
  std::uint64_t* const slot = rig.pinned(kCount);
  rig.must(rig.driver.memcpy_htod_async, rig.a, static_cast<const void*>(slot), kBytes, rig.first);
  rig.must(rig.driver.stream_synchronize, rig.second);  // the wrong one
  rig.access(slot, kBytes, 1, "the loader fills the slot");
  rig.finish();
  rig.access(slot, kBytes, 1, "the loader fills the slot");  // that the copy passed later does not help
  return 0;
}

int read_before_the_stream_is_there() {
  Two rig;
  std::uint64_t* const sums = rig.pinned(kCount);
  rig.must(rig.driver.memcpy_dtoh_async, static_cast<void*>(sums), rig.a, kBytes, rig.first);
  rig.access(sums, kBytes, 0, "the reporter reads the sums");
  rig.finish();
  rig.must(rig.driver.memcpy_dtoh_async, static_cast<void*>(sums), rig.a, kBytes, rig.first);
  rig.access(sums, kBytes, 0, "the reporter reads the sums");
  rig.finish();
  return 0;
}

int pinned_memory_freed_in_use() {
  Two rig;
  void* slot = nullptr;
  rig.must(rig.driver.mem_host_alloc, &slot, kBytes, 0U);
  rig.must(rig.driver.memcpy_htod_async, rig.a, static_cast<const void*>(slot), kBytes, rig.first);
  rig.must(rig.driver.mem_free_host, slot);
  (void)rig.driver.stream_synchronize(rig.first);
  _exit(rig.reports(nullptr, 0) > 0 ? host::kMistakesExitCode : 0);
}

int unregistered_in_use() {
  Two rig;
  static std::array<std::uint64_t, kCount> mine{};
  rig.must(rig.driver.mem_host_register, static_cast<void*>(mine.data()), kBytes, 0U);
  rig.must(rig.driver.memcpy_htod_async, rig.a, static_cast<const void*>(mine.data()), kBytes, rig.first);
  rig.must(rig.driver.mem_host_unregister, static_cast<void*>(mine.data()));
  (void)rig.driver.stream_synchronize(rig.first);
  _exit(rig.reports(nullptr, 0) > 0 ? host::kMistakesExitCode : 0);
}

int unregistered_memory() {
  Two rig;
  std::array<std::uint64_t, kCount> mine{};
  (void)rig.driver.memcpy_htod_async(rig.a, mine.data(), kBytes, rig.first);
  return 0;
}

int freed_twice() {
  Two rig;
  rig.must(rig.driver.mem_free, rig.a);
  (void)rig.driver.mem_free(rig.a);
  rig.forget(rig.a);
  return 0;
}

int freed_twice_in_streams() {
  Two rig;
  const MemoryPool pool = rig.pool();
  DevicePointer scratch = 0;
  rig.must(rig.driver.mem_alloc_from_pool_async, &scratch, kBytes, pool, rig.first);
  rig.must(rig.driver.mem_free_async, scratch, rig.first);
  (void)rig.driver.mem_free_async(scratch, rig.first);
  return 0;
}

int leaked_memory() {
  Two rig;
  DevicePointer lost = 0;
  rig.must(rig.driver.mem_alloc, &lost, kBytes);
  return 0;
}

int pool_destroyed_with_memory() {
  Two rig;
  const MemoryPool pool = rig.pool();
  DevicePointer scratch = 0;
  rig.must(rig.driver.mem_alloc_from_pool_async, &scratch, kBytes, pool, rig.first);
  return 0;
}

int leaked_handles() {
  Two rig;
  StreamHandle stream = nullptr;
  EventHandle event = nullptr;
  rig.must(rig.driver.stream_create_with_priority, &stream, kStreamNonBlocking, 0);
  rig.must(rig.driver.event_create, &event, 0U);
  return 0;
}

int touched_by_the_cpu() {
  Two rig;
  return static_cast<int>(*static_cast<volatile std::uint64_t*>(Rig::words_at(rig.a)));
}

// Ranges and kernels.

int copy_out_of_range() {
  Two rig;
  (void)rig.driver.memcpy_dtod_async(rig.a, rig.b, kBytes + 8, rig.first);
  return 0;
}

int fill_out_of_range() {
  Two rig;
  (void)rig.driver.memset_d8_async(rig.a + 8, 0, kBytes, rig.first);
  return 0;
}

int kernel_out_of_range() {
  Two rig;
  rig.add("writer", rig.a, rig.b, kCount + 1, rig.first);
  (void)rig.driver.stream_synchronize(rig.first);
  _exit(rig.reports(nullptr, 0) > 0 ? host::kMistakesExitCode : 0);
}

int arguments_of_another_size() {
  Two rig;
  AddArgs args{};
  std::size_t size_bytes = sizeof args - 8;
  void* extra[] = {reinterpret_cast<void*>(kLaunchParamBufferPointer), &args,
                   reinterpret_cast<void*>(kLaunchParamBufferSize), &size_bytes, nullptr};
  (void)rig.driver.launch_kernel(rig.function("writer"), 1, 1, 1, 64, 1, 1, 0, rig.first, nullptr, extra);
  return 0;
}

int function_of_an_unloaded_module() {
  Two rig;
  Module module = nullptr;
  Function writer = nullptr;
  rig.must(rig.driver.module_load_data, &module, static_cast<const void*>(&image()));
  rig.must(rig.driver.module_get_function, &writer, module, "writer");
  rig.must(rig.driver.module_unload, module);
  AddArgs args{};
  void* parameters[] = {&args};
  (void)rig.driver.launch_kernel(writer, 1, 1, 1, 64, 1, 1, 0, rig.first, parameters, nullptr);
  return 0;
}

int grid_of_another_shape() {
  Two rig;
  AddArgs args{};
  void* parameters[] = {&args};
  (void)rig.driver.launch_kernel(rig.function("writer"), 1, 2, 1, 64, 1, 1, 0, rig.first, parameters, nullptr);
  return 0;
}

int writes_what_it_declares_to_read() {
  Two rig;
  rig.add("liar", rig.a, rig.b, kCount, rig.first);
  rig.finish();
  return 0;
}

int touches_what_it_does_not_declare() {
  Two rig;
  rig.add("stray", rig.a, rig.b, kCount, rig.first);
  rig.finish();
  return 0;
}

int no_access_to_a_peer() {
  Rig rig{2};
  const DevicePointer here = rig.memory(kCount);
  rig.must(rig.driver.ctx_set_current, rig.context(1));
  const StreamHandle there = rig.stream();
  rig.fill(here, kCount, there);
  (void)rig.driver.stream_synchronize(there);
  _exit(rig.reports(nullptr, 0) > 0 ? host::kMistakesExitCode : 0);
}

int default_stream() {
  Two rig;
  (void)rig.driver.memset_d8_async(rig.a, 0, kBytes, nullptr);
  return 0;
}

int stream_used_after_its_end() {
  Two rig;
  StreamHandle gone = nullptr;
  rig.must(rig.driver.stream_create_with_priority, &gone, kStreamNonBlocking, 0);
  rig.must(rig.driver.stream_destroy, gone);
  (void)rig.driver.memset_d8_async(rig.a, 0, kBytes, gone);
  return 0;
}

// Captures and graphs.

GraphHandle end(Two& rig) {
  GraphHandle graph = nullptr;
  if (rig.driver.stream_end_capture(rig.first, &graph) != Result::success) return nullptr;
  return graph;
}

void begin(Two& rig, CaptureMode mode = CaptureMode::thread_local_) {
  rig.must(rig.driver.stream_begin_capture, rig.first, mode);
}

int captured_read_of_the_host() {
  Two rig;
  begin(rig);
  const std::uint64_t rate = 3;
  (void)rig.driver.memcpy_htod_async(rig.a, &rate, sizeof rate, rig.first);
  return end(rig) == nullptr ? 0 : 1;
}

int synchronized_in_a_capture() {
  Two rig;
  begin(rig);
  (void)rig.driver.stream_synchronize(rig.first);
  return end(rig) == nullptr ? 0 : 1;
}

int asked_in_a_capture() {
  Two rig;
  begin(rig);
  (void)rig.driver.stream_query(rig.second);
  return end(rig) == nullptr ? 0 : 1;
}

int waited_for_a_captured_event() {
  Two rig;
  const EventHandle event = rig.event();
  begin(rig);
  rig.must(rig.driver.event_record, event, rig.first);
  (void)rig.driver.event_synchronize(event);
  return end(rig) == nullptr ? 0 : 1;
}

int allocated_in_a_capture() {
  Two rig;
  const MemoryPool pool = rig.pool();
  begin(rig);
  DevicePointer scratch = 0;
  (void)rig.driver.mem_alloc_from_pool_async(&scratch, kBytes, pool, rig.first);
  return end(rig) == nullptr ? 0 : 1;
}

int allocated_by_the_thread_that_captures() {
  Two rig;
  begin(rig);
  DevicePointer more = 0;
  (void)rig.driver.mem_alloc(&more, kBytes);
  return end(rig) == nullptr ? 0 : 1;
}

int taken_late() {
  Two rig;
  rig.add("writer", rig.a, rig.b, kCount, rig.first);
  (void)rig.memory(kCount);
  rig.finish();
  return 0;
}

int pinned_late() {
  Two rig;
  rig.add("writer", rig.a, rig.b, kCount, rig.first);
  (void)rig.pinned(kCount);
  rig.finish();
  return 0;
}

int registered_late() {
  Two rig;
  alignas(64) static std::array<std::uint64_t, kCount> plain;
  rig.add("writer", rig.a, rig.b, kCount, rig.first);
  rig.must(rig.driver.mem_host_register, static_cast<void*>(plain.data()), kBytes, kHostRegisterPortable);
  rig.finish();
  rig.must(rig.driver.mem_host_unregister, static_cast<void*>(plain.data()));
  return 0;
}

int forgotten_join() {
  Two rig;
  const EventHandle fork = rig.event();
  begin(rig);
  rig.must(rig.driver.event_record, fork, rig.first);
  rig.must(rig.driver.stream_wait_event, rig.second, fork, 0U);
  rig.add("writer", rig.a, rig.b, kCount, rig.second);
  return end(rig) == nullptr ? 0 : 1;
}

int ended_on_another_stream() {
  Two rig;
  const EventHandle fork = rig.event();
  begin(rig);
  rig.must(rig.driver.event_record, fork, rig.first);
  rig.must(rig.driver.stream_wait_event, rig.second, fork, 0U);
  GraphHandle graph = nullptr;
  (void)rig.driver.stream_end_capture(rig.second, &graph);
  return end(rig) == nullptr ? 0 : 1;
}

int event_of_no_capture() {
  Two rig;
  const EventHandle event = rig.event();
  rig.must(rig.driver.event_record, event, rig.second);
  begin(rig);
  (void)rig.driver.stream_wait_event(rig.first, event, 0);
  return end(rig) == nullptr ? 0 : 1;
}

int event_of_another_capture() {
  Two rig;
  const EventHandle event = rig.event();
  begin(rig);
  rig.must(rig.driver.stream_begin_capture, rig.second, CaptureMode::thread_local_);
  rig.must(rig.driver.event_record, event, rig.second);
  (void)rig.driver.stream_wait_event(rig.first, event, 0);
  GraphHandle graph = nullptr;
  rig.must(rig.driver.stream_end_capture, rig.second, &graph);
  rig.must(rig.driver.graph_destroy, graph);
  return end(rig) == nullptr ? 0 : 1;
}

int event_of_a_capture_that_is_over() {
  Two rig;
  const EventHandle event = rig.event();
  begin(rig);
  rig.must(rig.driver.event_record, event, rig.first);
  rig.must(rig.driver.graph_destroy, end(rig));
  (void)rig.driver.stream_wait_event(rig.second, event, 0);
  return 0;
}

/// writer on one branch, reader on the other, of which the second begins behind the fork and not behind the writer.
GraphExec branches(Two& rig) {
  const EventHandle fork = rig.event();
  const EventHandle join = rig.event();
  begin(rig);
  rig.must(rig.driver.event_record, fork, rig.first);
  rig.must(rig.driver.stream_wait_event, rig.second, fork, 0U);
  rig.add("writer", rig.a, rig.b, kCount, rig.first);
  rig.add("reader", rig.c, rig.a, kCount, rig.second);
  rig.must(rig.driver.event_record, join, rig.second);
  rig.must(rig.driver.stream_wait_event, rig.first, join, 0U);
  const GraphHandle graph = end(rig);
  GraphExec exec = nullptr;
  rig.must(rig.driver.graph_instantiate_with_flags, &exec, graph, 0ULL);
  rig.must(rig.driver.graph_destroy, graph);
  return exec;
}

int race_of_branches() {
  Two rig;
  const GraphExec exec = branches(rig);
  rig.must(rig.driver.graph_launch, exec, rig.first);
  rig.finish();
  rig.must(rig.driver.graph_exec_destroy, exec);
  return 0;
}

int race_of_a_graph_and_a_stream() {
  Two rig;
  begin(rig);
  rig.add("writer", rig.a, rig.b, kCount, rig.first);
  const GraphHandle graph = end(rig);
  GraphExec exec = nullptr;
  rig.must(rig.driver.graph_instantiate_with_flags, &exec, graph, 0ULL);
  rig.must(rig.driver.graph_destroy, graph);
  rig.must(rig.driver.graph_launch, exec, rig.first);
  rig.add("reader", rig.c, rig.a, kCount, rig.second);
  rig.finish();
  rig.must(rig.driver.graph_exec_destroy, exec);
  return 0;
}

int step_block_changed_too_early() {
  Two rig;
  std::uint64_t* const block = rig.pinned(1);
  begin(rig);
  (void)rig.launch("add_block", AddBlockArgs{Rig::words_at(rig.a), Rig::words_at(rig.b), kCount, block}, rig.first);
  const GraphHandle graph = end(rig);
  GraphExec exec = nullptr;
  rig.must(rig.driver.graph_instantiate_with_flags, &exec, graph, 0ULL);
  rig.must(rig.driver.graph_destroy, graph);
  rig.must(rig.driver.graph_launch, exec, rig.first);
  rig.access(block, 8, 1, "the next step's values");
  rig.finish();
  rig.must(rig.driver.graph_exec_destroy, exec);
  return 0;
}

int launched_after_its_end() {
  Two rig;
  begin(rig);
  rig.fill(rig.a, kCount, rig.first);
  const GraphHandle graph = end(rig);
  GraphExec exec = nullptr;
  rig.must(rig.driver.graph_instantiate_with_flags, &exec, graph, 0ULL);
  rig.must(rig.driver.graph_destroy, graph);
  rig.must(rig.driver.graph_exec_destroy, exec);
  (void)rig.driver.graph_launch(exec, rig.first);
  return 0;
}

// Between processes.

int handle_of_freed_memory() {
  Two rig;
  IpcMemHandle handle{};
  rig.must(rig.driver.mem_free, rig.a);
  rig.forget(rig.a);
  (void)rig.driver.ipc_get_mem_handle(&handle, rig.a);
  return 0;
}

int own_handle() {
  Two rig;
  IpcMemHandle handle{};
  DevicePointer again = 0;
  rig.must(rig.driver.ipc_get_mem_handle, &handle, rig.a);
  (void)rig.driver.ipc_open_mem_handle(&again, handle, kIpcLazyEnablePeerAccess);
  return 0;
}

struct Lent {
  IpcMemHandle handle;
  std::atomic<int> step;
};

void await(const std::atomic<int>& step, int value) {
  while (step < value) usleep(100);  // the test around it has a deadline
}

/// Frees it when the other process has come to `freed_at`, and stays until it is done.
int lend(Lent& lent, int freed_at) {
  Two rig;
  rig.must(rig.driver.ipc_get_mem_handle, &lent.handle, rig.a);
  lent.step = 1;
  await(lent.step, freed_at);
  rig.must(rig.driver.mem_free, rig.a);
  rig.forget(rig.a);
  ++lent.step;
  await(lent.step, 5);
  return 0;
}

Lent& lend_from_another_process(int freed_at) {
  void* const at = mmap(nullptr, sizeof(Lent), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& lent = *new (at) Lent{};
  if (fork() == 0) std::exit(lend(lent, freed_at));
  return lent;
}

int opened_after_it_was_freed() {
  Lent& lent = lend_from_another_process(1);
  Two rig;
  await(lent.step, 2);
  DevicePointer theirs = 0;
  (void)rig.driver.ipc_open_mem_handle(&theirs, lent.handle, kIpcLazyEnablePeerAccess);
  lent.step = 5;
  return 0;
}

int used_after_its_process_freed_it() {
  Lent& lent = lend_from_another_process(2);
  Two rig;
  await(lent.step, 1);
  DevicePointer theirs = 0;
  rig.must(rig.driver.ipc_open_mem_handle, &theirs, lent.handle, kIpcLazyEnablePeerAccess);
  lent.step = 2;
  await(lent.step, 3);
  rig.add("reader", rig.c, theirs, kCount, rig.first);
  (void)rig.driver.stream_synchronize(rig.first);
  lent.step = 5;
  _exit(rig.reports(nullptr, 0) > 0 ? host::kMistakesExitCode : 0);
}

/// What the stand-in finds.
std::vector<Mistake> table() {
  std::vector<Mistake> rows{
      TROUPE_MISTAKE(missing_wait,
                     {"race, ", "kernel reader on stream 2 (called in troupe::cuda::testing::mistakes::missing_wait",
                      "kernel writer on stream 1 (called in troupe::cuda::testing::mistakes::missing_wait"}),
      TROUPE_MISTAKE(overwritten_while_it_is_read,
                     {"race, ", "cuMemsetD8Async on stream 2", "kernel reader on stream 1"}),
      TROUPE_MISTAKE(written_twice,
                     {"race, write after write", "cuMemsetD8Async on stream 1", "cuMemcpyDtoDAsync_v2 on stream 2"}),
      TROUPE_MISTAKE(ranges_overlap_by_one_word, {"race, ", "kernel writer on stream 1", "kernel reader on stream 2"}),
      TROUPE_MISTAKE(event_recorded_too_early, {"race, ", "kernel writer on stream 1", "kernel reader on stream 2"}),
      TROUPE_MISTAKE(event_recorded_after_the_wait, {"event never recorded", "cuStreamWaitEvent on stream 2"}),
      TROUPE_MISTAKE(word_written_before_the_data,
                     {"race, ", "kernel writer on stream 1", "kernel reader on stream 2"}),
      TROUPE_MISTAKE(kernel_waits_for_the_wrong_word,
                     {"race, ", "kernel writer on stream 1", "kernel reader on stream 2"}),
      TROUPE_MISTAKE(endless_wait,
                     {"endless wait", "cuStreamWaitValue64_v2 on stream 1", "waits for 1", "where 0 stands"},
                     "DEADLINE_MS=50"),
      TROUPE_MISTAKE(word_in_unknown_memory, {"unknown memory", "cuStreamWaitValue64_v2 on stream 1"}),
      TROUPE_MISTAKE(freed_buffer,
                     {"800 bytes of device memory from cuMemAlloc_v2|race, write after read: cuMemFree_v2",
                      "cuMemFree_v2", "kernel reader on stream 1"}),
      TROUPE_MISTAKE(freed_in_the_stream_and_used,
                     {"use after free", "kernel writer on stream 1", "from cuMemAllocFromPoolAsync on stream 1",
                      "freed by cuMemFreeAsync on stream 1"}),
      TROUPE_MISTAKE(freed_on_another_stream,
                     {"use after free|race, ", "kernel reader on stream 1", "cuMemFreeAsync on stream 2"}),
      TROUPE_MISTAKE(used_before_it_is_allocated,
                     {"race, write after write", "kernel writer on stream 2", "cuMemAllocFromPoolAsync on stream 1"}),
      TROUPE_MISTAKE(freed_lease, {"race, ", "the loader fills the slot", "cuMemcpyHtoDAsync_v2 on stream 1"}),
      TROUPE_MISTAKE(read_before_the_stream_is_there,
                     {"race, ", "the reporter reads the sums", "cuMemcpyDtoHAsync_v2 on stream 1"}),
      TROUPE_MISTAKE(pinned_memory_freed_in_use,
                     {"use after free|race, ", "cuMemcpyHtoDAsync_v2 on stream 1", "cuMemFreeHost"}),
      TROUPE_MISTAKE(unregistered_in_use,
                     {"use after free|race, ", "cuMemcpyHtoDAsync_v2 on stream 1", "cuMemHostUnregister"}),
      TROUPE_MISTAKE(unregistered_memory, {"pageable memory", "cuMemcpyHtoDAsync_v2 on stream 1"}),
      TROUPE_MISTAKE(freed_twice, {"double free", "from cuMemAlloc_v2", "freed by cuMemFree_v2"}),
      TROUPE_MISTAKE(freed_twice_in_streams,
                     {"double free", "cuMemFreeAsync on stream 1", "from cuMemAllocFromPoolAsync on stream 1"}),
      TROUPE_MISTAKE(
          leaked_memory,
          {"leak",
           "800 bytes of device memory from cuMemAlloc_v2 (called in troupe::cuda::testing::mistakes::leaked_memory"}),
      TROUPE_MISTAKE(pool_destroyed_with_memory,
                     {"leak", "cuMemPoolDestroy", "from cuMemAllocFromPoolAsync on stream 1"}),
      TROUPE_MISTAKE(leaked_handles,
                     {"leak", "a stream from cuStreamCreateWithPriority", "an event from cuEventCreate"}),
      TROUPE_MISTAKE(touched_by_the_cpu, {"device memory touched by the CPU",
                                          "800 bytes of device memory from cuMemAlloc_v2", "touched_by_the_cpu"}),
      TROUPE_MISTAKE(copy_out_of_range, {"out of range", "cuMemcpyDtoDAsync_v2 on stream 1", "from cuMemAlloc_v2"}),
      TROUPE_MISTAKE(fill_out_of_range, {"out of range", "cuMemsetD8Async on stream 1", "from cuMemAlloc_v2"}),
      TROUPE_MISTAKE(kernel_out_of_range, {"out of range", "kernel writer on stream 1 ", "from cuMemAlloc_v2"}),
      TROUPE_MISTAKE(arguments_of_another_size,
                     {"wrong arguments", "kernel writer on stream 1", "24 bytes of arguments, not 32"}),
      TROUPE_MISTAKE(function_of_an_unloaded_module, {"use after destruction", "cuLaunchKernel on stream 1",
                                                      "from cuModuleGetFunction", "cuModuleUnload"}),
      TROUPE_MISTAKE(grid_of_another_shape, {"wrong grid", "kernel writer on stream 1"}),
      TROUPE_MISTAKE(writes_what_it_declares_to_read, {"undeclared write", "kernel liar on stream 1"}),
      TROUPE_MISTAKE(touches_what_it_does_not_declare, {"undeclared memory", "kernel stray on stream 1"}),
      TROUPE_MISTAKE(no_access_to_a_peer,
                     {"no peer access", "cuMemsetD8Async on stream 1", "from cuMemAlloc_v2", "of device 0"},
                     "DEVICES=2"),
      TROUPE_MISTAKE(default_stream, {"default stream", "cuMemsetD8Async"}),
      TROUPE_MISTAKE(stream_used_after_its_end, {"use after destruction", "cuMemsetD8Async",
                                                 "from cuStreamCreateWithPriority", "cuStreamDestroy_v2"}),
      TROUPE_MISTAKE(captured_read_of_the_host,
                     {"capture", "cuMemcpyHtoDAsync_v2 on stream 1", "neither pinned nor registered",
                      "cuStreamBeginCapture_v2 on stream 1"}),
      TROUPE_MISTAKE(synchronized_in_a_capture,
                     {"capture", "cuStreamSynchronize on stream 1", "cuStreamBeginCapture_v2 on stream 1"}),
      TROUPE_MISTAKE(asked_in_a_capture, {"capture", "cuStreamQuery", "cuStreamBeginCapture_v2 on stream 1"}),
      TROUPE_MISTAKE(waited_for_a_captured_event,
                     {"capture", "cuEventSynchronize", "cuStreamBeginCapture_v2 on stream 1"}),
      TROUPE_MISTAKE(allocated_in_a_capture,
                     {"capture", "cuMemAllocFromPoolAsync on stream 1", "cuStreamBeginCapture_v2 on stream 1"}),
      TROUPE_MISTAKE(allocated_by_the_thread_that_captures,
                     {"capture", "cuMemAlloc_v2", "cuStreamBeginCapture_v2 on stream 1"}),
      TROUPE_MISTAKE(taken_late, {"late memory", "cuMemAlloc_v2", "after kernel writer on stream 1"},
                     "PREPARED=writer"),
      TROUPE_MISTAKE(pinned_late, {"late memory", "cuMemHostAlloc", "after kernel writer on stream 1"},
                     "PREPARED=writer"),
      TROUPE_MISTAKE(registered_late, {"late memory", "cuMemHostRegister_v2", "after kernel writer on stream 1"},
                     "PREPARED=writer"),
      TROUPE_MISTAKE(forgotten_join,
                     {"capture", "cuStreamEndCapture on stream 1", "without waiting for kernel writer on stream 2"}),
      TROUPE_MISTAKE(ended_on_another_stream,
                     {"capture", "cuStreamEndCapture on stream 2", "cuStreamBeginCapture_v2 on stream 1"}),
      TROUPE_MISTAKE(event_of_no_capture, {"capture", "cuStreamWaitEvent on stream 1", "recorded outside"}),
      TROUPE_MISTAKE(event_of_another_capture, {"capture", "cuStreamWaitEvent on stream 1",
                                                "another capture, which cuStreamBeginCapture_v2 on stream 2",
                                                "cuStreamBeginCapture_v2 on stream 1"}),
      TROUPE_MISTAKE(event_of_a_capture_that_is_over,
                     {"capture", "cuStreamWaitEvent on stream 2", "cuStreamBeginCapture_v2 on stream 1"}),
      TROUPE_MISTAKE(race_of_branches, {"race, ", "kernel reader on stream 2", "kernel writer on stream 1"}),
      TROUPE_MISTAKE(race_of_a_graph_and_a_stream,
                     {"race, ", "kernel reader on stream 2", "kernel writer on stream 1"}),
      TROUPE_MISTAKE(step_block_changed_too_early,
                     {"race, ", "the next step's values", "kernel add_block on stream 1"}),
      TROUPE_MISTAKE(launched_after_its_end, {"use after destruction", "cuGraphLaunch on stream 1",
                                              "from cuGraphInstantiateWithFlags", "cuGraphExecDestroy"}),
      TROUPE_MISTAKE(handle_of_freed_memory, {"use after free", "cuIpcGetMemHandle", "freed by cuMemFree_v2"}),
      TROUPE_MISTAKE(own_handle, {"own handle", "cuIpcOpenMemHandle_v2"}),
      TROUPE_MISTAKE(opened_after_it_was_freed, {"handle of freed memory", "cuIpcOpenMemHandle_v2", "process "}),
      TROUPE_MISTAKE(
          used_after_its_process_freed_it,
          {"use after free", "kernel reader on stream 1", "cuIpcOpenMemHandle_v2", "which its process has freed",
           "freed while open: cuMemFree_v2", "has open: 800 bytes of device memory from cuMemAlloc_v2"},
          "CLOSED=1"),
  };
  for (const Mistake& row : mistakes_with_collectives()) rows.push_back(row);
  for (const Mistake& row : mistakes_with_products()) rows.push_back(row);
  for (const Mistake& row : mistakes_with_convolutions()) rows.push_back(row);
  for (const Mistake& row : mistakes_with_attention()) rows.push_back(row);
  for (const Mistake& row : mistakes_of_exchanges()) rows.push_back(row);
  return rows;
}

/// "this|that": one of them.
bool says(const std::string& text, const std::string& wanted) {
  const auto bar = wanted.find('|');
  if (text.find(wanted.substr(0, bar)) != std::string::npos) return true;
  return bar != std::string::npos && says(text, wanted.substr(bar + 1));
}

void PrintTo(const Mistake& row, std::ostream* out) { *out << row.name; }

class CudaHostMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(CudaHostMistake, IsFoundWithBothPlacesUnderAnySeed) {
  for (int seed = 0; seed < 4; ++seed) {
    std::vector<std::string> settings{"SEED=" + std::to_string(seed)};
    std::istringstream given{GetParam().setting};
    for (std::string one; given >> one;) settings.push_back(one);
    const Ending ending = run_apart(GetParam().program, settings);
    EXPECT_NE(ending.code, 0) << "seed " << seed;
    EXPECT_NE(ending.code, -1) << "seed " << seed << ": it does not end\n" << ending.text;
    for (const std::string& wanted : GetParam().report)
      EXPECT_TRUE(says(ending.text, wanted)) << "seed " << seed << ": no \"" << wanted << "\" in\n" << ending.text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaHostMistake, ::testing::ValuesIn(table()),
                         [](const auto& row) { return std::string{row.param.name}; });

}  // namespace troupe::cuda::testing::mistakes
