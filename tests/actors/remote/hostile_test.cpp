#include <gmock/gmock.h>

#include <caf/binary_serializer.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include "actors/remote/detail/bounded_reader.hpp"
#include "actors/remote/detail/number_set.hpp"
#include "tests/actors/remote/asking.hpp"
#include "tests/actors/remote/injector.hpp"
#include "tests/support/child_process.hpp"

// A peer that violates the protocol is disconnected before it costs memory; other peers are still served.
namespace troupe::test {
namespace {

using ::testing::HasSubstr;
using troupe::testing::eventually;

constexpr std::uint32_t kMessagesTaken = 16;
constexpr std::uint64_t kBytesTaken = kMessagesTaken * wire::kMessageBytes;
constexpr std::uint64_t kNobody = 999999;

class HostilePeer : public ::testing::Test {
 protected:
  wire::Header message(std::uint32_t order, std::uint32_t sequence, std::uint64_t target) const {
    return {.source_peer = static_cast<std::uint16_t>(stranger.value),
            .charge = wire::charge_of(0, 0),
            .sequence = sequence,
            .order = order,
            .message_id = caf::message_id::default_async_value,
            .target = target};
  }
  void expect_lost(const char* why) {
    ASSERT_TRUE(eventually([&] { return world.why_lost(stranger).has_value(); }));
    EXPECT_EQ(world.why_lost(stranger)->code(), Code::corrupt);
    EXPECT_THAT(world.why_lost(stranger)->text(), HasSubstr(why));
    expect_the_others_are_served();
  }
  void expect_the_others_are_served() {
    const auto answer = ask<std::uint64_t>(world.honest->system, to_server, Echo::value, std::uint64_t{3});
    EXPECT_TRUE(answer.ok()) << answer.why.text();
  }
  /// The server's id, which strangers may have guessed.
  std::uint64_t server() const { return world.victim->server.id(); }

  HostileWorld world{1, {.unhandled_bytes = kBytesTaken, .max_actors = 100}};
  Blocking blocking = Blocking::on_thread("test");
  caf::actor to_server = world.honest->remote->resolve(blocking, Peer{0}, "server", Deadline::after(kLong));
  const Peer stranger = HostileWorld::stranger(0);
};

TEST_F(HostilePeer, IsLostWhenItSendsMoreThanIsTaken) {
  std::vector<SentFrame> frames;
  for (std::uint32_t i = 0; i <= kMessagesTaken + 1; ++i) frames.push_back(frame_of(message(i + 1, i + 1, server())));
  ASSERT_TRUE(world.arrive(stranger, {frames.begin(), frames.end() - 1}));
  EXPECT_FALSE(world.why_lost(stranger));
  ASSERT_TRUE(world.arrive(stranger, {frames.back()}));
  expect_lost("more than this process takes");
}

TEST_F(HostilePeer, IsLostWhenItSaysThatAMessageIsOfAnotherSize) {
  auto header = message(0, 0, server());
  header.charge = 1;
  ASSERT_TRUE(world.arrive(stranger, {frame_of(header)}));
  expect_lost("wrong size");
}

TEST_F(HostilePeer, IsLostWhenPiecesOfABodyDoNotFit) {
  SentFrame piece = frame_of({.kind = wire::Kind::piece, .message_id = 1, .source = 100, .target = 90});
  piece.lane = Lane::bulk;
  piece.payload.resize(11);
  ASSERT_TRUE(world.arrive(stranger, {piece}));
  expect_lost("piece");
}

TEST_F(HostilePeer, IsLostWhenPiecesOfAPayloadDoNotFit) {
  SentFrame piece = frame_of({.kind = wire::Kind::payload_piece, .sequence = 2, .source = 100, .target = 90});
  piece.lane = Lane::bulk;
  piece.payload.resize(11);
  ASSERT_TRUE(world.arrive(stranger, {piece}));
  expect_lost("piece");
}

TEST_F(HostilePeer, IsLostWhenAPieceOfAPayloadHasNoBytes) {
  SentFrame piece = frame_of({.kind = wire::Kind::payload_piece, .sequence = 1, .source = 100});
  piece.lane = Lane::bulk;
  ASSERT_TRUE(world.arrive(stranger, {piece}));
  expect_lost("piece");
}

TEST_F(HostilePeer, IsLostWhenTwoMessagesHaveOnePayload) {
  auto header = message(0, 0, server());
  header.flags = wire::kPayloadInPieces;
  SentFrame frame = frame_of(header);
  frame.lane = Lane::bulk;
  ASSERT_TRUE(world.arrive(stranger, {frame, frame}));
  expect_lost("two messages");
}

TEST_F(HostilePeer, IsLostWhenItDoesNotTellWhichBodyIsAMessages) {
  auto header = message(0, 0, server());
  header.flags = wire::kBodyInPieces;
  SentFrame frame = frame_of(header);
  frame.lane = Lane::bulk;
  ASSERT_TRUE(world.arrive(stranger, {frame}));
  expect_lost("which body");
}

TEST_F(HostilePeer, IsLostWhenItLinksActorsOfOthers) {
  auto header = message(0, 0, server());
  header.kind = wire::Kind::link;
  header.flags = wire::kFree;
  header.source = 5;
  header.source_peer = 1;
  ASSERT_TRUE(world.arrive(stranger, {frame_of(header)}));
  expect_lost("link");
}

TEST_F(HostilePeer, IsLostWhenItSendsTooManyAnswersBeforeTheirTurn) {
  std::vector<SentFrame> frames;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    auto header = message(i + 1, i + 1, server());
    header.flags = wire::kFree;
    header.message_id = caf::message_id{i + 1}.response_id().integer_value();
    frames.push_back(frame_of(header));
  }
  ASSERT_TRUE(world.arrive(stranger, frames));
  expect_lost("before their turn");
}

TEST_F(HostilePeer, IsLostWhenItNumbersTwoMessagesTheSame) {
  ASSERT_TRUE(world.arrive(stranger, {frame_of(message(1, 1, server())), frame_of(message(2, 1, server()))}));
  expect_lost("one number");
}

TEST_F(HostilePeer, IsLostWhenItGivesTwoMessagesOnePlace) {
  ASSERT_TRUE(world.arrive(stranger, {frame_of(message(0, 0, kNobody)), frame_of(message(0, 1, kNobody))}));
  expect_lost("one place in the order");
}

TEST_F(HostilePeer, IsLostWhenItLeavesTooManyGaps) {
  std::vector<SentFrame> frames;
  for (std::uint32_t i = 0; i < 70000; ++i) frames.push_back(frame_of(message(2 * i + 1, i, kNobody)));
  ASSERT_TRUE(world.arrive(stranger, frames));
  expect_lost("missing between");
}

TEST_F(HostilePeer, IsLostWhenItCallsAMessageFreeThatIsNone) {
  auto header = message(0, 0, server());
  header.flags = wire::kFree | wire::kPlain;
  const std::array<std::byte, 12> body{};
  ASSERT_TRUE(world.arrive(stranger, {frame_of(header, body)}));
  expect_the_others_are_served();  // unreadable: refused
  header = message(1, 1, server());
  header.flags = wire::kFree;
  // An empty message as CAF writes it: no number, and the name of nothing.
  const std::array<std::byte, 6> nothing{std::byte{0},   std::byte{0},   std::byte{3},
                                         std::byte{'@'}, std::byte{'<'}, std::byte{'>'}};
  ASSERT_TRUE(world.arrive(stranger, {frame_of(header, nothing)}));
  expect_lost("as free");
}

TEST_F(HostilePeer, IsLostWhenItMakesTooManyActorsKnown) {
  std::vector<SentFrame> frames;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    auto header = message(i, i, kNobody);
    header.source = 5000 + i;
    header.message_id = 1;  // a request, so that there is somebody to answer
    frames.push_back(frame_of(header));
  }
  ASSERT_TRUE(world.arrive(stranger, frames));
  expect_lost("too many of its actors");
}

TEST_F(HostilePeer, CostsNothingByWatchingOneActorOverAndOverByEndsOfUnknownOnesAndByPassingOnWhatWasNotSent) {
  std::vector<SentFrame> frames;
  for (std::uint32_t i = 0; i < 20000; ++i) {
    frames.push_back(frame_of({.kind = wire::Kind::monitor, .target = server()}));
    frames.push_back(frame_of({.kind = wire::Kind::down, .order = 2 * i, .source = 7000 + i}));
    frames.push_back(frame_of({.kind = wire::Kind::passed,
                               .source_peer = static_cast<std::uint16_t>(i % 2 == 0 ? 1 : 3),
                               .order = 2 * i + 1,
                               .message_id = i,
                               .source = 7000 + i,
                               .target = server()}));
    frames.push_back(frame_of({.kind = wire::Kind::release, .message_id = i}));
  }
  ASSERT_TRUE(world.arrive(stranger, frames));
  EXPECT_FALSE(world.why_lost(stranger));
  expect_the_others_are_served();
}

TEST_F(HostilePeer, IsLostWhenItPassesARequestOnWithinItself) {
  ASSERT_TRUE(world.arrive(stranger, {frame_of({.kind = wire::Kind::passed,
                                                .source_peer = static_cast<std::uint16_t>(stranger.value),
                                                .message_id = 1,
                                                .source = 7000,
                                                .target = server()})}));
  expect_lost("did not leave for another process");
}

TEST_F(HostilePeer, DoesNotGiveBackWhatWasLentToAnother) {
  const Tensor tensor = world.victim->tensor(64, 1, /*shared=*/true);
  const std::shared_ptr<int> alive = std::make_shared<int>(1);
  const caf::actor keeper = world.victim->remote->resolve(blocking, Peer{1}, "server", Deadline::after(kLong));
  ASSERT_TRUE((ask<std::uint64_t>(world.victim->system, keeper, Keep::value,
                                  Tensor{tensor.memory(), tensor.extents(), tensor.dtype(), {}, alive}))
                  .ok());
  std::vector<SentFrame> frames;
  for (std::uint64_t token = 0; token < 100; ++token)
    frames.push_back(frame_of({.kind = wire::Kind::release, .message_id = token}));
  ASSERT_TRUE(world.arrive(stranger, frames));
  EXPECT_EQ(alive.use_count(), 2) << "the tensor that the honest peer keeps";
}

TEST_F(HostilePeer, CannotPassAMessageOffAsOneOfAStream) {
  std::vector<SentFrame> frames;
  for (std::uint32_t i = 0; i < 2; ++i) {
    auto header = message(i, i, server());
    header.message_id = caf::message_id{}.with_category(2 + i).integer_value();
    const std::array<std::byte, 6> nothing{std::byte{0},   std::byte{0},   std::byte{3},
                                           std::byte{'@'}, std::byte{'<'}, std::byte{'>'}};
    frames.push_back(frame_of(header, nothing));
  }
  ASSERT_TRUE(world.arrive(stranger, frames));
  EXPECT_TRUE(eventually([&] { return world.victim->remote->counters().dropped >= 2; }));
  expect_the_others_are_served();
}

TEST_F(HostilePeer, CannotPutABodyIntoAPayloadThatIsNotThere) {
  auto header = message(0, 0, server());
  header.flags = wire::kBodyInPayload;
  ASSERT_TRUE(world.arrive(stranger, {frame_of(header)}));
  EXPECT_TRUE(eventually([&] { return world.victim->remote->counters().dropped >= 1; }));
  expect_the_others_are_served();
}

TEST(BoundedReader, RefusesASequenceThatItsBytesCannotHold) {
  Config config;
  caf::actor_system system(config);
  caf::scoped_execution_unit unit(&system);
  const std::array<std::byte, 5> four_gib{std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                                          std::byte{0x0f}};
  remote::BoundedReader source(unit, four_gib, {});
  std::vector<char> to;
  EXPECT_TRUE(static_cast<bool>(source(to)));
  EXPECT_LT(to.capacity(), 100000u);
}

TEST(BoundedReader, RefusesMessagesNestedTooDeeply) {
  Config config;
  caf::actor_system system(config);
  caf::scoped_execution_unit unit(&system);
  const auto read = [&](int depth) {
    caf::message message = caf::make_message(1);
    for (int i = 0; i < depth; ++i) message = caf::make_message(1, message);
    std::vector<char> bytes;
    caf::binary_serializer sink(&unit, bytes);
    EXPECT_FALSE(static_cast<bool>(sink(message)));
    remote::BoundedReader source(unit, std::as_bytes(std::span(bytes)), {});
    caf::message back;
    return !source(back) && !source.refusal();
  };
  EXPECT_TRUE(read(40));
  EXPECT_FALSE(read(1000));
}

TEST(BoundedReader, ReadsManyEmptyMessages) {
  Config config;
  caf::actor_system system(config);
  caf::scoped_execution_unit unit(&system);
  std::vector<caf::message> many(300);
  std::vector<char> bytes;
  caf::binary_serializer sink(&unit, bytes);
  ASSERT_FALSE(static_cast<bool>(sink(many)));
  remote::BoundedReader source(unit, std::as_bytes(std::span(bytes)), {});
  std::vector<caf::message> back;
  EXPECT_FALSE(static_cast<bool>(source(back)));
  EXPECT_EQ(back.size(), 300u);
}

TEST(NumberSet, JoinsWhatComesInAnyOrderAndTellsDoubles) {
  remote::NumberSet settled;
  for (const std::uint64_t number : {3, 1, 5, 4}) EXPECT_TRUE(settled.add(number));
  EXPECT_EQ(settled.next(), 0u);
  EXPECT_EQ(settled.runs(), 2u);  // 1, and 3 to 5
  for (const std::uint64_t number : {1, 3, 4, 5}) EXPECT_FALSE(settled.add(number));
  EXPECT_TRUE(settled.add(0));
  EXPECT_EQ(settled.next(), 2u);
  EXPECT_TRUE(settled.add(2));
  EXPECT_EQ(settled.next(), 6u);
  EXPECT_EQ(settled.runs(), 0u);
  EXPECT_FALSE(settled.add(5));
  EXPECT_EQ(settled.whole(7), 7u);
  EXPECT_FALSE(settled.whole(5));
}

}  // namespace
}  // namespace troupe::test
