#include <gmock/gmock.h>

#include <fstream>

#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

using ::testing::HasSubstr;

class Examples : public ClusterTest {
 protected:
  /// Starts one process for each rank, all with these arguments; their exit codes, and the output of rank 0.
  void run(const std::string& example, std::uint32_t ranks, const std::vector<std::string>& arguments) {
    const std::uint16_t port = free_port();
    const std::string secret = folder_.write_secret("secret", "a secret of more than sixteen letters");
    std::vector<std::unique_ptr<Program>> programs;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      ProgramStart start = ranks == 1 ? folder_.rtrun() : folder_.rank(r, ranks, "127.0.0.1", port);
      start.arguments = {std::string{EXAMPLES_FOLDER} + "/example_" + example};
      start.arguments.insert(start.arguments.end(), arguments.begin(), arguments.end());
      if (ranks > 1) start.environment.emplace_back("TROUPE_SECRET_FILE", secret);
      programs.push_back(std::make_unique<Program>(start));
    }
    for (auto& program : programs) EXPECT_EQ(program->wait(60s), 0) << program->out() << program->err();
    said_ = programs.front()->out();
  }
  static std::vector<std::string> on_the_job() { return {"app.toml", "cluster.nodes=\"local:1\""}; }

  std::string said_;
};

TEST_F(Examples, OfALoopOfTheAppsOwnTrains) {
  for (const std::uint32_t ranks : {1u, 2u}) {
    run("own_loop", ranks, on_the_job());
    EXPECT_THAT(said_, HasSubstr("step 100: loss "));
    EXPECT_THAT(said_, HasSubstr("test accuracy "));
  }
}

TEST_F(Examples, OfAModelOfTheAppsOwnLearns) {
  for (const std::uint32_t ranks : {1u, 2u}) {
    run("own_model", ranks, on_the_job());
    ASSERT_THAT(said_, HasSubstr("test accuracy "));
    EXPECT_GT(std::stod(said_.substr(said_.find("accuracy ") + 9)), 0.9);  // of labels that a bright row gives away
  }
}

TEST_F(Examples, OfTheExchangeAloneFindTheLine) {
  for (const std::uint32_t ranks : {1u, 2u}) {
    run("own_gradients", ranks, {});
    double slope = 0;
    double offset = 0;
    ASSERT_EQ(std::sscanf(said_.c_str(), "y = %lf x + %lf", &slope, &offset), 2) << said_;
    EXPECT_NEAR(slope, 3, 0.05);
    EXPECT_NEAR(offset, -1, 0.05);
  }
}

TEST_F(Examples, OfAGraphAndDataOfTheAppsOwnLearns) {
  for (const std::uint32_t ranks : {1u, 2u}) {
    for (const char* loader : {"rank", "node"}) {
      run("own_graph", ranks, {std::string{"data.loader="} + loader});
      ASSERT_THAT(said_, HasSubstr("test accuracy "));
      EXPECT_GT(std::stod(said_.substr(said_.find("accuracy ") + 9)), 0.95);
    }
  }
}

TEST_F(Examples, OfAPolicyAndACommunicatorOfTheAppsOwnExchangeAtGrowingPeriods) {
  for (const std::uint32_t ranks : {1u, 2u}) {
    std::vector<std::string> arguments = on_the_job();
    for (const char* setting : {"update.policy=local_sgd", "update.every_steps=16", "train.steps=100"})
      arguments.emplace_back(setting);
    run("own_exchange", ranks, arguments);
    // After steps 1, 3, 7, 15, 31, then every 16, and after the last.
    EXPECT_THAT(said_, HasSubstr("100 steps, 10 rounds, "));
  }
}

TEST_F(Examples, OfAPolicyOfTheAppsOwnLeaveOtherPoliciesAlone) {
  std::vector<std::string> arguments = on_the_job();
  arguments.emplace_back("train.steps=100");
  run("own_exchange", 2, arguments);
  EXPECT_THAT(said_, HasSubstr("100 steps, 100 rounds, "));
}

TEST_F(Examples, InCTrainsAndReports) {
  for (const std::uint32_t ranks : {1u, 2u}) {
    run("c_loop", ranks, on_the_job());
    EXPECT_THAT(said_, HasSubstr("step 100: loss "));
    EXPECT_THAT(said_, HasSubstr("even digits seen"));
    EXPECT_THAT(said_, HasSubstr("\"test_accuracy\""));
    EXPECT_THAT(said_, HasSubstr("\"finished\": true"));
  }
}

TEST_F(Examples, OfAnActorInAnotherProcessCallsIt) {
  run("hello", 2, {});
  EXPECT_THAT(said_, HasSubstr("says 42"));
}

TEST_F(Examples, OfSumsInAGroupWithoutASessionAddUpEveryProcess) {
  for (const std::uint32_t ranks : {1u, 3u}) {
    run("sums", ranks, {});
    const std::uint32_t sum = 999 * ranks + ranks * (ranks - 1) / 2;
    EXPECT_THAT(said_, HasSubstr("the last sum of " + std::to_string(ranks) + " processes is " + std::to_string(sum)));
    EXPECT_THAT(said_, HasSubstr("everything finished"));
  }
}

TEST_F(Examples, OfEmbeddingAreShort) {
  for (const char* name : {"hello.cpp", "sums.cpp", "own_loop.cpp", "own_model.cpp", "own_gradients.cpp", "c_loop.c"}) {
    std::ifstream source{std::string{EXAMPLE_SOURCES} + "/" + name};
    std::size_t lines = 0;
    for (std::string line; std::getline(source, line);) ++lines;
    EXPECT_GT(lines, 0u) << name;
    EXPECT_LT(lines, 60u) << name;
  }
}

}  // namespace
}  // namespace troupe::testing
