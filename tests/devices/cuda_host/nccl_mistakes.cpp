// Mistakes with collectives: rows of the table in mistakes_test.cpp.
#include <array>

#include "tests/devices/cuda_host/mistakes.hpp"
#include "transports/nccl/nccl_api.hpp"

namespace troupe::cuda::testing::mistakes {
namespace {

constexpr std::size_t kElements = 100;
using nccl::Comm;
using nccl::Operator;
using nccl::Type;

nccl::Library open_nccl() {
  std::string why;
  const auto found = nccl::Library::load(why);
  if (found) return *found;
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(98);
}

/// Two ranks with a device each, in one process: a stream, two buffers and a communicator for each.
struct Pair : Rig {
  struct One {
    StreamHandle stream;
    DevicePointer a, b;
    Comm comm = nullptr;
  };
  const nccl::Library nccl = open_nccl();
  std::array<One, 2> ranks;

  explicit Pair(bool on_one_device = false) : Rig(2) {
    for (int r = 0; r < 2; ++r) {
      use(r);
      One& one = ranks[static_cast<std::size_t>(r)];
      one.stream = stream();
      one.a = memory(kElements);
      one.b = memory(kElements);
      fill(one.a, kElements, one.stream);
      fill(one.b, kElements, one.stream);
      must(driver.stream_synchronize, one.stream);
    }
    nccl::UniqueId id;
    (void)nccl.get_unique_id(&id);
    for (int r = 0; r < 2; ++r) {
      use(on_one_device ? 0 : r);
      nccl::Config config;
      config.blocking = 0;
      (void)nccl.comm_init_rank_config(&at(r).comm, 2, id, r, &config);
    }
    for (int r = 0; r < 2 && !on_one_device; ++r) settle(r);
  }
  One& at(int rank) { return ranks[static_cast<std::size_t>(rank)]; }
  void use(int device) { must(driver.ctx_set_current, context(device)); }
  /// Until the rank's last call has come to its stream.
  void settle(int rank) {
    nccl::Result state = nccl::Result::in_progress;
    while (state == nccl::Result::in_progress) (void)nccl.comm_get_async_error(at(rank).comm, &state);
  }
  [[gnu::always_inline]] void sum(int rank, std::size_t count = kElements) {
    (void)nccl.all_reduce(words_at(at(rank).a), words_at(at(rank).a), count, Type::u64, Operator::sum, at(rank).comm,
                          at(rank).stream);
    settle(rank);
  }
  [[gnu::always_inline]] void broadcast(int rank, int root = 0) {
    (void)nccl.broadcast(words_at(at(rank).b), words_at(at(rank).b), kElements, Type::u64, root, at(rank).comm,
                         at(rank).stream);
    settle(rank);
  }
  /// Without a mistake.
  void finish() {
    for (int r = 0; r < 2; ++r) (void)driver.stream_synchronize(at(r).stream);
    for (int r = 0; r < 2; ++r) (void)nccl.comm_abort(at(r).comm);
    use(0);
  }
};

int collectives_in_another_order() {
  Pair rig;
  rig.sum(0);
  rig.broadcast(0);
  rig.broadcast(1);
  rig.sum(1);
  rig.finish();
  return 0;
}

int collective_of_another_count() {
  Pair rig;
  rig.sum(0);
  rig.sum(1, kElements / 2);
  rig.finish();
  return 0;
}

int broadcast_from_another_root() {
  Pair rig;
  rig.broadcast(0, 0);
  rig.broadcast(1, 1);
  rig.finish();
  return 0;
}

int message_of_another_size() {
  Pair rig;
  (void)rig.nccl.send(Rig::words_at(rig.at(0).a), kElements, Type::u64, 1, rig.at(0).comm, rig.at(0).stream);
  rig.settle(0);
  (void)rig.nccl.recv(Rig::words_at(rig.at(1).a), kElements / 2, Type::u64, 0, rig.at(1).comm, rig.at(1).stream);
  rig.settle(1);
  rig.finish();
  return 0;
}

int message_that_nobody_sends() {
  Pair rig;
  (void)rig.nccl.recv(Rig::words_at(rig.at(1).a), kElements, Type::u64, 0, rig.at(1).comm, rig.at(1).stream);
  rig.settle(1);
  rig.finish();
  return 0;
}

int collective_that_a_rank_leaves_out() {
  Pair rig;
  rig.sum(0);
  rig.finish();
  return 0;
}

int sum_read_on_another_stream() {
  Pair rig;
  rig.use(0);
  const StreamHandle other = rig.stream();
  for (int r = 0; r < 2; ++r) rig.sum(r);
  rig.add("reader", rig.at(0).b, rig.at(0).a, kElements, other);
  (void)rig.driver.stream_synchronize(other);
  rig.finish();
  return 0;
}

int sent_while_it_is_written() {
  Pair rig;
  rig.use(0);
  const StreamHandle other = rig.stream();
  rig.add("writer", rig.at(0).b, rig.at(0).a, kElements, other);
  for (int r = 0; r < 2; ++r) rig.broadcast(r);
  (void)rig.driver.stream_synchronize(other);
  rig.finish();
  return 0;
}

/// A step of rank 0 as a graph: a gradient is written, summed on a forked stream, and read. `launch` says in which
/// order these three and the two borders are captured.
struct ForkedStep {
  Pair rig;
  StreamHandle main, beside;
  EventHandle border;

  ForkedStep() {
    rig.use(0);
    main = rig.at(0).stream, beside = rig.stream(), border = rig.event();
    rig.must(rig.driver.stream_begin_capture, main, CaptureMode::thread_local_);
  }
  void order(StreamHandle before, StreamHandle after) const {
    rig.must(rig.driver.event_record, border, before);
    rig.must(rig.driver.stream_wait_event, after, border, 0U);
  }
  void fork() const { order(main, beside); }
  void join() const { order(beside, main); }
  [[gnu::always_inline]] void write() { rig.add("writer", rig.at(0).b, rig.at(0).a, kElements, main); }
  [[gnu::always_inline]] void sum() {
    (void)rig.nccl.all_reduce(Rig::words_at(rig.at(0).b), Rig::words_at(rig.at(0).b), kElements, Type::u64,
                              Operator::sum, rig.at(0).comm, beside);
    rig.settle(0);
  }
  [[gnu::always_inline]] void read() { rig.add("reader", rig.at(0).a, rig.at(0).b, kElements, main); }
  int launch() {
    GraphHandle graph = nullptr;
    GraphExec exec = nullptr;
    if (rig.driver.stream_end_capture(main, &graph) != Result::success) return 1;
    rig.must(rig.driver.graph_instantiate_with_flags, &exec, graph, 0ULL);
    rig.must(rig.driver.graph_destroy, graph);
    rig.must(rig.driver.graph_launch, exec, main);
    rig.sum(1);
    (void)rig.driver.stream_synchronize(main);
    rig.must(rig.driver.graph_exec_destroy, exec);
    rig.finish();
    return 0;
  }
};

int forked_before_the_gradient_is_written() {
  ForkedStep step;
  step.fork();
  step.write();
  step.sum();
  step.join();
  step.read();
  return step.launch();
}

int read_before_the_exchange_is_joined() {
  ForkedStep step;
  step.write();
  step.fork();
  step.sum();
  step.read();
  step.join();
  return step.launch();
}

int exchange_that_nobody_joins() {
  ForkedStep step;
  step.write();
  step.fork();
  step.sum();
  step.read();
  return step.launch();
}

int freed_while_it_is_summed() {
  Pair rig;
  for (int r = 0; r < 2; ++r) rig.sum(r);
  rig.use(0);
  (void)rig.driver.mem_free(rig.at(0).a);
  rig.forget(rig.at(0).a);
  rig.finish();
  return 0;
}

int sum_out_of_range() {
  Pair rig;
  for (int r = 0; r < 2; ++r) rig.sum(r, kElements + 1);
  rig.finish();
  return 0;
}

int one_communicator_on_two_streams() {
  Pair rig;
  for (int r = 0; r < 2; ++r) rig.sum(r);
  std::vector<StreamHandle> others;
  for (int r = 0; r < 2; ++r) {
    rig.use(r);
    const StreamHandle other = rig.stream();
    (void)rig.nccl.broadcast(Rig::words_at(rig.at(r).b), Rig::words_at(rig.at(r).b), kElements, Type::u64, 0,
                             rig.at(r).comm, other);
    rig.settle(r);
    others.push_back(other);
  }
  for (const StreamHandle other : others) (void)rig.driver.stream_synchronize(other);
  rig.finish();
  return 0;
}

int two_ranks_on_one_device() {
  Pair rig{true};
  (void)rig.nccl.comm_abort(rig.at(0).comm);
  return 0;
}

int stream_of_another_device() {
  Pair rig;
  std::swap(rig.at(0).stream, rig.at(1).stream);
  rig.sum(0);
  rig.finish();
  return 0;
}

int used_before_it_is_connected() {
  Rig rig{2};
  const nccl::Library nccl = open_nccl();
  const StreamHandle stream = rig.stream();
  const DevicePointer a = rig.memory(kElements);
  rig.fill(a, kElements, stream);
  nccl::UniqueId id;
  (void)nccl.get_unique_id(&id);
  nccl::Config config;
  config.blocking = 0;
  Comm comm = nullptr;
  (void)nccl.comm_init_rank_config(&comm, 2, id, 0, &config);
  (void)nccl.all_reduce(Rig::words_at(a), Rig::words_at(a), kElements, Type::u64, Operator::sum, comm, stream);
  (void)nccl.comm_abort(comm);
  return 0;
}

int kernel_before_the_collective_is_there() {
  Pair rig;
  rig.use(0);
  (void)rig.nccl.all_reduce(Rig::words_at(rig.at(0).a), Rig::words_at(rig.at(0).a), kElements, Type::u64, Operator::sum,
                            rig.at(0).comm, rig.at(0).stream);
  rig.add("reader", rig.at(0).b, rig.at(0).a, kElements, rig.at(0).stream);
  rig.settle(0);
  rig.sum(1);
  rig.finish();
  return 0;
}

int capture_ended_before_the_collective_is_there() {
  Pair rig;
  rig.use(0);
  rig.must(rig.driver.stream_begin_capture, rig.at(0).stream, CaptureMode::thread_local_);
  (void)rig.nccl.all_reduce(Rig::words_at(rig.at(0).a), Rig::words_at(rig.at(0).a), kElements, Type::u64, Operator::sum,
                            rig.at(0).comm, rig.at(0).stream);
  GraphHandle graph = nullptr;
  rig.must(rig.driver.stream_end_capture, rig.at(0).stream, &graph);
  rig.settle(0);
  rig.must(rig.driver.graph_destroy, graph);
  for (int r = 0; r < 2; ++r) (void)rig.nccl.comm_abort(rig.at(r).comm);
  rig.finish();
  return 0;
}

int communicator_used_after_its_end() {
  Pair rig;
  (void)rig.nccl.comm_abort(rig.at(0).comm);
  (void)rig.nccl.all_reduce(Rig::words_at(rig.at(0).a), Rig::words_at(rig.at(0).a), kElements, Type::u64, Operator::sum,
                            rig.at(0).comm, rig.at(0).stream);
  (void)rig.nccl.comm_abort(rig.at(1).comm);
  rig.use(0);
  return 0;
}

int communicator_ended_before_its_graph() {
  Pair rig;
  rig.use(0);
  GraphHandle graph = nullptr;
  rig.must(rig.driver.stream_begin_capture, rig.at(0).stream, CaptureMode::thread_local_);
  rig.sum(0);
  rig.must(rig.driver.stream_end_capture, rig.at(0).stream, &graph);
  (void)rig.nccl.comm_abort(rig.at(0).comm);
  rig.must(rig.driver.graph_destroy, graph);
  (void)rig.nccl.comm_abort(rig.at(1).comm);
  return 0;
}

int leaked_communicator() {
  Pair rig;
  (void)rig.nccl.comm_abort(rig.at(0).comm);
  rig.use(0);
  return 0;
}

int group_that_does_not_end() {
  Pair rig;
  (void)rig.nccl.group_start();
  (void)rig.nccl.broadcast(Rig::words_at(rig.at(0).b), Rig::words_at(rig.at(0).b), kElements, Type::u64, 0,
                           rig.at(0).comm, rig.at(0).stream);
  rig.finish();
  return 0;
}

}  // namespace

std::vector<Mistake> mistakes_with_collectives() {
  constexpr const char* kTwo = "DEVICES=2";
  constexpr const char* kTwoAndSoon = "DEVICES=2 DEADLINE_MS=50";
  return {
      TROUPE_MISTAKE(
          collectives_in_another_order,
          {"different calls", "call 1 is at rank ", "ncclAllReduce on stream 1", "ncclBroadcast on stream 2"}, kTwo),
      TROUPE_MISTAKE(
          collective_of_another_count,
          {"different calls", "ncclAllReduce on stream 1", "of 100 u64", "ncclAllReduce on stream 2", "of 50 u64"},
          kTwo),
      TROUPE_MISTAKE(
          broadcast_from_another_root,
          {"different calls", "ncclBroadcast on stream 1", "with root 0", "ncclBroadcast on stream 2", "with root 1"},
          kTwo),
      TROUPE_MISTAKE(message_of_another_size,
                     {"different calls", "ncclRecv on stream 2",
                      "expects 400 bytes of rank 0, which sends 800 by ncclSend on stream 1"},
                     kTwo),
      TROUPE_MISTAKE(message_that_nobody_sends, {"endless wait", "ncclRecv on stream 2", "nothing comes from rank 0"},
                     kTwoAndSoon),
      TROUPE_MISTAKE(collective_that_a_rank_leaves_out,
                     {"endless wait", "ncclAllReduce on stream 1", "nothing comes from rank 1"}, kTwoAndSoon),
      TROUPE_MISTAKE(sum_read_on_another_stream, {"race, ", "kernel reader on stream 3", "ncclAllReduce on stream 1"},
                     kTwo),
      TROUPE_MISTAKE(sent_while_it_is_written, {"race, ", "kernel writer on stream 3", "ncclBroadcast on stream 1"},
                     kTwo),
      TROUPE_MISTAKE(forked_before_the_gradient_is_written,
                     {"race, ", "kernel writer on stream 1", "ncclAllReduce on stream 3"}, kTwo),
      TROUPE_MISTAKE(read_before_the_exchange_is_joined,
                     {"race, ", "kernel reader on stream 1", "ncclAllReduce on stream 3"}, kTwo),
      TROUPE_MISTAKE(exchange_that_nobody_joins,
                     {"capture", "cuStreamEndCapture on stream 1", "without waiting for ncclAllReduce on stream 3"},
                     kTwo),
      TROUPE_MISTAKE(freed_while_it_is_summed, {"use after free|race, ", "ncclAllReduce on stream 1", "cuMemFree_v2"},
                     kTwo),
      TROUPE_MISTAKE(sum_out_of_range, {"out of range", "ncclAllReduce on stream ", "from cuMemAlloc_v2"}, kTwo),
      TROUPE_MISTAKE(one_communicator_on_two_streams,
                     {"unordered collectives|different calls", "ncclBroadcast on stream ", "ncclAllReduce on stream "},
                     kTwo),
      TROUPE_MISTAKE(two_ranks_on_one_device,
                     {"duplicate GPU", "ncclCommInitRankConfig", "as rank 1 on device 0, where rank 0 is"}, kTwo),
      TROUPE_MISTAKE(stream_of_another_device,
                     {"wrong device", "ncclAllReduce on stream 2", "communicator on device 0"}, kTwo),
      TROUPE_MISTAKE(used_before_it_is_connected, {"went on too early", "ncclAllReduce", "from ncclCommInitRankConfig"},
                     kTwo),
      TROUPE_MISTAKE(kernel_before_the_collective_is_there, {"went on too early", "ncclAllReduce on stream 1"}, kTwo),
      TROUPE_MISTAKE(capture_ended_before_the_collective_is_there, {"went on too early", "ncclAllReduce on stream 1"},
                     kTwo),
      TROUPE_MISTAKE(communicator_used_after_its_end,
                     {"use after destruction", "ncclAllReduce", "from ncclCommInitRankConfig", "ncclCommAbort"}, kTwo),
      TROUPE_MISTAKE(communicator_ended_before_its_graph,
                     {"endless wait", "ncclCommAbort", "the graphs in which there are collectives"}, kTwoAndSoon),
      TROUPE_MISTAKE(leaked_communicator, {"leak", "a communicator from ncclCommInitRankConfig"}, kTwo),
      TROUPE_MISTAKE(group_that_does_not_end, {"leak", "within the group that ncclGroupStart"}, kTwo),
  };
}

}  // namespace troupe::cuda::testing::mistakes
