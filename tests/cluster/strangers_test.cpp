// Processes on the network that do not belong to the job, and find the ports of UCX.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/base/fd.hpp"
#include "tests/cluster/job_folder.hpp"
#include "tests/support/network.hpp"

namespace troupe::testing {
namespace {

/// TCP sockets that listen in the network namespace of a process.
std::vector<sockaddr_in> listening_beside(pid_t process) {
  std::ifstream file{text("/proc/", process, "/net/tcp")};
  std::string line;
  std::getline(file, line);  // the header
  std::vector<sockaddr_in> found;
  while (std::getline(file, line)) {
    std::istringstream fields{line};
    std::string slot, local, remote, state;
    fields >> slot >> local >> remote >> state;
    if (state != "0A") continue;
    sockaddr_in& address = found.emplace_back();
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = static_cast<in_addr_t>(std::stoul(local.substr(0, 8), nullptr, 16));  // as in memory
    address.sin_port = htons(static_cast<in_port_t>(std::stoul(local.substr(9), nullptr, 16)));
  }
  return found;
}

std::string text_of(const sockaddr_in& address) {
  return text(inet_ntoa(address.sin_addr), ":", ntohs(address.sin_port));
}

/// Sends UCX's magic number and rubbish to each address from a network namespace, and says how each connection came
/// out: "connected", "no answer" after a second, or the error.
std::vector<std::string> send_rubbish(const std::string& name_space, const std::vector<sockaddr_in>& to) {
  std::vector<std::string> outcomes;
  std::thread stranger([&] {  // a thread may be in a network namespace of its own
    const Fd there{::open(name_space.c_str(), O_RDONLY | O_CLOEXEC)};
    if (::setns(there.get(), CLONE_NEWNET) != 0) return;
    std::vector<Fd> sockets;
    std::vector<pollfd> polls;
    for (const sockaddr_in& address : to) {
      sockets.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      ::connect(sockets.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
      polls.push_back({sockets.back().get(), POLLOUT, 0});
    }
    const Deadline deadline = Deadline::after(1s);
    while (!deadline.passed() && std::any_of(polls.begin(), polls.end(), [](const pollfd& p) { return p.fd >= 0; })) {
      ::poll(polls.data(), polls.size(), 50);
      for (pollfd& each : polls) {
        if (each.revents != 0) each.fd = ~each.fd;
      }
    }
    for (std::size_t i = 0; i < to.size(); ++i) {
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(sockets[i].get(), SOL_SOCKET, SO_ERROR, &error, &size);
      outcomes.push_back(polls[i].fd >= 0 ? "no answer" : error == 0 ? "connected" : std::strerror(error));
      const std::uint64_t magic = 0xCAFEBABE12345678;
      std::string rubbish(reinterpret_cast<const char*>(&magic), sizeof magic);
      rubbish.append(200, '\x55');
      ::send(sockets[i].get(), rubbish.data(), rubbish.size(), MSG_NOSIGNAL);
    }
    for (const Fd& socket : sockets) ::shutdown(socket.get(), SHUT_WR);
  });
  stranger.join();
  return outcomes;
}

class Strangers : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (IsSkipped()) return;
    if (const std::string reason = why_no_namespaces(); !reason.empty()) GTEST_SKIP() << reason;
    cluster_ = std::make_unique<NamespaceCluster>(3);
    secret_ = folder_.write_secret("secret", "open sesame");
  }
  std::unique_ptr<Program> start(std::uint32_t rank, const std::vector<std::string>& arguments,
                                 const std::string& devices = {}) const {
    ProgramStart start = folder_.rank(rank, 2, cluster_->address(0), 29500);
    start.environment.emplace_back("TROUPE_SECRET_FILE", secret_);
    if (devices.empty()) {
      start.unset.emplace_back("UCX_NET_DEVICES");
    } else {
      start.environment.emplace_back("UCX_NET_DEVICES", devices);
    }
    start.arguments.insert(start.arguments.end(), arguments.begin(), arguments.end());
    start.run_by(cluster_->enter(rank));
    return std::make_unique<Program>(start);
  }
  std::unique_ptr<NamespaceCluster> cluster_;
  std::string secret_;
};

std::size_t rows(const Program& program) {
  return static_cast<std::size_t>(std::count(program.out().begin(), program.out().end(), '\n'));
}

TEST_F(Strangers, GetNoAnswerFromUcxAndTheJobGoesOn) {
  const auto second = start(1, JobFolder::endless());
  const auto first = start(0, JobFolder::endless());
  ASSERT_TRUE(first->wait_until(trains, 30s)) << first->out() << first->err() << second->err();
  std::vector<sockaddr_in> ports = listening_beside(first->pid());
  const std::vector<sockaddr_in> others = listening_beside(second->pid());
  ports.insert(ports.end(), others.begin(), others.end());
  std::erase_if(ports, [](const sockaddr_in& port) { return port.sin_addr.s_addr == htonl(INADDR_LOOPBACK); });
  EXPECT_GE(ports.size(), 4u) << "two lanes of two ranks";
  const std::vector<std::string> outcomes = send_rubbish(cluster_->file(2), ports);
  ASSERT_EQ(outcomes.size(), ports.size()) << "the stranger could not enter its network namespace";
  for (std::size_t i = 0; i < ports.size(); ++i) EXPECT_EQ(outcomes[i], "no answer") << text_of(ports[i]);
  const std::size_t before = rows(*first);
  EXPECT_TRUE(first->wait_until([&](const Program& program) { return rows(program) > before + 1; }, 30s))
      << first->out() << first->err() << second->err();
}

TEST_F(Strangers, OnTheSameHostGetNoAnswerEither) {
  const auto second = start(1, JobFolder::endless());
  const auto first = start(0, JobFolder::endless());
  ASSERT_TRUE(first->wait_until(trains, 30s)) << first->out() << first->err() << second->err();
  const std::vector<sockaddr_in> ports = listening_beside(first->pid());
  const std::vector<std::string> outcomes = send_rubbish(cluster_->file(0), ports);
  ASSERT_EQ(outcomes.size(), ports.size()) << "the stranger could not enter its network namespace";
  EXPECT_GE(ports.size(), 2u);
  for (std::size_t i = 0; i < ports.size(); ++i) EXPECT_EQ(outcomes[i], "no answer") << text_of(ports[i]);
  const std::size_t before = rows(*first);
  EXPECT_TRUE(first->wait_until([&](const Program& program) { return rows(program) > before + 1; }, 30s))
      << first->out() << first->err() << second->err();
}

TEST_F(Strangers, AreNoneOfTheRanksThatHaveTwoInterfaces) {
  cluster_->join_again(0, 1);
  for (const char* devices : {"", "eth1"}) {  // they meet over eth0
    const auto second = start(1, {}, devices);
    const auto first = start(0, {}, devices);
    EXPECT_EQ(first->wait(60s), 0) << devices << ": " << first->err();
    EXPECT_EQ(second->wait(10s), 0) << devices << ": " << second->err();
  }
}

}  // namespace
}  // namespace troupe::testing
