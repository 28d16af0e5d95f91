#include "runtime/exchange/relieved_ranks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>

#include "runtime/base/random.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RelievedRanks, IsForRanksThatTakeLessThanHalfOfTheMean) {
  EXPECT_THAT(relieved_of(std::vector<std::uint32_t>{100, 100, 100, 100}), IsEmpty());
  EXPECT_THAT(relieved_of(std::vector<std::uint32_t>{112, 136, 128, 24}), ElementsAre(Rank{3}));
  EXPECT_THAT(relieved_of(std::vector<std::uint32_t>{50, 150, 100, 100}), IsEmpty());
  EXPECT_THAT(relieved_of(std::vector<std::uint32_t>{49, 151, 100, 100}), ElementsAre(Rank{0}));
  EXPECT_THAT(relieved_of(std::vector<std::uint32_t>{0, 7, 0}), ElementsAre(Rank{0}, Rank{2}));
  EXPECT_THAT(relieved_of(std::vector<std::uint32_t>{0, 0}), IsEmpty());
}

TEST(RelievedRanks, GivesEachElementToOneRankThatIsNotRelieved) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const std::uint64_t ranks = 2 + random_below(seed, 0, 6);
    std::vector<Rank> relieved;
    for (std::uint32_t r = 0; r < ranks; ++r)
      if (relieved.size() + 1 < ranks && random_below(seed, 10 + r, 2) == 0) relieved.push_back({r});
    const Rank owner{static_cast<std::uint32_t>(random_below(seed, 1, ranks))};
    const Stripe part{{}, owner, random_below(seed, 2, 1000), random_below(seed, 3, 300)};
    std::vector<std::uint32_t> taken(part.count);
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const Stripe piece = piece_of(part, {r}, ranks, relieved);
      EXPECT_EQ(piece.owner, owner);
      const bool rests = std::find(relieved.begin(), relieved.end(), Rank{r}) != relieved.end();
      EXPECT_TRUE(!rests || piece.count == 0);
      for (std::uint64_t i = 0; i < piece.count; ++i) ++taken.at(piece.first - part.first + i);
    }
    EXPECT_THAT(taken, ::testing::Each(1u)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace troupe
