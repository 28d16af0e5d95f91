#include "runtime/exchange/stripes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

double cost_of(const std::vector<double>& shares, const std::vector<double>& bandwidth) {
  double worst = 0;
  for (std::size_t i = 0; i < shares.size(); ++i)
    worst = std::max(worst, (1 + (static_cast<double>(shares.size()) - 2) * shares[i]) / bandwidth[i]);
  return worst;
}

TEST(BandwidthShares, AreEqualForEqualOwners) {
  for (const double share : bandwidth_shares(std::vector<double>(5, 3.0))) EXPECT_DOUBLE_EQ(share, 0.2);
}

TEST(BandwidthShares, GiveTheFasterOwnersMore) {
  // time = 2 * 3 / 10 = 0.6; shares (0.6 b - 1) / 2.
  EXPECT_THAT(
      bandwidth_shares(std::vector<double>{2, 2, 3, 3}),
      ElementsAre(DoubleNear(0.1, 1e-12), DoubleNear(0.1, 1e-12), DoubleNear(0.4, 1e-12), DoubleNear(0.4, 1e-12)));
}

TEST(BandwidthShares, GiveNothingToAnOwnerThatIsTheSlowestAnyway) {
  EXPECT_THAT(bandwidth_shares(std::vector<double>{1, 10, 10}),
              ElementsAre(0, DoubleNear(0.5, 1e-12), DoubleNear(0.5, 1e-12)));
}

TEST(BandwidthShares, AreNeverBeatenByOthers) {
  std::mt19937_64 random{7};
  std::uniform_real_distribution<double> any{0.05, 10};
  for (int round = 0; round < 200; ++round) {
    std::vector<double> bandwidth(1 + random() % 7);
    for (double& b : bandwidth) b = any(random);
    const auto shares = bandwidth_shares(bandwidth);
    ASSERT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12);
    ASSERT_GE(*std::min_element(shares.begin(), shares.end()), 0);
    for (int other = 0; other < 200; ++other) {
      std::vector<double> tried(bandwidth.size());
      for (std::size_t i = 0; i < tried.size(); ++i) tried[i] = std::max(0.0, shares[i] + (any(random) - 5) * 0.02);
      const double sum = std::accumulate(tried.begin(), tried.end(), 0.0);
      if (sum == 0) continue;
      for (double& w : tried) w /= sum;
      ASSERT_GE(cost_of(tried, bandwidth), cost_of(shares, bandwidth) * (1 - 1e-12));
    }
  }
}

TEST(BandwidthShares, RefuseOwnersWithoutBandwidth) {
  EXPECT_THROW(bandwidth_shares(std::vector<double>{1, 0}), Error);
  EXPECT_THROW(bandwidth_shares(std::vector<double>{}), Error);
}

TEST(SharedStripes, CoverTheGroupInWholeBlocks) {
  std::mt19937_64 random{11};
  for (int round = 0; round < 200; ++round) {
    std::vector<double> shares(1 + random() % 6);
    for (double& share : shares) share = static_cast<double>(random() % 5);
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    if (sum == 0) continue;
    for (double& share : shares) share /= sum;
    const std::uint64_t count = 1 + random() % 100000;
    std::uint64_t next = 0;
    for (const Stripe& stripe : shared_stripes(GroupId{2}, count, shares)) {
      ASSERT_EQ(stripe.first, next);
      ASSERT_TRUE(stripe.first % 1024 == 0 || stripe.count == 0);
      next += stripe.count;
      ASSERT_NEAR(static_cast<double>(stripe.count), shares[stripe.owner.value] * static_cast<double>(count), 2048);
    }
    ASSERT_EQ(next, count);
  }
}

TEST(SharedStripes, AreTheEqualOnesForEqualShares) {
  const std::vector<double> shares(4, 0.25);
  EXPECT_EQ(shared_stripes(GroupId{1}, 40 * 1024, shares), equal_stripes(GroupId{1}, 40 * 1024, 4));
}

}  // namespace
}  // namespace troupe
