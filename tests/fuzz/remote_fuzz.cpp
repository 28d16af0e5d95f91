#include <gtest/gtest.h>

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>

#include "tests/actors/remote/asking.hpp"
#include "tests/actors/remote/injector.hpp"
#include "tests/fuzz/allocation_watch.hpp"
#include "tests/fuzz/damage.hpp"
#include "tests/fuzz/seed.hpp"

// RemoteActors reads bytes from other processes as they arrive: they may be anything.
namespace troupe::test {
namespace {

constexpr std::uint32_t kStrangers = 64;
constexpr std::size_t kFramesAtOnce = 50;
constexpr int kTurnsOfOne = 4;  // before the next stranger has a try
/// A frame of 100 KB, read as what takes most room, and then some.
constexpr std::size_t kLargestBlock = std::size_t{8} << 20;

/// Accepts all messages, and does not end because of one.
caf::behavior target(caf::event_based_actor* self, const AddressSpace*) {
  self->set_default_handler(caf::drop);
  self->set_exit_handler([](caf::exit_msg&) {});
  self->set_down_handler([](caf::down_msg&) {});
  self->set_error_handler([](caf::error&) {});
  return {[](Echo, std::uint64_t x) { return x; },
          [](Echo, std::string& x) { return std::move(x); },
          [](Echo, std::vector<char>& x) { return std::move(x); },
          [](Echo, const Tensor& x) { return x; },
          [](Echo, const std::vector<bool>& x) { return x; },
          [](Echo, const caf::message& x) { return x; },
          [](Echo, const caf::error& x) { return caf::make_message(x); },
          [](Echo, const caf::actor& x) { return x; },
          [](const Tensor& x) { return x; },
          [](std::uint64_t x) { return x; }};
}

/// Everything that a process sends, in a conversation of its own.
std::vector<SentFrame> conversation(HostileWorld& world) {
  RemoteEnd& end = *world.honest;
  auto blocking = Blocking::on_thread("test");
  const caf::actor to = end.remote->resolve(blocking, Peer{0}, "target", Deadline::after(kLong));
  EXPECT_TRUE((ask<std::uint64_t>(end.system, to, std::uint64_t{1})).ok());
  EXPECT_TRUE((ask<std::string>(end.system, to, Echo::value, std::string("text"))).ok());
  EXPECT_TRUE((ask<std::vector<char>>(end.system, to, Echo::value, std::vector<char>(100))).ok());
  EXPECT_TRUE((ask<std::vector<char>>(end.system, to, Echo::value, std::vector<char>(100000))).ok());
  EXPECT_TRUE((ask<Tensor>(end.system, to, end.tensor(4096, 1))).ok());
  const Tensor shared = world.victim->tensor(64, 1, /*shared=*/true);  // in an arena of both
  EXPECT_TRUE((ask<Tensor>(end.system, to, Echo::value, shared)).ok());
  EXPECT_TRUE((ask<Tensor>(end.system, to, shared)).ok());
  EXPECT_TRUE((ask<caf::actor>(end.system, to, Echo::value, caf::actor(end.server))).ok());
  for (std::uint64_t i = 0; i < 300; ++i) caf::anon_send(to, i);
  caf::anon_send(to, end.tensor(64, 1), end.tensor(128, 2), std::string("two"));
  caf::anon_send(to, Echo::value, std::vector<bool>(100));
  caf::anon_send(to, Echo::value, caf::make_message(1, caf::make_message(std::string("inner"))));
  caf::anon_send(to, Echo::value, to_caf(Status{Code::timeout, "an error"}));
  caf::anon_send_exit(to, caf::exit_reason::user_shutdown);
  EXPECT_TRUE((ask<std::uint64_t>(end.system, to, std::uint64_t{1})).ok());
  return world.from_honest->kept();
}

void damage(std::vector<std::byte>& bytes, std::size_t from, std::mt19937& dice) {
  testing::damage(bytes, from, dice);
  bytes.resize(std::min(bytes.size(), Transport::kMaxHeadBytes + 100000));
}

/// One stranger's frames: the honest peer's with numbers of their own, some of them damaged, and pure chance.
class Stranger {
 public:
  Stranger(std::uint32_t index, const std::vector<SentFrame>& corpus, std::mt19937& dice)
      : peer(HostileWorld::stranger(index)), corpus_(corpus), dice_(dice) {}

  SentFrame frame() {
    if (dice_() % 16 == 0) return chance();
    SentFrame frame = corpus_[dice_() % corpus_.size()];
    // Behind the header, where the order would tell the damage; or anywhere.
    const std::uint32_t where = dice_() % 8;
    if (where == 0) damage(frame.payload, 0, dice_);
    if (where == 1) damage(frame.head, wire::kHeaderBytes, dice_);
    number(frame.head);
    if (where == 2) damage(frame.head, 8, dice_);
    frame.head.resize(std::min(frame.head.size(), Transport::kMaxHeadBytes));
    return frame;
  }

  const Peer peer;

 private:
  SentFrame chance() {
    SentFrame frame{dice_() % 4 == 0 ? Lane::bulk : Lane::control, {}, {}};
    frame.head.resize(dice_() % 256);
    frame.payload.resize(dice_() % 4 == 0 ? dice_() % 5000 : 0);
    for (auto* const part : {&frame.head, &frame.payload})
      for (std::byte& byte : *part) byte = static_cast<std::byte>(dice_());
    if (frame.head.size() >= wire::kHeaderBytes) {
      wire::Header header;
      std::memcpy(&header, frame.head.data() + 8, sizeof header);
      header.version = wire::kVersion;
      header.kind = static_cast<wire::Kind>(1 + dice_() % 16);
      wire::store(header, std::span(frame.head).first<wire::kHeaderBytes>());
    }
    return frame;
  }
  /// Gives a head, or those of a batch, its place in what this stranger sends.
  void number(std::span<std::byte> head) {
    auto header = wire::load(head);
    if (!header) return;
    if (header->source_peer == 1) header->source_peer = static_cast<std::uint16_t>(peer.value);
    const bool counted =
        header->kind == wire::Kind::message || header->kind == wire::Kind::link || header->kind == wire::Kind::unlink;
    if (counted) header->sequence = sequence_[header->target]++;
    if (counted || header->kind == wire::Kind::down || header->kind == wire::Kind::passed) header->order = order_++;
    // What was damaged may be of another size now.
    const std::size_t beside = wire::kHeaderBytes + header->tensors * sizeof(wire::TensorRecord);
    constexpr std::uint8_t kElsewhere = wire::kBodyInPayload | wire::kBodyInPieces;
    if (header->kind == wire::Kind::message && (header->flags & kElsewhere) == 0 && header->tensors == 0)
      header->charge = wire::charge_of(head.size() - std::min(head.size(), beside), 0);
    wire::store(*header, head.first<wire::kHeaderBytes>());
    if (header->kind != wire::Kind::batch) return;
    std::span<const std::byte> rest = head.subspan(wire::kHeaderBytes);
    for (auto inner = wire::next_in_batch(rest); !inner.empty(); inner = wire::next_in_batch(rest))
      number({const_cast<std::byte*>(inner.data()), inner.size()});
  }

  const std::vector<SentFrame>& corpus_;
  std::mt19937& dice_;
  std::map<std::uint64_t, std::uint32_t> sequence_;
  std::uint32_t order_ = 0;
};

TEST(RemoteFuzz, FramesOfStrangersAreReadOrRefusedAndHarmNobodyElse) {
  const std::uint32_t seed = testing::chosen_seed();
  std::mt19937 dice{seed};
  std::uint64_t frames = 0, delivered = 0, dropped = 0, lost = 0;
  const testing::FuzzTime time{std::chrono::milliseconds{700}};
  while (time.goes_on(delivered > 0 && dropped > 0 && lost > 0)) {
    HostileWorld world(kStrangers, {.max_actors = 1000});
    const caf::actor whom = world.victim->system.spawn(target, &world.victim->space);
    world.victim->remote->publish("target", whom);
    const std::vector<SentFrame> corpus = conversation(world);
    const RemoteCounters before = world.victim->remote->counters();
    testing::reset_largest_allocation();
    for (std::uint32_t i = 0; i < kStrangers && (i == 0 || time.goes_on(true)); ++i) {
      Stranger stranger(i, corpus, dice);
      for (int turn = 0; turn < kTurnsOfOne && !world.why_lost(stranger.peer); ++turn) {
        std::vector<SentFrame> some;
        while (some.size() < kFramesAtOnce) some.push_back(stranger.frame());
        ASSERT_TRUE(world.arrive(stranger.peer, some)) << "a lane hangs, frames " << frames;
        frames += some.size();
      }
      if (const auto why = world.why_lost(stranger.peer)) {
        ++lost;
        ASSERT_EQ(why->code(), Code::corrupt) << why->text();
      }
    }
    ASSERT_LT(testing::largest_allocation(), kLargestBlock);
    const auto answer =
        ask<std::uint64_t>(world.honest->system, world.honest->remote->lookup(Peer{0}, whom.id()), std::uint64_t{7});
    ASSERT_TRUE(answer.ok()) << answer.why.text();
    const RemoteCounters after = world.victim->remote->counters();
    delivered += after.delivered - before.delivered;
    dropped += after.dropped - before.dropped;
    caf::anon_send_exit(whom, caf::exit_reason::kill);
  }
  std::cout << frames << " frames, " << delivered << " messages delivered, " << dropped << " refused, " << lost
            << " strangers given up\n";
  EXPECT_GT(delivered, 0U);
  EXPECT_GT(dropped, 0U);
  EXPECT_GT(lost, 0U);
}

}  // namespace
}  // namespace troupe::test
