#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <caf/event_based_actor.hpp>
#include <cstring>

#include "tests/actors/remote/asking.hpp"
#include "transports/ucx/ucx_transport.hpp"

// A tensor of more bytes than 31 bits count, by value: its bytes are sent, and land in a sink.
namespace troupe::test {
namespace {

constexpr std::uint64_t kFold = std::uint64_t{16} << 20;
constexpr std::uint64_t kFolds = 128;
constexpr std::uint64_t kTail = std::uint64_t{1} << 20;
constexpr std::uint64_t kBytes = kFolds * kFold + kTail;  // 2 GiB and 1 MiB

/// Many addresses on little memory: the same 16 MiB again and again, and at the end 1 MiB that is mapped once.
class FoldedMemory {
 public:
  FoldedMemory() : file_(memfd_create("folded", MFD_CLOEXEC)) {
    void* const all = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TROUPE_CHECK_ERRNO(file_ >= 0 && all != MAP_FAILED && ftruncate(file_, kFold + kTail) == 0, Code::out_of_memory,
                       "no room for ", kBytes, " addresses");
    base = static_cast<std::byte*>(all);
    for (std::uint64_t fold = 0; fold < kFolds; ++fold) show(fold * kFold, 0, kFold);
    show(kFolds * kFold, kFold, kTail);
  }
  FoldedMemory(const FoldedMemory&) = delete;
  FoldedMemory& operator=(const FoldedMemory&) = delete;
  ~FoldedMemory() {
    munmap(base, kBytes);
    close(file_);
  }
  /// The memory beneath: the repeated part, then the end.
  std::span<std::byte> bytes() const { return {base + (kFolds - 1) * kFold, kFold + kTail}; }

  std::byte* base = nullptr;

 private:
  void show(std::uint64_t at, std::uint64_t from, std::uint64_t size) const {
    TROUPE_CHECK_ERRNO(mmap(base + at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
                            static_cast<off_t>(from)) != MAP_FAILED,
                       Code::out_of_memory, "cannot map a fold");
  }
  const int file_;
};

caf::behavior measure(caf::event_based_actor*) {
  return {[](const Tensor& tensor) {
    return caf::make_message(tensor.memory().arena.value, tensor.memory().offset, tensor.memory().size_bytes);
  }};
}

TEST(RemoteTensor, OfMoreThanTwoGiBIsSentIntoASink) {
  FoldedMemory source;
  FoldedMemory target;
  const auto words = source.bytes();
  for (std::uint64_t i = 0; i < words.size(); i += sizeof i) std::memcpy(words.data() + i, &i, sizeof i);

  const auto make_transport = [](Peer self) {
    return [self](AddressSpace& space) { return make_ucx_transport(space, {.self = self, .means = UcxMeans::shm}); };
  };
  RemoteEnd here(Peer{0}, make_transport(Peer{0}));
  RemoteEnd there(Peer{1}, make_transport(Peer{1}));
  here.meet(there.self, there.introduction());
  there.meet(here.self, here.introduction());
  const Memory from{arena_id(here.self, 77), 0, kBytes};
  const Memory to{arena_id(there.self, 77), 0, kBytes};
  here.space.bind({from.arena, source.base, kBytes});
  there.space.bind({to.arena, target.base, kBytes});
  there.remote->post_sink({1}, to);
  there.remote->publish("measure", there.system.spawn(measure));
  here.start();
  there.start();
  auto blocking = Blocking::on_thread("test");
  const caf::actor measurer = here.remote->resolve(blocking, there.self, "measure", Deadline::after(kLong));

  const Tensor tensor{from, {kBytes / 4}, DType::f32, {}, nullptr};
  const auto seen = ask<std::uint32_t, std::uint64_t, std::uint64_t>(here.system, measurer, tensor.into(SinkKey{1}));
  ASSERT_TRUE(seen.ok()) << seen.why.text();
  EXPECT_EQ(seen.get<0>(), to.arena.value);
  EXPECT_EQ(seen.get<1>(), 0u);
  EXPECT_EQ(seen.get<2>(), kBytes);
  EXPECT_EQ(std::memcmp(target.bytes().data(), source.bytes().data(), source.bytes().size()), 0);
  caf::anon_send_exit(measurer, caf::exit_reason::user_shutdown);
  here.stop();
  there.stop();
}

}  // namespace
}  // namespace troupe::test
