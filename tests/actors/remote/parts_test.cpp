#include <capnp/message.h>
#include <capnp/serialize.h>
#include <gmock/gmock.h>

#include <array>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/exit_reason.hpp>
#include <caf/scoped_execution_unit.hpp>
#include <caf/sec.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "actors/caf_compatibility.hpp"
#include "actors/caf_error.hpp"
#include "actors/remote/detail/body_assembler.hpp"
#include "actors/remote/detail/codec.hpp"
#include "actors/remote/detail/payload_assembler.hpp"
#include "actors/remote/detail/sinks.hpp"
#include "actors/remote/detail/slab_pool.hpp"
#include "actors/remote/network_module.hpp"
#include "actors/remote/tensor.hpp"
#include "actors/remote/wire.hpp"
#include "header.capnp.h"

namespace troupe {
namespace {

using remote::Sinks;
using remote::SlabPool;
using ::testing::HasSubstr;

constexpr wire::Header kHeader{.kind = wire::Kind::down,
                               .flags = 5,
                               .tensors = 7,
                               .source_peer = 0x0102,
                               .charge = 0x0304,
                               .sequence = 0xfffffffe,
                               .order = 17,
                               .message_id = 0x8000000000000123,
                               .source = 99,
                               .target = std::uint64_t{1} << 62};

std::array<std::byte, wire::kHeaderBytes> stored(const wire::Header& header) {
  std::array<std::byte, wire::kHeaderBytes> bytes;
  wire::store(header, bytes);
  return bytes;
}

TEST(WireHeader, HasTheBytesOfTheGeneratedBuilder) {
  capnp::MallocMessageBuilder message;
  auto header = message.initRoot<wire::schema::Header>();
  header.setVersion(wire::kVersion);
  header.setKind(static_cast<std::uint8_t>(kHeader.kind));
  header.setFlags(kHeader.flags);
  header.setTensors(kHeader.tensors);
  header.setSourcePeer(kHeader.source_peer);
  header.setCharge(kHeader.charge);
  header.setSequence(kHeader.sequence);
  header.setOrder(kHeader.order);
  header.setMessageId(kHeader.message_id);
  header.setSource(kHeader.source);
  header.setTarget(kHeader.target);
  const auto segments = message.getSegmentsForOutput();
  ASSERT_EQ(segments.size(), 1u);
  ASSERT_EQ(segments[0].asBytes().size(), wire::kHeaderBytes);
  EXPECT_EQ(std::memcmp(segments[0].asBytes().begin(), stored(kHeader).data(), wire::kHeaderBytes), 0);
}

TEST(WireHeader, IsReadByTheGeneratedReader) {
  alignas(8) const auto bytes = stored(kHeader);
  std::array<capnp::word, wire::kHeaderBytes / 8> words;
  std::memcpy(words.data(), bytes.data(), bytes.size());
  const kj::ArrayPtr<const capnp::word> segment(words.data(), words.size());
  capnp::SegmentArrayMessageReader message(kj::arrayPtr(&segment, 1));
  const auto header = message.getRoot<wire::schema::Header>();
  EXPECT_EQ(header.getSequence(), kHeader.sequence);
  EXPECT_EQ(header.getMessageId(), kHeader.message_id);
  EXPECT_EQ(header.getTarget(), kHeader.target);
}

TEST(WireHeader, IsLoadedAsItWasStored) {
  const auto header = wire::load(stored(kHeader));
  ASSERT_TRUE(header);
  EXPECT_EQ(std::memcmp(&*header, &kHeader, sizeof kHeader), 0);
}

TEST(WireHeader, IsNoneWhenShortOrOfAnotherVersionLayoutOrKind) {
  auto bytes = stored(kHeader);
  EXPECT_FALSE(wire::load(std::span(bytes).first(47)));
  for (const std::size_t at : {4, 8, 9}) {  // the root pointer's size, version, kind
    auto other = bytes;
    other[at] = std::byte{200};
    EXPECT_FALSE(wire::load(other)) << at;
  }
}

TEST(WireCharge, IsNeverLessThanTheCostAndHardlyMore) {
  for (const std::uint64_t bytes : {0ull, 1ull, 63ull, 64ull, 4096ull, 70'000'001ull, 2ull << 30}) {
    for (const std::uint64_t copied : {0ull, 100ull, 1ull << 20, 5ull << 30}) {
      const std::uint64_t cost = wire::cost_of(bytes, copied);
      const std::uint64_t charged = wire::charge_in(wire::charge_of(bytes, copied)) * wire::kChargeBytes;
      EXPECT_GE(charged, cost);
      EXPECT_LE(charged, cost + cost / 1000 + wire::kChargeBytes);
    }
  }
}

class BodiesInPieces : public ::testing::Test {
 protected:
  static wire::Header piece(std::uint64_t number, std::uint64_t size, std::uint64_t offset) {
    return {.kind = wire::Kind::piece, .message_id = number, .source = size, .target = offset};
  }
  std::optional<remote::BodyAssembler::Whole> add(std::uint64_t number, std::uint64_t size, std::uint64_t offset,
                                                  std::string_view text) {
    return bodies.add_piece(Peer{1}, piece(number, size, offset), std::as_bytes(std::span(text)), wrong);
  }
  static std::string text_of(const remote::BodyAssembler::Whole& whole) {
    return {reinterpret_cast<const char*>(whole.body.bytes.get()), whole.body.size_bytes};
  }

  std::shared_ptr<remote::Budget> budget = std::make_shared<remote::Budget>(1000);
  remote::BodyAssembler bodies{budget};
  bool wrong = false;
};

TEST_F(BodiesInPieces, AreWholeWhateverTheOrder) {
  EXPECT_FALSE(add(1, 6, 3, "def"));
  EXPECT_FALSE(add(2, 3, 0, "xyz"));
  EXPECT_FALSE(bodies.add_message(Peer{1}, {1, 6}, {}, wrong));
  const auto first = add(1, 6, 0, "abc");
  ASSERT_TRUE(first);
  EXPECT_EQ(text_of(*first), "abcdef");
  const auto second = bodies.add_message(Peer{1}, {2, 3}, {}, wrong);
  ASSERT_TRUE(second);
  EXPECT_EQ(text_of(*second), "xyz");
  EXPECT_FALSE(wrong);
}

TEST_F(BodiesInPieces, AreRefusedWhole) {
  budget->enter(1000);
  EXPECT_FALSE(add(1, 6, 3, "def"));
  EXPECT_FALSE(add(1, 6, 0, "abc"));
  const auto whole = bodies.add_message(Peer{1}, {1, 6}, {}, wrong);
  ASSERT_TRUE(whole);
  EXPECT_TRUE(whole->message.refused);
  EXPECT_FALSE(wrong);
}

TEST_F(BodiesInPieces, GiveTheirMemoryBack) {
  add(1, 6, 3, "def");
  EXPECT_EQ(budget->used(), 6u);
  bodies.forget(Peer{0});
  EXPECT_EQ(budget->used(), 6u);
  bodies.forget(Peer{1});
  EXPECT_EQ(budget->used(), 0u);
}

TEST_F(BodiesInPieces, AreWrongWhenTheyDisagree) {
  add(1, 6, 3, "def");
  add(1, 7, 0, "abc");
  EXPECT_TRUE(wrong);
  wrong = false;
  add(3, 6, 4, "def");
  EXPECT_TRUE(wrong);
  wrong = false;
  add(4, wire::kLargestBody + 1, 0, "a");
  EXPECT_TRUE(wrong);
}

class PayloadsInPieces : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kBytes = 300;  // in three pieces of 100

  static wire::Header piece(std::uint64_t offset, std::uint32_t pieces = 3) {
    return {.kind = wire::Kind::payload_piece, .sequence = pieces, .order = 5, .source = kBytes, .target = offset};
  }
  Memory land(std::uint64_t offset, std::uint64_t bytes = 100) {
    return payloads.land(Peer{1}, piece(offset), bytes, wrong);
  }
  void add_message() { payloads.add_message(Peer{1}, {.order = 5}, std::vector<std::byte>(48), wrong); }
  auto whole() { return payloads.take_whole(Peer{1}, 5); }

  bool has_memory = true;
  std::weak_ptr<const void> kept;
  remote::PayloadAssembler payloads{[this](SinkKey, std::uint64_t size_bytes) -> remote::PayloadAssembler::Store {
    if (!has_memory) return {};
    std::shared_ptr<const void> keeper = std::make_shared<const int>(1);
    kept = keeper;
    return {{ArenaId{9}, 4096, size_bytes}, keeper};
  }};
  bool wrong = false;
};

TEST_F(PayloadsInPieces, LandInTheirPlacesAndAreWholeWhenAllHaveArrived) {
  const Memory last = land(200), first = land(0);
  EXPECT_EQ(last, (Memory{ArenaId{9}, 4096 + 200, 100}));
  add_message();
  const Memory middle = land(100);
  EXPECT_TRUE(payloads.end_landing(middle, true));
  EXPECT_TRUE(payloads.end_landing(first, true));
  EXPECT_FALSE(whole());
  EXPECT_TRUE(payloads.end_landing(last, true));
  const auto message = whole();
  ASSERT_TRUE(message);
  EXPECT_EQ(message->payload.memory, (Memory{ArenaId{9}, 4096, kBytes}));
  EXPECT_NE(message->payload.keeper, nullptr);
  EXPECT_FALSE(whole());
  EXPECT_FALSE(wrong);
}

TEST_F(PayloadsInPieces, WithoutMemoryAreRefusedWhenAllHaveCome) {
  has_memory = false;
  for (const std::uint64_t offset : {0, 100, 200}) {
    EXPECT_FALSE(whole());
    EXPECT_EQ(land(offset).size_bytes, 0u);
    if (offset == 0) add_message();
  }
  const auto message = whole();
  ASSERT_TRUE(message);
  EXPECT_EQ(message->payload.keeper, nullptr);
  EXPECT_FALSE(wrong);
}

TEST_F(PayloadsInPieces, OfASenderThatFailedEndWithTheLastThatWasSent) {
  const Memory first = land(0);
  payloads.cut_short(Peer{1}, piece(2), wrong);
  EXPECT_FALSE(whole());
  EXPECT_TRUE(payloads.end_landing(first, true));
  EXPECT_FALSE(whole());
  EXPECT_FALSE(kept.expired());
  EXPECT_TRUE(payloads.end_landing(land(100), true)) << "it may come later than the news of the end";
  EXPECT_FALSE(whole());
  EXPECT_TRUE(kept.expired());
  EXPECT_FALSE(wrong);
}

TEST_F(PayloadsInPieces, KeepTheMemoryOfALostPeerUntilNothingLandsThere) {
  const Memory first = land(0);
  payloads.forget(Peer{0});
  EXPECT_FALSE(kept.expired());
  payloads.forget(Peer{1});
  EXPECT_FALSE(kept.expired());
  EXPECT_TRUE(payloads.end_landing(first, false));
  EXPECT_TRUE(kept.expired());
  EXPECT_FALSE(payloads.end_landing(first, false));
}

TEST_F(PayloadsInPieces, AreWrongWhenTheyDisagree) {
  const auto is_wrong = [&](const wire::Header& header, std::uint64_t bytes) {
    wrong = false;
    payloads.land(Peer{1}, header, bytes, wrong);
    return wrong;
  };
  EXPECT_FALSE(is_wrong(piece(0), 100));
  EXPECT_TRUE(is_wrong(piece(100, 4), 100)) << "another number of pieces";
  EXPECT_TRUE(is_wrong(piece(201), 100)) << "behind the end";
  EXPECT_TRUE(is_wrong(piece(UINT64_MAX), 100)) << "behind the end";
  EXPECT_TRUE(is_wrong(piece(0), 100)) << "in a place where one lands";
  EXPECT_FALSE(is_wrong(piece(100), 100));
  EXPECT_FALSE(is_wrong(piece(200), 100));
  EXPECT_TRUE(is_wrong(piece(50), 100)) << "one too many";
  add_message();
  EXPECT_TRUE((add_message(), wrong)) << "a second message";
  wrong = false;
  payloads.cut_short(Peer{1}, piece(1), wrong);
  EXPECT_TRUE(wrong) << "failed, although all were sent";
}

TEST(Codec, KeepsNumbersThatAreNotFinite) {
  caf::actor_system_config config;
  caf::actor_system system(config);
  caf::scoped_execution_unit unit(&system);
  remote::Codec codec(unit);
  const double infinity = std::numeric_limits<double>::infinity();
  auto sent = caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, std::nan(""), -infinity, 0.1,
                                        std::numeric_limits<float>::infinity(), -0.0f);
  std::vector<char> bytes;
  ASSERT_TRUE(codec.encode(*sent, bytes).ok());
  remote::Codec::Decoded decoded;
  ASSERT_TRUE(codec.decode(std::as_bytes(std::span(bytes)), false, decoded).ok());
  const caf::message& got = decoded.content;
  ASSERT_EQ(got.size(), 5u);
  EXPECT_TRUE(std::isnan(got.get_as<double>(0)));
  EXPECT_EQ(got.get_as<double>(1), -infinity);
  EXPECT_EQ(got.get_as<double>(2), 0.1);
  EXPECT_EQ(got.get_as<float>(3), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::signbit(got.get_as<float>(4)));
}

TEST(CafError, KeepsCodeAndText) {
  for (int code = 1; code <= static_cast<int>(Code::corrupt); ++code) {
    const Status status{static_cast<Code>(code), "why"};
    const Status back = from_caf(to_caf(status));
    EXPECT_EQ(back.code(), status.code());
    EXPECT_EQ(back.text(), "why");
  }
  EXPECT_FALSE(to_caf(Status{}));
  EXPECT_TRUE(from_caf(caf::error{}).ok());
  EXPECT_TRUE(from_caf(caf::exit_reason::normal).ok());
}

TEST(CafError, GivesCafsOwnErrorsACode) {
  EXPECT_EQ(from_caf(caf::make_error(caf::sec::request_timeout)).code(), Code::timeout);
  EXPECT_EQ(from_caf(caf::make_error(caf::sec::request_receiver_down)).code(), Code::peer_lost);
  EXPECT_EQ(from_caf(caf::exit_reason::user_shutdown).code(), Code::aborted);
  EXPECT_EQ(from_caf(caf::exit_reason::unhandled_exception).code(), Code::device_fault);
  EXPECT_EQ(from_caf(caf::error{200, caf::atom("troupe")}).code(), Code::corrupt);
}

TEST(CafError, IsRenderedByName) {
  caf::actor_system_config config;
  add_error_names(config);
  caf::actor_system system(config);
  EXPECT_EQ(system.render(to_caf(Status{Code::peer_lost, "node b"})), "peer_lost: node b");
}

TEST(NetworkModule, GivesEverySystemAnIdentityOfItsOwn) {
  caf::actor_system_config first_config, second_config;
  load_network_module(first_config);
  load_network_module(second_config);
  caf::actor_system first(first_config), second(second_config);
  EXPECT_NE(first.node(), second.node());
  EXPECT_EQ(node_id_from(node_id_bytes(first.node())), first.node());
}

TEST(NetworkModule, RefusesBytesThatAreNoIdentity) {
  EXPECT_THROW(node_id_from(std::vector<std::byte>(24)), Error);
  EXPECT_THROW(node_id_from(std::vector<std::byte>(23, std::byte{1})), Error);
}

TEST(MessageTable, HasAHashOfItsNamesWhateverTheirOrder) {
  caf::actor_system_config one, other, third;
  add_messages(one, MessageName<Tensor>{"a"}, MessageName<std::vector<int>>{"b"});
  add_messages(other, MessageName<std::vector<int>>{"b"}, MessageName<Tensor>{"a"});
  add_messages(third, MessageName<std::vector<int>>{"b"}, MessageName<Tensor>{"c"});
  EXPECT_EQ(message_table_hash(one), message_table_hash(other));
  EXPECT_NE(message_table_hash(one), message_table_hash(third));
}

TEST(Tensor, RefusesMemoryOfAnotherSize) {
  EXPECT_THROW(Tensor(Memory{{1}, 0, 100}, {5, 6}, DType::f32, {}, nullptr), Error);
  EXPECT_THROW(Tensor(Memory{{1}, 0, 100}, {std::uint64_t{1} << 63, 4}, DType::f32, {}, nullptr), Error);
  EXPECT_EQ(Tensor(Memory{{1}, 0, 60}, {5, 6}, DType::bf16, {}, nullptr).extents().size(), 2u);
}

TEST(Tensor, CannotBeWrittenOutsideOfAMessage) {
  caf::actor_system_config config;
  caf::actor_system system(config);
  std::vector<char> bytes;
  caf::binary_serializer sink(system, bytes);
  Tensor tensor(Memory{{1}, 0, 4}, {1}, DType::f32, {}, nullptr);
  EXPECT_EQ(from_caf(sink(tensor)).code(), Code::unsupported);
}

class SlabPools : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kMiB = 1 << 20;
  AddressSpace space;
  std::shared_ptr<SlabPool> pool = std::make_shared<SlabPool>(space, Peer{0}, 128, 4 * kMiB);
};

TEST_F(SlabPools, ReuseASlabThatCameBack) {
  const auto first = pool->take(5000);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->size_bytes, 5000u);
  pool->give_back(slice(*first, 0, 17));
  const auto second = pool->take(8000);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->offset, first->offset);
}

TEST_F(SlabPools, GiveNothingBeyondTheirCap) {
  EXPECT_FALSE(pool->take(4 * kMiB + 1));
  std::vector<Memory> taken;
  while (const auto slab = pool->take(kMiB)) taken.push_back(*slab);
  EXPECT_EQ(taken.size(), 4u);
  EXPECT_LE(pool->size_bytes(), 4 * kMiB);
  pool->give_back(taken.front());
  EXPECT_TRUE(pool->take(4096));  // a larger slab, when there is nothing else
}

TEST_F(SlabPools, NeverGiveTheSameBytesTwice) {
  std::vector<Memory> taken;
  for (std::uint64_t i = 0; const auto slab = pool->take(4096 << (i % 6)); ++i) taken.push_back(*slab);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const bool apart = taken[i].arena != taken[j].arena || taken[i].offset >= taken[j].offset + taken[j].size_bytes ||
                         taken[j].offset >= taken[i].offset + taken[i].size_bytes;
      EXPECT_TRUE(apart) << i << " and " << j;
    }
  }
}

TEST_F(SlabPools, JoinSmallSlabsToALargeOneAgain) {
  std::vector<Memory> taken;
  while (const auto slab = pool->take(4096)) taken.push_back(*slab);
  EXPECT_GE(taken.size() * 4096, 4 * kMiB - 4096);
  for (std::size_t i = 0; i < taken.size(); i += 2) pool->give_back(taken[i]);
  EXPECT_FALSE(pool->take(8192)) << "every second one is in use";
  for (std::size_t i = 1; i < taken.size(); i += 2) pool->give_back(taken[i]);
  for (const std::uint64_t bytes : {2 * kMiB, kMiB, 5000 * std::uint64_t{1}}) {
    const auto slab = pool->take(bytes);
    EXPECT_TRUE(slab) << bytes;
  }
}

TEST_F(SlabPools, TakeASlabBackWhenItsLastOwnerEnds) {
  const auto slab = pool->take(4 * kMiB);
  ASSERT_TRUE(slab);
  auto owner = pool->owner(*slab);
  auto another = owner;
  owner.reset();
  EXPECT_FALSE(pool->take(4 * kMiB));
  another.reset();
  EXPECT_TRUE(pool->take(4 * kMiB));
}

TEST(Sinks, AreNextAgainWhenWhatShouldLandDoesNotCome) {
  Sinks sinks;
  const Memory first{{1}, 0, 64};
  sinks.post({5}, first, nullptr);
  sinks.post({5}, {{1}, 64, 64}, nullptr);
  const auto landing = sinks.take({5}, 32);
  ASSERT_TRUE(landing);
  EXPECT_EQ(*landing, slice(first, 0, 32));
  EXPECT_TRUE(sinks.give_back(*landing));
  EXPECT_FALSE(sinks.give_back(*landing)) << "it was given back before";
  EXPECT_EQ(sinks.take({5}, 64), first);
}

TEST(Sinks, CannotBeWithdrawnWhileSomethingLandsInThem) {
  Sinks sinks;
  const auto owner = std::make_shared<const int>(1);
  sinks.post({5}, {{1}, 0, 64}, owner);
  const auto landing = sinks.take({5}, 64);
  ASSERT_TRUE(landing);
  EXPECT_EQ(sinks.withdraw({5}), 0u);
  EXPECT_FALSE(sinks.empty());
  std::shared_ptr<const void> told;
  EXPECT_TRUE(sinks.landed(*landing, told));
  EXPECT_EQ(told, owner);
  EXPECT_TRUE(sinks.empty());
}

}  // namespace
}  // namespace troupe
