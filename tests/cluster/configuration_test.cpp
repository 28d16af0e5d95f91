// Errors that are found before a job starts are reported with place and cure, and no process is started.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

class Start : public ClusterTest {
 protected:
  void SetUp() override {}  // needs no ranks that talk
  /// Runs rtrun to its end and expects the exit code and `word` on stderr.
  void expect_refusal(const std::vector<std::string>& arguments, int code, const std::string& word) {
    Program rtrun{folder_.rtrun(arguments)};
    EXPECT_EQ(rtrun.wait(20s), code) << rtrun.err();
    EXPECT_TRUE(rtrun.err().starts_with("rtrun: error: ")) << rtrun.err();
    EXPECT_NE(rtrun.err().find(word), std::string::npos) << rtrun.err();
    EXPECT_EQ(rtrun.err().find("[rank"), std::string::npos) << "ranks were started: " << rtrun.err();
    EXPECT_EQ(rtrun.err().find('\n'), rtrun.err().size() - 1) << "more than one message: " << rtrun.err();
  }
};

TEST_F(Start, IsRefusedWith2ForAMistypedKey) { expect_refusal({"--set", "data.bathc=50"}, 2, "data.batch"); }

TEST_F(Start, IsRefusedWith2AndAPlaceForBrokenToml) {
  std::ofstream{folder_.path() / "app.toml", std::ios::app} << "[train\n";
  expect_refusal({}, 2, "app.toml:19:7");
}

TEST_F(Start, IsRefusedWith2ForWhatIsNotBuiltYet) {
  expect_refusal({"--set", "faults.on_loss=\"shrink\""}, 2, "shrink");
}

TEST_F(Start, IsRefusedWith2WhenTheDataAreMissing) { expect_refusal({"--set", "data.path=nowhere"}, 2, "nowhere"); }

TEST_F(Start, IsRefusedWith2WhenThePlanCannotBeMade) {
  expect_refusal({"--set", "placement.cores=1000"}, 2, "placement.cores");
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "run"));
}

TEST_F(Start, IsRefusedWith2WhenAFileIsCut) {
  std::filesystem::resize_file(folder_.path() / "data/train-images-idx3-ubyte", 1000);
  expect_refusal({}, 2, "train-images-idx3-ubyte");
}

TEST_F(Start, IsRefusedWith3WhenTheReportFolderCannotBeMade) {
  expect_refusal({"--set", "report.dir=\"app.toml/run\""}, 3, "app.toml/run");
}

TEST_F(Start, IsRefusedWith3WhenRankZerosPortIsInUse) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(fd, generic, size) | ::listen(fd, 1) | ::getsockname(fd, generic, &size), 0);
  const std::uint16_t port = ntohs(address.sin_port);
  Program rank{folder_.rank(0, 2, "127.0.0.1", port)};
  EXPECT_EQ(rank.wait(20s), 3) << rank.err();
  EXPECT_NE(rank.err().find(std::to_string(port)), std::string::npos) << rank.err();
  ::close(fd);
}

TEST_F(Start, IsRefusedWith3WhenOnlyHalfAPlaceIsGiven) {
  ProgramStart start = folder_.rtrun();
  start.environment.emplace_back("RANK", "0");
  Program rank{start};
  EXPECT_EQ(rank.wait(20s), 3) << rank.err();
  EXPECT_NE(rank.err().find("WORLD_SIZE"), std::string::npos) << rank.err();
}

TEST_F(Start, IsNotNeededToSeeTheSettingsAndTheirOrigins) {
  ProgramStart start = folder_.rtrun({"--set", "data.batch=50"});
  start.arguments.insert(start.arguments.begin() + 1, "check");
  Program check{start};
  EXPECT_EQ(check.wait(20s), 0) << check.err();
  EXPECT_NE(check.out().find("data.batch "), std::string::npos) << check.out();
  EXPECT_NE(check.out().find("# --set"), std::string::npos) << check.out();
  EXPECT_NE(check.out().find("# app.toml:2:"), std::string::npos) << check.out();
  EXPECT_NE(check.out().find("Data: "), std::string::npos) << check.out();
}

TEST_F(Start, OfVerbsThatRunNothingDrawsNoDigits) {
  for (const char* verb : {"check", "plan"}) {
    ProgramStart start = folder_.rtrun({"--set", "data.source=\"generated\""});
    start.arguments.insert(start.arguments.begin() + 1, verb);
    Program rtrun{start};
    EXPECT_EQ(rtrun.wait(20s), 0) << rtrun.err();
    EXPECT_EQ(rtrun.err(), "");
    const std::string expected = std::string{verb} == "check" ? "to be drawn into" : "60,000 training";
    EXPECT_NE(rtrun.out().find(expected), std::string::npos) << rtrun.out();
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path() / "tmp"));
  }
}

TEST_F(Start, IsNotNeededToSeeThePlan) {
  ProgramStart start = folder_.rtrun();
  start.arguments.insert(start.arguments.begin() + 1, "plan");
  Program plan{start};
  EXPECT_EQ(plan.wait(20s), 0) << plan.err();
  EXPECT_NE(plan.out().find("rank"), std::string::npos) << plan.out();
}

}  // namespace
}  // namespace troupe::testing
