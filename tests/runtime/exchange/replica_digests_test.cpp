#include "runtime/exchange/replica_digests.hpp"

#include <gmock/gmock.h>

#include <optional>
#include <string>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

using ::testing::HasSubstr;

TEST(ReplicaDigests, AreEqualOnceAllRanksHaveToldTheSame) {
  ReplicaDigests digests{3, {"l1.weight", "l1.bias"}};
  EXPECT_EQ(digests.add({0, 7, {1, 2}}), std::nullopt);
  EXPECT_EQ(digests.add({2, 7, {1, 2}}), std::nullopt);
  EXPECT_EQ(digests.add({2, 9, {5, 6}}), std::nullopt) << "a rank may be ahead";
  EXPECT_EQ(digests.count_equal(), 0u);
  EXPECT_EQ(digests.add({1, 7, {1, 2}}), std::nullopt);
  EXPECT_EQ(digests.count_equal(), 1u);
}

TEST(ReplicaDigests, NameTheFirstTensorThatDiffersAndItsRank) {
  ReplicaDigests digests{4, {"l1.weight", "l1.bias", "l2.weight"}};
  EXPECT_EQ(digests.add({3, 7, {1, 9, 9}}), std::nullopt);
  EXPECT_EQ(digests.add({2, 7, {1, 2, 8}}), std::nullopt);
  EXPECT_EQ(digests.add({1, 7, {1, 2, 3}}), std::nullopt);
  const auto wrong = digests.add({0, 7, {1, 2, 3}});
  ASSERT_TRUE(wrong.has_value());
  EXPECT_THAT(*wrong, HasSubstr("after step 7 the weights of rank 3 are not those of rank 0, first in l1.bias"));
}

TEST(ReplicaDigests, RefuseWhatIsOfAnotherModelOrToldTwice) {
  ReplicaDigests digests{2, {"l1.weight"}};
  EXPECT_THROW((void)digests.add({0, 7, {1, 2}}), Error);
  EXPECT_THROW((void)digests.add({2, 7, {1}}), Error);
  (void)digests.add({0, 7, {1}});
  EXPECT_THROW((void)digests.add({0, 7, {1}}), Error);
}

}  // namespace
}  // namespace troupe
