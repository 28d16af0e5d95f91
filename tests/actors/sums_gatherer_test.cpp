#include "actors/sums_gatherer.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include <caf/typed_event_based_actor.hpp>

#include "tests/support/actor_world.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SumsGathererTest : public ::testing::Test {
 protected:
  SumsGathererTest() {
    commits = world.listener<CommitReceiver, Committed>(
        [this](const Committed& c) { news.push_back(text("step ", c.step.value, " of ", c.total.samples)); });
    tests = world.listener<TestReceiver, TestResult>(
        [this](const TestResult& t) { news.push_back(text("test after ", t.step.value)); });
    ends = world.listener<FinishReceiver, DeviceFinished>([this](const DeviceFinished&) { news.emplace_back("end"); });
    gatherer = spawn_sums_gatherer(world.system(), {1}, 2, {5}, {{commits}, {tests}, {ends}});
  }
  ~SumsGathererTest() override {
    caf::anon_send_exit(gatherer, caf::exit_reason::kill);
    caf::anon_send_exit(commits, caf::exit_reason::kill);
    caf::anon_send_exit(tests, caf::exit_reason::kill);
    caf::anon_send_exit(ends, caf::exit_reason::kill);
    world.run();
  }
  template <class Message>
  void tell(Message message) {
    world.send(gatherer, std::move(message));
    world.run();
  }

  test::ActorWorld world;
  CommitReceiver commits;
  TestReceiver tests;
  FinishReceiver ends;
  SumsGatherer gatherer;
  std::vector<std::string> news;
};

TEST_F(SumsGathererTest, TellsOfAStepOnceAllRanksHaveCommittedIt) {
  tell(RankSums{0, 5, 0, 0, 10});
  tell(RankSums{0, 6, 0, 0, 10});
  EXPECT_THAT(news, IsEmpty());
  tell(RankSums{1, 5, 0, 0, 30});
  EXPECT_THAT(news, ElementsAre("step 5 of 40"));
}

TEST_F(SumsGathererTest, TellsATestResultAndTheEndBehindTheirSteps) {
  tell(RankSums{0, 5, 0, 0, 10});
  tell(TestResult{{5}, {}});
  tell(DeviceFinished{});
  EXPECT_THAT(news, IsEmpty());
  tell(RankSums{1, 5, 0, 0, 10});
  EXPECT_THAT(news, ElementsAre("step 5 of 20", "test after 5", "end"));
}

}  // namespace
}  // namespace troupe
