// What rtbench cannot measure is an error and not a figure.

#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

class Bench : public ClusterTest {
 protected:
  void SetUp() override {}  // one process: no ranks that talk
  ProgramStart rtbench(std::vector<std::string> arguments) const {
    ProgramStart start = folder_.rtrun();
    arguments.insert(arguments.begin(), RTBENCH_PROGRAM);
    start.arguments = std::move(arguments);
    return start;
  }
};

TEST_F(Bench, RefusesToTellASpeedFromTooFewSteps) {
  const std::string data = "data.path=\"" + (folder_.path() / "data").string() + "\"";
  Program rtbench{this->rtbench({"train", "--np", "1", "--seconds", "0.5", "--batch", "5000", "--set", data})};
  EXPECT_EQ(rtbench.wait(60s), 2) << rtbench.out();
  EXPECT_EQ(rtbench.out(), "");
  EXPECT_NE(rtbench.err().find("measured too short"), std::string::npos) << rtbench.err();
}

TEST_F(Bench, EndsWith2ForArgumentsThatItDoesNotKnow) {
  Program rtbench{this->rtbench({"train", "--such", "1"})};
  EXPECT_EQ(rtbench.wait(60s), 2) << rtbench.out();
  EXPECT_NE(rtbench.err().find("--such"), std::string::npos) << rtbench.err();
}

}  // namespace
}  // namespace troupe::testing
