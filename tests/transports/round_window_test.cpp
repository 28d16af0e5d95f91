#include "transports/collectives/detail/round_window.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "runtime/base/random.hpp"

namespace troupe::collectives {
namespace {

RoundShape round(std::uint64_t sequence) { return {.sequence = sequence, .step = sequence, .elements = 100}; }

/// One peer contributes, and sends a result.
constexpr RoundWindow::Expected kOneOfEach{.contributions = 1, .results = 1};

class RoundWindowTest : public ::testing::Test {
 protected:
  void whole_message(std::uint64_t sequence, PayloadKind payload_kind) {
    const Status status = window_.enter(1, round(sequence), payload_kind);
    EXPECT_TRUE(status.ok()) << status.text();
    window_.arrived(sequence, payload_kind);
  }
  void whole_round(std::uint64_t sequence) {
    ASSERT_TRUE(window_.announce(round(sequence), kOneOfEach).ok());
    window_.contributions_sent(sequence);
    whole_message(sequence, PayloadKind::contribution);
    whole_message(sequence, PayloadKind::result);
  }
  const std::array<Rank, 2> names_{Rank{0}, Rank{1}};
  RoundWindow window_{0, names_};
};

TEST_F(RoundWindowTest, CountsARoundAsGatheredWhenAllContributionsAreThere) {
  whole_message(1, PayloadKind::contribution);
  EXPECT_EQ(window_.gathered(), 0u) << "this rank has not come so far";
  ASSERT_TRUE(window_.announce(round(1), kOneOfEach).ok());
  EXPECT_EQ(window_.gathered(), 1u);
  EXPECT_EQ(window_.published(), 0u);
}

TEST_F(RoundWindowTest, CountsARoundAsPublishedWhenResultsAreThereAndItsOwnGradientsAreRead) {
  ASSERT_TRUE(window_.announce(round(1), kOneOfEach).ok());
  whole_message(1, PayloadKind::result);
  EXPECT_EQ(window_.published(), 0u);
  window_.contributions_sent(1);
  EXPECT_EQ(window_.published(), 1u);
}

TEST_F(RoundWindowTest, TakesContributionsOfTheNextRoundBeforeThisOneIsOver) {
  ASSERT_TRUE(window_.announce(round(1), kOneOfEach).ok());
  whole_message(2, PayloadKind::contribution);
  EXPECT_EQ(window_.gathered(), 0u);
  window_.contributions_sent(1);
  whole_message(1, PayloadKind::result);
  whole_message(1, PayloadKind::contribution);
  EXPECT_EQ(window_.gathered(), 1u);
  ASSERT_TRUE(window_.announce(round(2), kOneOfEach).ok());
  EXPECT_EQ(window_.gathered(), 2u);
}

TEST_F(RoundWindowTest, GoesOnForManyRounds) {
  for (std::uint64_t sequence = 1; sequence <= 100; ++sequence) {
    whole_round(sequence);
    EXPECT_EQ(window_.gathered(), sequence);
    EXPECT_EQ(window_.published(), sequence);
  }
}

TEST_F(RoundWindowTest, HoldsTheNextUpdateBackUntilTheResultsOfTheLastAreOut) {
  ASSERT_TRUE(window_.announce(round(1), kOneOfEach).ok());
  whole_message(1, PayloadKind::contribution);
  window_.results_leave();
  window_.contributions_sent(1);
  whole_message(1, PayloadKind::result);
  EXPECT_EQ(window_.published(), 1u) << "the step itself need not wait for that";
  ASSERT_TRUE(window_.announce(round(2), kOneOfEach).ok());
  whole_message(2, PayloadKind::contribution);
  EXPECT_EQ(window_.gathered(), 1u);
  window_.results_sent(1);
  EXPECT_EQ(window_.gathered(), 2u);
}

TEST_F(RoundWindowTest, HoldsARoundBackUntilItsOwnResultsAreOutWhereTheirMemoryIsGivenBack) {
  ASSERT_TRUE(window_.announce(round(1), {.contributions = 1, .results = 0, .own_results_first = true}).ok());
  window_.contributions_sent(1);
  whole_message(1, PayloadKind::contribution);
  window_.results_leave();
  EXPECT_EQ(window_.published(), 0u);
  window_.results_sent(1);
  EXPECT_EQ(window_.published(), 1u);
}

TEST_F(RoundWindowTest, RefusesARoundThatCannotHaveBegun) {
  EXPECT_EQ(window_.enter(1, round(3), PayloadKind::contribution).code(), Code::corrupt);
  EXPECT_EQ(window_.enter(1, round(0), PayloadKind::contribution).code(), Code::corrupt);
  whole_round(1);
  EXPECT_EQ(window_.enter(1, round(1), PayloadKind::contribution).code(), Code::corrupt) << "a round that is over";
}

TEST_F(RoundWindowTest, RefusesAMessageThatCameBefore) {
  whole_message(1, PayloadKind::contribution);
  EXPECT_EQ(window_.enter(1, round(1), PayloadKind::contribution).code(), Code::corrupt);
}

TEST_F(RoundWindowTest, RefusesAResultOfWhatItHasNotContributedTo) {
  EXPECT_EQ(window_.enter(1, round(1), PayloadKind::result).code(), Code::corrupt);
}

TEST_F(RoundWindowTest, NamesBothRanksThatDisagree) {
  ASSERT_TRUE(window_.announce(round(1), kOneOfEach).ok());
  RoundShape other = round(1);
  other.bucket = 2;
  const Status status = window_.enter(1, other, PayloadKind::contribution);
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_NE(status.text().find("rank 1 is at step 1 bucket 2"), std::string_view::npos) << status.text();
  EXPECT_NE(status.text().find("rank 0 at step 1 bucket 0"), std::string_view::npos) << status.text();
}

TEST_F(RoundWindowTest, TellsWhatDiffersWhenStepAndBucketAreTheSame) {
  ASSERT_TRUE(window_.announce(round(1), kOneOfEach).ok());
  RoundShape other = round(1);
  other.elements = 99;
  const Status status = window_.enter(1, other, PayloadKind::contribution);
  EXPECT_NE(status.text().find("of 99"), std::string_view::npos) << status.text();
  EXPECT_NE(status.text().find("of 100"), std::string_view::npos) << status.text();
}

TEST(DirectHead, IsReadAsItWasWritten) {
  DirectHead head;
  head.payload_kind = PayloadKind::half_result;
  head.view = 7;
  head.rank = 3;
  head.round = {.sequence = 1ull << 40,
                .call = 1ull << 41,
                .step = 9,
                .elements = 12345,
                .bucket = 2,
                .chunk = 7,
                .plain = PlainOperation::none,
                .sums = true};
  head.sums = {.loss = 1.5, .correct = 2, .samples = 3, .stop_requests = 1};
  const auto read = decode(encode(head));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->payload_kind, head.payload_kind);
  EXPECT_EQ(read->view, head.view);
  EXPECT_EQ(read->rank, head.rank);
  EXPECT_EQ(read->round, head.round);
  EXPECT_EQ(std::memcmp(&read->sums, &head.sums, sizeof head.sums), 0);
}

TEST(DirectHead, TellsWhyARankHasEnded) {
  const auto bytes = encode(AbortNotice{7, 3, {Code::device_fault, "the loader broke"}});
  EXPECT_FALSE(decode(bytes));
  const auto read = decode_abort_notice(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->view, 7u);
  EXPECT_EQ(read->rank, 3u);
  EXPECT_EQ(read->why.code(), Code::device_fault);
  EXPECT_EQ(read->why.text(), "the loader broke");
  EXPECT_FALSE(decode_abort_notice(std::span{bytes}.first(kDirectHeadBytes - 1)));
  EXPECT_FALSE(decode_abort_notice(encode(DirectHead{})));
  EXPECT_LT(encode(AbortNotice{7, 3, {Code::invalid, std::string(10000, 'x')}}).size(), 1000u);
}

TEST(DirectHead, IsNothingWhenTheBytesAreNotOne) {
  const auto good = encode(DirectHead{});
  EXPECT_TRUE(decode(good));
  for (std::size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(decode(std::span{good}.first(size)));
  auto longer = std::vector<std::byte>(good.begin(), good.end());
  longer.push_back({});
  EXPECT_FALSE(decode(longer));
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    auto noise = good;
    for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<std::byte>(random_bits(seed, i));
    EXPECT_FALSE(decode(noise)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace troupe::collectives
