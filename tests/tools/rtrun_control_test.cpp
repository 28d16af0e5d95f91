// Requests of `rtrun control`, and the thread that answers them.

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.hpp"
#include "tools/rtrun/control.hpp"
#include "tools/rtrun/control_server.hpp"

namespace troupe::rtrun {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

std::string refusal_of(std::string_view line) {
  try {
    (void)parse_control_request(line);
  } catch (const Error& error) {
    return error.what();
  }
  return "taken";
}

TEST(ControlRequest, NamesAPolicyWithItsSettings) {
  const ControlRequest request = parse_control_request("switch block_momentum block_samples=4800 nesterov=false");
  EXPECT_EQ(request.kind, ControlRequest::Kind::switch_policy);
  EXPECT_EQ(request.policy.kind, PolicyKind::block_momentum);
  EXPECT_EQ(request.policy.block_samples, 4800u);
  EXPECT_FALSE(request.policy.nesterov);
}

TEST(ControlRequest, AsksForANewViewWithOneWord) {
  EXPECT_EQ(parse_control_request("rebuild").kind, ControlRequest::Kind::rebuild);
  EXPECT_EQ(parse_control_request("machines").kind, ControlRequest::Kind::machines);
  EXPECT_THAT(refusal_of("rebuild now"), HasSubstr("\"rebuild\""));
}

TEST(ControlRequest, IsRefusedWithWhatIsWrongWithIt) {
  EXPECT_THAT(refusal_of("resume"), HasSubstr("switch POLICY"));
  EXPECT_THAT(refusal_of("stop now"), HasSubstr("switch POLICY"));
  EXPECT_THAT(refusal_of(""), HasSubstr("switch POLICY"));
  EXPECT_THAT(refusal_of("switch"), HasSubstr("switch POLICY"));
  EXPECT_THAT(refusal_of("switch lokal_sgd"), HasSubstr("lokal_sgd"));
  EXPECT_THAT(refusal_of("switch sync every_steps=8"), HasSubstr("is not used by policy = \"sync\""));
  EXPECT_THAT(refusal_of("switch local_sgd every_steps"), HasSubstr("every_steps=8"));
  EXPECT_THAT(refusal_of("switch local_sgd every_steps=many"), HasSubstr("cannot read \"many\""));
  EXPECT_THAT(refusal_of("switch local_sgd every_steps=-1"), HasSubstr("every_steps"));
  EXPECT_THAT(refusal_of("switch local_sgd every_steps=8 every_steps=9"), HasSubstr("twice"));
  EXPECT_THAT(refusal_of("switch local_sgd distributed_after=8"), HasSubstr("not a setting of a policy"));
  EXPECT_THAT(refusal_of("switch local_sgd  every_steps=8"), HasSubstr("write settings as every_steps=8"));
  EXPECT_THAT(refusal_of("stop\n"), HasSubstr("plain letters"));
  EXPECT_THAT(refusal_of(std::string(kRequestBytes + 1, 'x')), HasSubstr("at most"));
}

TEST(ControlAnswer, ReadsBackAsItWasWhateverLinesItHas) {
  const ControlAnswer given{true, "rank 0\nC:\\temp\\new\n"};
  const ControlAnswer read = parse_control_answer(to_line(given));
  EXPECT_TRUE(read.done);
  EXPECT_EQ(read.text, given.text);
  EXPECT_EQ(to_line(given).find('\n'), std::string::npos);
  EXPECT_THROW((void)parse_control_answer("maybe"), Error);
  EXPECT_THROW((void)parse_control_answer("ok \\x"), Error);
}

/// A folder, and a client that asks the run that writes into it.
class ControlTest : public ::testing::Test {
 protected:
  ControlTest() {
    std::string pattern = ::testing::TempDir() + "/troupe-control-XXXXXX";
    folder = ::mkdtemp(pattern.data());
  }
  ~ControlTest() override { std::filesystem::remove_all(folder); }
  ControlAnswer ask(const std::vector<std::string>& words) {
    return ask_run(blocking, folder, words, Deadline::after(10s));
  }
  Code code_of(const std::vector<std::string>& words) {
    try {
      (void)ask(words);
    } catch (const Error& error) {
      return error.code();
    }
    return Code::ok;
  }

  Blocking blocking = Blocking::on_thread("test");
  std::string folder;
};

TEST_F(ControlTest, AsksTheRunThatWritesIntoAFolderAndLeavesNothingThere) {
  {
    const ControlServer server{folder, [](Blocking&, const ControlRequest& request) {
                                 TROUPE_CHECK(request.kind == ControlRequest::Kind::stop, Code::invalid, "not now");
                                 return std::string{"it ends"};
                               }};
    EXPECT_EQ(ask({"stop"}).text, "it ends");
    const ControlAnswer refused = ask({"switch", "local_sgd"});
    EXPECT_FALSE(refused.done);
    EXPECT_THAT(refused.text, HasSubstr("not now"));
    EXPECT_EQ(code_of({"rest"}), Code::invalid) << "said here, the run hears nothing of it";
    EXPECT_TRUE(std::filesystem::is_empty(folder));
  }
  EXPECT_EQ(code_of({"stop"}), Code::environment) << "nobody listens any more";
}

TEST_F(ControlTest, SaysThatARunGaveNoAnswerWhenItIsKilledOrClosesFirst) {
  for (const bool reads : {false, true}) {  // what was not read is told to the other end as a broken connection
    const Fd listener = listen_for_control(folder);
    std::thread run{[&] {
      pollfd polled{listener.get(), POLLIN, 0};
      ::poll(&polled, 1, 10'000);
      const Fd connection{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
      std::array<char, 1> first{};
      ::recv(connection.get(), first.data(), 1, MSG_PEEK);  // the request is there
      std::string line;
      if (reads) {
        EXPECT_TRUE(read_line(connection, line, 100, Deadline::after(10s)));
      }
    }};
    ControlAnswer answer{.done = true, .text = {}};
    EXPECT_NO_THROW(answer = ask({"stop"}));
    run.join();
    EXPECT_FALSE(answer.done);
    EXPECT_THAT(answer.text, HasSubstr(reads ? "ended before it answered" : "gave no answer"));
  }
}

TEST_F(ControlTest, LetsOneRunListenForAFolder) {
  const auto nothing = [](Blocking&, const ControlRequest&) { return std::string{}; };
  const ControlServer server{folder, nothing};
  EXPECT_THROW((ControlServer{folder, nothing}), Error);
}

}  // namespace
}  // namespace troupe::rtrun
