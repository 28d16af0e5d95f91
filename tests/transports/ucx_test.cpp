#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/contracts/transport_contract.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::testing {
namespace {

class UcxHome final : public TransportHome {
 public:
  explicit UcxHome(UcxOptions options) : options_(std::move(options)) {}
  std::unique_ptr<Transport> make(Peer self, AddressSpace& space) override {
    options_.self = self;
    return make_ucx_transport(space, options_);
  }

 private:
  UcxOptions options_;
};

TransportCase ucx(std::string name, UcxOptions options) {
  options.flush = std::chrono::milliseconds{50};  // both ends have one thread: the other does not move meanwhile
  return {std::move(name), [=] { return std::make_unique<UcxHome>(options); }};
}

/// Of the processes of a contract test, which are all here.
std::vector<ProcessLocation> loopback_hosts() {
  return std::vector<ProcessLocation>(8, {{"boot", 1}, 1, {"127.0.0.1"}});
}

INSTANTIATE_TEST_SUITE_P(
    Ucx, TransportContract,
    ::testing::Values(ucx("Shm", {.means = UcxMeans::shm, .bulk_errors = UcxPeerErrors::silent}),
                      ucx("ShmTold", {.means = UcxMeans::shm}),
                      ucx("Tcp", {.means = UcxMeans::tcp, .network_devices = "lo"}),
                      ucx("TcpFromItsHosts",
                          {.means = UcxMeans::tcp, .hosts = loopback_hosts(), .network_devices = "lo"}),
                      ucx("SmallChunks", {.means = UcxMeans::shm, .max_messages = 16, .chunk_bytes = 10'000})),
    TransportCase::name_of);

UcxOptions shm(std::uint32_t self) { return {.self = Peer{self}, .means = UcxMeans::shm}; }

class Ucx : public ::testing::Test {
 protected:
  TransportNode::Make make(UcxOptions options) {
    return [options](Peer self, AddressSpace& space) mutable {
      options.self = self;
      return make_ucx_transport(space, options);
    };
  }
};

TEST_F(Ucx, IsThereAndTellsItsVersion) {
  EXPECT_TRUE(ucx_available());
  const std::string version = ucx_version();
  EXPECT_GE(std::count(version.begin(), version.end(), '.'), 2) << version;
}

TEST_F(Ucx, RefusesSendsOverItsBoundOfMessages) {
  std::deque<NotedSend> sends(11);  // outlive the transports
  TransportNode alice{Peer{0}, make({.means = UcxMeans::shm, .max_messages = 10})};
  TransportNode bob{Peer{1}, make({.means = UcxMeans::shm, .max_messages = 10})};
  alice.connect(bob);
  const Memory payload = alice.prepare(1, 100'000);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(alice.send(bob.self, Lane::bulk, 1, payload, sends[std::size_t(i)]));
  EXPECT_FALSE(alice.send(bob.self, Lane::bulk, 1, payload, sends[10]));
  EXPECT_EQ(sends[10].times(), 0);
}

TEST_F(Ucx, BoundsTheControlClassApartFromTheBulkClass) {
  std::deque<NotedSend> sends(4);  // outlive the transports
  TransportNode alice{Peer{0}, make({.means = UcxMeans::shm, .max_messages = 2})};
  TransportNode bob{Peer{1}, make({.means = UcxMeans::shm, .max_messages = 2})};
  alice.connect(bob);
  const Memory payload = alice.prepare(1, 100'000);
  EXPECT_TRUE(alice.send(bob.self, Lane::bulk, 1, payload, sends[0]));
  EXPECT_TRUE(alice.send(bob.self, Lane::bulk, 1, payload, sends[1]));
  EXPECT_FALSE(alice.send(bob.self, Lane::bulk, 1, payload, sends[2]));
  EXPECT_TRUE(
      alice.transport->send(bob.self, Lane::bulk, Class::control, Channel::actors, make_head(1, 0), {}, sends[3]));
}

TEST_F(Ucx, LetsOneMessageOverTheBoundOfBytesPassAlone) {
  std::deque<NotedSend> sends(2);  // outlive the transports
  const UcxOptions options{.means = UcxMeans::shm, .max_bytes = 1000};
  TransportNode alice{Peer{0}, make(options)};
  TransportNode bob{Peer{1}, make(options)};
  alice.connect(bob);
  const Memory payload = alice.prepare(1, 100'000);
  EXPECT_TRUE(alice.send(bob.self, Lane::bulk, 1, payload, sends[0]));
  EXPECT_FALSE(alice.send(bob.self, Lane::bulk, 1, payload, sends[1]));
}

TEST_F(Ucx, RefusesAPeerThatUsesOtherTransports) {
  AddressSpace space;
  const auto here = make_ucx_transport(space, shm(0));
  const auto there = make_ucx_transport(space, {.self = Peer{1}, .means = UcxMeans::tcp, .network_devices = "lo"});
  try {
    here->connect(Peer{1}, there->address());
    ADD_FAILURE() << "connected";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::environment);
    EXPECT_NE(std::string{error.what()}.find("tcp"), std::string::npos) << error.what();
  }
}

TEST_F(Ucx, RefusesItsOwnAddressAndASecondOneForAPeer) {
  AddressSpace space;
  const auto here = make_ucx_transport(space, shm(0));
  const auto there = make_ucx_transport(space, shm(1));
  const auto other = make_ucx_transport(space, shm(1));
  EXPECT_THROW(here->connect(Peer{0}, here->address()), Error);
  EXPECT_THROW(here->connect(Peer{2}, there->address()), Error);
  here->connect(Peer{1}, there->address());
  here->connect(Peer{1}, there->address());
  EXPECT_THROW(here->connect(Peer{1}, other->address()), Error);
}

TEST_F(Ucx, NamesANetworkDeviceThatIsNotThere) {
  AddressSpace space;
  try {
    make_ucx_transport(space, {.means = UcxMeans::tcp, .network_devices = "lo,nosuchdev0"});
    ADD_FAILURE() << "made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::environment);
    EXPECT_NE(std::string{error.what()}.find("nosuchdev0"), std::string::npos) << error.what();
  }
}

/// System V segments that this process has made and that are still there.
std::vector<std::string> own_segments() {
  std::ifstream table{"/proc/sysvipc/shm"};
  std::string line;
  std::getline(table, line);  // the header
  std::vector<std::string> found;
  while (std::getline(table, line)) {
    std::istringstream fields{line};
    std::string key, id, mode, size;
    pid_t creator = 0;
    fields >> key >> id >> mode >> size >> creator;
    if (creator == ::getpid()) found.push_back(line);
  }
  return found;
}

TEST_F(Ucx, KeepsNoMessagesInSystemVSegmentsWhenItChoosesItsTransports) {
  TransportNode alice{Peer{0}, make({})};
  TransportNode bob{Peer{1}, make({})};
  alice.connect(bob);
  EXPECT_THAT(own_segments(), ::testing::IsEmpty());
}

TEST_F(Ucx, LeavesSystemVSegmentsToTheProgram) {
  const int segment = ::shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
  ASSERT_GE(segment, 0);
  EXPECT_THAT(own_segments(), ::testing::SizeIs(1));
  EXPECT_EQ(::shmctl(segment, IPC_RMID, nullptr), 0);
}

/// Ports at which this process listens for TCP.
std::size_t count_tcp_listeners() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    const int fd = std::stoi(entry.path().filename());
    int listens = 0;
    int protocol = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    if (::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP) ++count;
  }
  return count;
}

TEST_F(Ucx, OpensNoTcpPortWhereAllProcessesAreOnOneNode) {
  if (std::getenv("UCX_TLS") != nullptr) GTEST_SKIP() << "UCX_TLS chooses";
  AddressSpace space;
  const auto closed =
      make_ucx_transport(space, {.self = Peer{0}, .hosts = {{{"boot", 1}, 1, {}}, {{"boot", 1}, 1, {}}}});
  EXPECT_EQ(count_tcp_listeners(), 0u) << closed->description();
  const auto open = make_ucx_transport(space, {.self = Peer{0}});
  EXPECT_GT(count_tcp_listeners(), 0u) << "the test cannot see them";
}

TEST_F(Ucx, TakesTcpBetweenNodesOfOneMachine) {
  if (std::getenv("UCX_TLS") != nullptr) GTEST_SKIP() << "UCX_TLS chooses";
  AddressSpace space;
  const auto other_network = make_ucx_transport(
      space, {.self = Peer{0}, .hosts = {{{"boot", 1}, 1, {"10.0.0.1"}}, {{"boot", 2}, 1, {"10.0.0.2"}}}});
  EXPECT_NE(other_network->description().find("(tcp"), std::string::npos) << other_network->description();
  const auto other_pids = make_ucx_transport(
      space, {.self = Peer{0}, .hosts = {{{"boot", 1}, 1, {"10.0.0.1"}}, {{"boot", 1}, 2, {"10.0.0.2"}}}});
  EXPECT_NE(other_pids->description().find("(tcp"), std::string::npos) << other_pids->description();
}

TEST_F(Ucx, OpensTheDevicesOfEachTransportAlone) {
  if (std::getenv("UCX_NET_DEVICES") != nullptr) GTEST_SKIP() << "UCX_NET_DEVICES chooses";
  AddressSpace space;
  const auto any = make_ucx_transport(space, {.self = Peer{0}, .means = UcxMeans::tcp});
  const auto all = ucx_network_devices(*any);
  EXPECT_THAT(all, ::testing::Contains("lo"));
  std::string others;  // all but loopback
  for (const std::string& device : all)
    if (device != "lo") others += (others.empty() ? "" : ",") + device;
  if (others.empty()) GTEST_SKIP() << "there is no network device but loopback that is up";
  const auto near = make_ucx_transport(space, {.self = Peer{1}, .means = UcxMeans::tcp, .network_devices = "lo"});
  const auto far = make_ucx_transport(space, {.self = Peer{2}, .means = UcxMeans::tcp, .network_devices = others});
  EXPECT_THAT(ucx_network_devices(*near), ::testing::ElementsAre("lo"));
  EXPECT_THAT(ucx_network_devices(*far), ::testing::SizeIs(all.size() - 1));
  EXPECT_THAT(ucx_network_devices(*far), ::testing::Not(::testing::Contains("lo")));
}

TEST_F(Ucx, OpensNoNetworkDeviceForSharedMemory) {
  AddressSpace space;
  const auto shared = make_ucx_transport(space, {.self = Peer{0}, .means = UcxMeans::shm, .network_devices = "lo"});
  EXPECT_THAT(ucx_network_devices(*shared), ::testing::IsEmpty());
}

TEST_F(Ucx, RemovesFilesOfSharedMemoryThatNobodyHasOpen) {
  const std::string left = text("/dev/shm/ucx_shm_posix_test", ::getpid(), "a");
  const std::string in_use = text("/dev/shm/ucx_shm_posix_test", ::getpid(), "b");
  const std::string others = text("/dev/shm/troupe_test_", ::getpid());
  for (const std::string& file : {left, others}) ASSERT_TRUE(std::ofstream{file} << "x") << file;
  std::ofstream open{in_use};
  ASSERT_TRUE(open << "x");
  remove_ucx_orphans();  // how many: a transport of another test may have removed some of them a moment before
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(in_use));
  EXPECT_TRUE(std::filesystem::exists(others));
  for (const std::string& file : {in_use, others}) std::filesystem::remove(file);
}

TEST_F(Ucx, LeavesSignalHandlersToTheProgram) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has handlers of its own";
#endif
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGHUP}) {
    struct sigaction now {};
    ASSERT_EQ(sigaction(signal, nullptr, &now), 0);
    EXPECT_EQ(now.sa_handler, SIG_DFL) << "signal " << signal;
  }
}

}  // namespace
}  // namespace troupe::testing
