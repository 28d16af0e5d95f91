#include "actors/digest_actor.hpp"

#include <gmock/gmock.h>

#include <optional>
#include <string>

#include <caf/typed_event_based_actor.hpp>

#include "actors/caf_error.hpp"
#include "tests/support/actor_world.hpp"

namespace troupe {
namespace {

TEST(DigestActor, EndsWhenARanksWeightsAreNotThoseOfRankZeroAndNamesThem) {
  test::ActorWorld world;
  std::optional<Status> ended;
  const DigestActor actor = spawn_digests(world.system(), 2, {"l1.weight", "l1.bias"});
  actor->attach_functor([&](const caf::error& reason) { ended = from_caf(reason); });
  world.send(actor, RankDigest{0, 4, {1, 2}});
  world.send(actor, RankDigest{1, 4, {1, 2}});
  world.send(actor, RankDigest{1, 5, {1, 3}});
  world.run();
  EXPECT_FALSE(ended.has_value());
  world.send(actor, RankDigest{0, 5, {1, 2}});
  world.run();
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code(), Code::device_fault);
  EXPECT_THAT(std::string{ended->text()}, ::testing::HasSubstr("after step 5 the weights of rank 1"));
  EXPECT_THAT(std::string{ended->text()}, ::testing::HasSubstr("l1.bias"));
}

}  // namespace
}  // namespace troupe
