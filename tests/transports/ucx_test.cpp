#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/shm.h>
#include <unistd.h>

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
std::vector<ProcessHost> loopback_hosts() { return std::vector<ProcessHost>(8, {{"boot", 1}, 1, {"127.0.0.1"}}); }

INSTANTIATE_TEST_SUITE_P(
    Ucx, TransportContract,
    ::testing::Values(ucx("Shm", {.means = UcxMeans::shm, .bulk_errors = UcxPeerErrors::silent}),
                      ucx("ShmTold", {.means = UcxMeans::shm}),
                      ucx("Tcp", {.means = UcxMeans::tcp, .network_device = "lo"}),
                      ucx("TcpFromItsHosts",
                          {.means = UcxMeans::tcp, .hosts = loopback_hosts(), .network_device = "lo"}),
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
  const auto there = make_ucx_transport(space, {.self = Peer{1}, .means = UcxMeans::tcp, .network_device = "lo"});
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
    make_ucx_transport(space, {.means = UcxMeans::tcp, .network_device = "nosuchdev0"});
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
