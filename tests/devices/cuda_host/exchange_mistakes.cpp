// Mistakes between ranks: lines that are poisoned, memory that a peer's GPU reads, and buckets that a transport reads
// or writes. Rows of the table in mistakes_test.cpp. The transport is a stream of its own, as UCX has for a GPU's
// memory.
#include <unistd.h>

#include "tests/devices/cuda_host/mistakes.hpp"

namespace troupe::cuda::testing::mistakes {
namespace {

constexpr std::size_t kCount = 100;
constexpr std::size_t kBytes = kCount * 8;
constexpr std::uint64_t kPoison = std::uint64_t{1} << 63;

/// A rank that computes on one stream, and what happens beside it on another one.
struct OneRank : Rig {
  const StreamHandle step = stream();
  const StreamHandle transport = stream();
  const DevicePointer bucket = memory(kCount);
  const DevicePointer other = memory(kCount);

  OneRank() {
    for (const DevicePointer pointer : {bucket, other}) fill(pointer, kCount, step);
    must(driver.stream_synchronize, step);
  }
  /// What follows on the step's stream comes behind a failure: Troupe's kernels do nothing, those of libraries run.
  [[gnu::always_inline]] void end_step(std::uint64_t* word = nullptr) {
    constexpr std::size_t kWords = sizeof(StreamState) / 8;
    const DevicePointer state = memory(kWords);
    fill(state, kWords, step, 0);
    (void)launch("end", EndArgs{reinterpret_cast<StreamState*>(state), word}, step);
  }
  void finish() {
    must(driver.stream_synchronize, step);
    must(driver.stream_synchronize, transport);
  }
};

/// A poison is above all values, so the wait ends; it must not be taken for the writer's signal.
int read_behind_a_poisoned_word() {
  OneRank rig;
  std::uint64_t* const word = rig.pinned(1);
  rig.add("writer", rig.bucket, rig.other, kCount, rig.step);
  (void)rig.launch("await", WordArgs{word, 1}, rig.transport);
  rig.add("reader", rig.other, rig.bucket, kCount, rig.transport);
  __atomic_fetch_or(word, kPoison, __ATOMIC_RELEASE);
  rig.must(rig.driver.stream_synchronize, rig.transport);  // first: whatever the host knows, a poison passes on
  rig.finish();
  return 0;
}

/// The writer's own signal is poisoned: what it had reached before is visible, what comes behind it is not.
int read_behind_an_earlier_signal_and_a_poison() {
  OneRank rig;
  std::uint64_t* const word = rig.pinned(1);
  (void)rig.launch("publish", WordArgs{word, 1}, rig.step);
  rig.must(rig.driver.stream_synchronize, rig.step);
  rig.add("writer", rig.bucket, rig.other, kCount, rig.step);
  __atomic_fetch_or(word, kPoison, __ATOMIC_RELEASE);
  (void)rig.launch("await", WordArgs{word, 2}, rig.transport);
  rig.add("reader", rig.other, rig.bucket, kCount, rig.transport);
  rig.must(rig.driver.stream_synchronize, rig.transport);
  rig.finish();
  return 0;
}

int bucket_sent_before_its_kernel_is_done() {
  OneRank rig;
  std::uint64_t* const wire = rig.pinned(kCount);
  rig.add("writer", rig.bucket, rig.other, kCount, rig.step);
  rig.must(rig.driver.memcpy_dtoh_async, static_cast<void*>(wire), rig.bucket, kBytes, rig.transport);
  rig.finish();
  return 0;
}

int staged_bucket_sent_before_its_kernel_is_done() {
  OneRank rig;
  std::uint64_t* const staged = rig.pinned(kCount);
  rig.add("writer", Rig::pointer_to(staged), rig.other, kCount, rig.step);
  rig.access(staged, kBytes, 0, "the transport sends the bucket");
  rig.finish();
  return 0;
}

int bucket_written_again_while_it_is_sent() {
  OneRank rig;
  std::uint64_t* const wire = rig.pinned(kCount);
  rig.must(rig.driver.memcpy_dtoh_async, static_cast<void*>(wire), rig.bucket, kBytes, rig.transport);
  rig.add("writer", rig.bucket, rig.other, kCount, rig.step);
  rig.finish();
  return 0;
}

int result_landed_while_the_step_reads() {
  OneRank rig;
  std::uint64_t* const wire = rig.pinned(kCount);
  rig.add("reader", rig.other, rig.bucket, kCount, rig.step);
  rig.must(rig.driver.memcpy_htod_async, rig.bucket, static_cast<const void*>(wire), kBytes, rig.transport);
  rig.finish();
  return 0;
}

/// What libraries write there is still in others' way.
int result_written_behind_a_failure_and_read_elsewhere() {
  OneRank rig;
  rig.end_step();
  rig.must(rig.driver.memcpy_async, rig.bucket, rig.other, kBytes, rig.step);
  rig.add("reader", rig.other, rig.bucket, kCount, rig.transport);
  rig.finish();
  return 0;
}

int memory_freed_while_it_is_read_behind_a_failure() {
  OneRank rig;
  rig.end_step();
  const DevicePointer data = rig.memory(kCount);
  rig.must(rig.driver.memcpy_async, rig.bucket, data, kBytes, rig.step);
  rig.must(rig.driver.stream_synchronize, rig.transport);  // not the step's
  rig.must(rig.driver.mem_free, data);
  rig.forget(data);
  (void)rig.driver.stream_synchronize(rig.step);
  _exit(rig.reports(nullptr, 0) > 0 ? host::kMistakesExitCode : 0);
}

/// Nothing was signalled, so what stands in the word says nothing of the work before the failure.
int read_behind_a_signal_that_a_failure_has_left_out() {
  OneRank rig;
  std::uint64_t* const word = rig.pinned(1);
  rig.add("writer", rig.bucket, rig.other, kCount, rig.step);
  rig.end_step(word);
  (void)rig.launch("await", WordArgs{word, 0}, rig.transport);
  rig.add("reader", rig.other, rig.bucket, kCount, rig.transport);
  rig.must(rig.driver.stream_synchronize, rig.transport);
  rig.finish();
  return 0;
}

/// The failure of a stream says nothing of those that the CPU has ordered behind it.
int read_by_a_stream_that_is_behind_anothers_failure_only_for_the_cpu() {
  OneRank rig;
  rig.end_step();
  rig.must(rig.driver.stream_synchronize, rig.step);
  rig.add("writer", rig.bucket, rig.other, kCount, rig.step);
  rig.must(rig.driver.memcpy_async, rig.other, rig.bucket, kBytes, rig.transport);
  rig.finish();
  return 0;
}

/// Two GPUs, of which the second reads what the first one's rank has lent.
struct Lenders : Rig {
  const StreamHandle owners = stream();
  StreamHandle peers = nullptr;
  DevicePointer of_peer = 0;

  Lenders() : Rig(2) {
    must(driver.ctx_set_current, context(1));
    peers = stream();
    of_peer = memory(kCount);
    fill(of_peer, kCount, peers);
    must(driver.stream_synchronize, peers);
    must(driver.ctx_enable_peer_access, context(0), 0U);
    must(driver.ctx_set_current, context(0));
  }
};

int slot_filled_again_while_a_peer_reads_it() {
  Lenders rig;
  std::uint64_t* const slot = rig.pinned(kCount);
  rig.must(rig.driver.ctx_set_current, rig.context(1));
  rig.must(rig.driver.memcpy_htod_async, rig.of_peer, static_cast<const void*>(slot), kBytes, rig.peers);
  rig.must(rig.driver.ctx_set_current, rig.context(0));
  rig.must(rig.driver.stream_synchronize, rig.owners);  // not the peer's
  rig.access(slot, kBytes, 1, "the lease's owner fills the slot again");
  rig.must(rig.driver.stream_synchronize, rig.peers);
  return 0;
}

int lease_freed_while_a_peer_reads() {
  Lenders rig;
  const DevicePointer lent = rig.memory(kCount);
  rig.fill(lent, kCount, rig.owners);
  rig.must(rig.driver.stream_synchronize, rig.owners);
  rig.must(rig.driver.ctx_set_current, rig.context(1));
  (void)rig.launch("reader", AddArgs{Rig::words_at(rig.of_peer), Rig::words_at(lent), kCount, 1}, rig.peers, 1);
  rig.must(rig.driver.ctx_set_current, rig.context(0));
  rig.must(rig.driver.mem_free, lent);
  rig.forget(lent);
  (void)rig.driver.stream_synchronize(rig.peers);
  _exit(rig.reports(nullptr, 0) > 0 ? host::kMistakesExitCode : 0);
}

}  // namespace

std::vector<Mistake> mistakes_of_exchanges() {
  constexpr const char *kWriter = "kernel writer on stream 1", *kReader = "kernel reader on stream 2",
                       *kSends = "cuMemcpyDtoHAsync_v2 on stream 2", *kLands = "cuMemcpyHtoDAsync_v2 on stream 2";
  return {
      TROUPE_MISTAKE(read_behind_a_poisoned_word, {"race, ", kWriter, kReader}),
      TROUPE_MISTAKE(read_behind_an_earlier_signal_and_a_poison, {"race, ", kWriter, kReader}),
      TROUPE_MISTAKE(result_written_behind_a_failure_and_read_elsewhere,
                     {"race, ", "cuMemcpyAsync on stream 1", kReader}),
      TROUPE_MISTAKE(
          memory_freed_while_it_is_read_behind_a_failure,
          {"use after free|race, write after read: cuMemFree_v2", "cuMemFree_v2", "cuMemcpyAsync on stream 1"}),
      TROUPE_MISTAKE(read_behind_a_signal_that_a_failure_has_left_out, {"race, ", kWriter, kReader}),
      TROUPE_MISTAKE(read_by_a_stream_that_is_behind_anothers_failure_only_for_the_cpu,
                     {"race, ", kWriter, "cuMemcpyAsync on stream 2"}),
      TROUPE_MISTAKE(bucket_sent_before_its_kernel_is_done, {"race, ", kWriter, kSends}),
      TROUPE_MISTAKE(staged_bucket_sent_before_its_kernel_is_done,
                     {"race, ", kWriter, "the transport sends the bucket"}),
      TROUPE_MISTAKE(bucket_written_again_while_it_is_sent, {"race, ", kWriter, kSends}),
      TROUPE_MISTAKE(result_landed_while_the_step_reads, {"race, ", "kernel reader on stream 1", kLands}),
      TROUPE_MISTAKE(slot_filled_again_while_a_peer_reads_it,
                     {"race, ", "the lease's owner fills the slot again", "cuMemcpyHtoDAsync_v2 on stream 2"},
                     "DEVICES=2"),
      TROUPE_MISTAKE(lease_freed_while_a_peer_reads, {"use after free|race, ", kReader, "cuMemFree_v2"}, "DEVICES=2"),
  };
}

}  // namespace troupe::cuda::testing::mistakes
