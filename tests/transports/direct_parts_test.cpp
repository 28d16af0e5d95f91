// The parts of the direct communicator, one by one.

#include <gtest/gtest.h>

#include <deque>

#include "runtime/base/random.hpp"
#include "transports/collectives/detail/call_order.hpp"
#include "transports/collectives/detail/ownership.hpp"
#include "transports/collectives/detail/send_queue.hpp"
#include "transports/collectives/detail/staging.hpp"
#include "transports/loopback/loopback_transport.hpp"

namespace troupe::collectives {
namespace {

class SendQueueTest : public ::testing::Test {
 protected:
  SendQueueTest() {
    posted_ = std::make_unique<SendQueue>(loop_, 3, [this](SendQueue::Message& message) {
      if (has_room_) sent_.push_back(&message);
      return has_room_;
    });
  }
  SendQueue::Message& add(std::uint32_t to, std::uint64_t bytes, Urgency urgency) {
    messages_.push_back({.to = to, .size_bytes = bytes, .handed_over = {}});
    queue().add(messages_.back(), urgency);
    return messages_.back();
  }

  SendQueue& queue() { return *posted_; }

  std::unique_ptr<SendQueue> posted_;  // outlives the lane that it posts itself to
  LoopbackNetwork network_;
  AddressSpace space_;
  std::unique_ptr<Transport> transport_ = network_.endpoint(Peer{0}, space_);
  LaneLoop loop_{*transport_, Lane::bulk, {}, "bulk"};  // never started: the test is the lane
  std::deque<SendQueue::Message> messages_;
  std::vector<const SendQueue::Message*> sent_;
  bool has_room_ = true;
};

TEST_F(SendQueueTest, SendsContributionsBeforeResultsAndWhatIsReadFirstBeforeTheRest) {
  // So large that only one is in flight at a time.
  const std::uint64_t large = queue().bytes_ahead();
  const auto& first = add(1, large, {.kind = 1, .bucket = 0});
  queue().run();
  const auto& result = add(1, large, {.kind = 1, .bucket = 0});
  const auto& later = add(1, large, {.kind = 0, .bucket = 5});
  const auto& sooner = add(1, large, {.kind = 0, .bucket = 2});
  const auto& after_that = add(1, large, {.kind = 0, .bucket = 2});
  for (std::size_t i = 0; i < 5; ++i) {
    queue().run();
    ASSERT_EQ(sent_.size(), i + 1);
    queue().sent(*sent_.back());
  }
  EXPECT_EQ(sent_, (std::vector<const SendQueue::Message*>{&first, &sooner, &after_that, &later, &result}));
}

TEST_F(SendQueueTest, SendsTheResultsOfAStepBeforeTheContributionsToTheNext) {
  const std::uint64_t large = queue().bytes_ahead();
  const auto& first = add(1, large, {.step = 7});
  queue().run();
  const auto& next = add(1, large, {.step = 8, .kind = 0, .bucket = 0});
  const auto& result = add(1, large, {.step = 7, .kind = 1, .bucket = 3});
  for (std::size_t i = 0; i < 3; ++i) {
    queue().run();
    ASSERT_EQ(sent_.size(), i + 1);
    queue().sent(*sent_.back());
  }
  EXPECT_EQ(sent_, (std::vector<const SendQueue::Message*>{&first, &result, &next}));
}

TEST_F(SendQueueTest, HasOneMessageOnItsWayToEveryRankAndMoreOnlyAsFarAsTheWindowGoes) {
  const std::uint64_t half = queue().bytes_ahead() / 2;
  for (int i = 0; i < 3; ++i) add(1, half, {});
  queue().run();
  EXPECT_EQ(sent_.size(), 2U);
  add(2, half, {});
  queue().run();
  ASSERT_EQ(sent_.size(), 3U);
  EXPECT_EQ(sent_.back()->to, 2U) << "a rank waits behind another one's messages";
}

TEST_F(SendQueueTest, KeepsAMessageForWhichTheTransportHasNoSpace) {
  const auto& one = add(1, 100, {});
  has_room_ = false;
  queue().run();
  EXPECT_TRUE(sent_.empty());
  has_room_ = true;
  queue().run();
  EXPECT_EQ(sent_, std::vector<const SendQueue::Message*>{&one});
}

TEST_F(SendQueueTest, TakesLessAheadWhenMessagesTakeLongAndMoreWhenTheyDoNot) {
  const auto send_with_delay = [&](std::chrono::milliseconds delay) {
    SendQueue::Message& message = add(1, 64 << 10, {});
    add(1, 64 << 10, {});  // waits, so that the window is what holds it back
    queue().run();
    message.handed_over = Clock::now() - delay;
    queue().sent(message);
  };
  const std::uint64_t before = queue().bytes_ahead();
  for (int i = 0; i < 200; ++i) send_with_delay(SendQueue::kTarget * 3);
  EXPECT_EQ(queue().bytes_ahead(), SendQueue::kFewestAhead);
  EXPECT_LT(queue().bytes_ahead(), before);
}

RoundShape call(std::uint64_t number, std::uint64_t step, std::uint32_t bucket) {
  return {.sequence = 1, .call = number, .step = step, .bucket = bucket};
}

TEST(CallOrder, AgreesAsLongAsAllRanksMakeTheSameCalls) {
  CallOrder order{8};
  for (std::uint64_t number = 1; number <= 100; ++number)
    for (std::uint32_t rank = 0; rank < 3; ++rank)
      EXPECT_TRUE(order.agree(Rank{rank}, call(number, number / 2, number % 2)).ok());
}

TEST(CallOrder, NamesBothRanksThatMakeDifferentCalls) {
  CallOrder order{8};
  EXPECT_TRUE(order.agree(Rank{0}, call(5, 2, 0)).ok());
  const Status status = order.agree(Rank{3}, call(5, 2, 1));
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_NE(status.text().find("rank 3 is at step 2 bucket 1, rank 0 at step 2 bucket 0"), std::string_view::npos)
      << status.text();
}

TEST(CallOrder, ForgetsCallsThatAreLongOver) {
  CallOrder order{4};
  EXPECT_TRUE(order.agree(Rank{0}, call(9, 4, 0)).ok());
  EXPECT_TRUE(order.agree(Rank{1}, call(5, 1, 1)).ok());
}

struct Cut {
  std::vector<Stripe> stripes;
  std::vector<Bucket> buckets;
};

Cut cut_each_bucket(std::uint64_t seed, std::uint32_t ranks) {
  Cut cut;
  std::uint64_t first = 0;
  for (std::uint32_t b = 0; b < 3; ++b) {
    const std::uint64_t count = Layout::kAlignElements * (1 + random_below(seed, b, 600));
    cut.buckets.push_back({GroupId{}, b, first, count});
    for (Stripe stripe : equal_stripes(GroupId{}, count, ranks)) {
      stripe.first += first;
      cut.stripes.push_back(stripe);
    }
    first += count;
  }
  return cut;
}

TEST(Ownership, GivesEveryElementOfAChunkToOneRank) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Cut cut = cut_each_bucket(seed, 3);
    const Ownership ownership(cut.stripes, cut.buckets, 3, 512);
    for (const Chunk& chunk : ownership.chunks()) {
      std::uint64_t next = chunk.first;
      for (std::uint32_t rank = 0; rank < 3; ++rank) {
        const ElementRange part = ownership.part_of(chunk, rank);
        if (part.count == 0) continue;
        EXPECT_EQ(part.first, next);
        EXPECT_LE(part.count, ownership.largest_part());
        next += part.count;
      }
      EXPECT_EQ(next, chunk.first + chunk.count);
    }
  }
}

TEST(Ownership, RefusesElementsWithoutAnOwnerOrWithTwo) {
  const std::vector<Bucket> buckets{{GroupId{}, 0, 0, 64}};
  const auto made_of = [&](std::vector<Stripe> stripes) { return Ownership(stripes, buckets, 2, 64); };
  EXPECT_NO_THROW(made_of({{GroupId{}, Rank{0}, 0, 32}, {GroupId{}, Rank{1}, 32, 32}}));
  EXPECT_THROW(made_of({{GroupId{}, Rank{0}, 0, 32}}), Error);
  EXPECT_THROW(made_of({{GroupId{}, Rank{0}, 0, 64}, {GroupId{}, Rank{1}, 32, 32}}), Error);
  EXPECT_THROW(made_of({{GroupId{}, Rank{0}, 0, 32}, {GroupId{}, Rank{0}, 32, 32}}), Error);
  EXPECT_THROW(made_of({{GroupId{}, Rank{0}, 0, 32}, {GroupId{}, Rank{2}, 32, 32}}), Error);
}

TEST(Staging, HasAPlaceOfItsOwnForEverythingThatMayBeThereAtOnce) {
  const Cut cut = cut_each_bucket(3, 3);
  const Ownership ownership(cut.stripes, cut.buckets, 3, 512);
  for (std::uint32_t self = 0; self < 3; ++self) {
    Staging staging(ownership, self, {.packed_bytes = 2, .device_memory = true, .half = true});
    const Memory memory{ArenaId{9}, 4096, staging.size_bytes()};
    staging.place(memory);
    std::vector<Memory> all;
    for (std::size_t channel = 0; channel < staging.count_channels(); ++channel)
      for (std::uint64_t sequence : {4, 5}) {
        for (std::uint32_t rank = 0; rank < 3; ++rank) all.push_back(staging.sums(channel, sequence, rank));
        all.push_back(staging.total(channel, sequence));
      }
    for (std::uint32_t rank = 0; rank < 3; ++rank)
      if (rank != self) all.push_back(staging.reduced(rank, ownership.largest_part()));
    for (std::uint32_t rank = 0; rank < 3; ++rank)
      all.push_back(staging.plain(rank, ownership.largest_part() * sizeof(float)));
    for (const Chunk& chunk : ownership.chunks()) {
      const ElementRange whole{chunk.first, chunk.count};
      for (const Memory& each : {staging.leaving(chunk.bucket, whole), staging.results(whole), staging.image(whole)})
        all.push_back(each);
      for (std::uint32_t rank = 0; rank < 3; ++rank) {
        const ElementRange own = ownership.part_of(chunk, self);
        if (rank == self || own.count == 0) continue;
        all.push_back(staging.contribution(chunk.bucket, rank, own));
      }
    }
    std::uint64_t largest = 0;
    for (std::uint32_t b = 0; b < ownership.count_buckets(); ++b)
      largest = std::max(largest, ownership.part_of(b, self).count);
    all.push_back(staging.summed(largest));
    all.push_back(staging.unpacked(largest));
    std::sort(all.begin(), all.end(), [](const Memory& a, const Memory& b) { return a.offset < b.offset; });
    std::uint64_t end = memory.offset;
    for (const Memory& each : all) {
      ASSERT_GE(each.offset, end);
      end = each.offset + each.size_bytes;
    }
    EXPECT_LE(end, memory.offset + memory.size_bytes);
  }
}

}  // namespace
}  // namespace troupe::collectives
