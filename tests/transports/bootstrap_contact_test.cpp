#include "transports/bootstrap/detail/contact.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace troupe::testing {
namespace {

using bootstrap::Contact;
using bootstrap::NetworkAddress;
using ::testing::AllOf;
using ::testing::HasSubstr;

NetworkAddress address(std::vector<int> bytes, unsigned prefix_bits) {
  NetworkAddress result;
  for (const int byte : bytes) result.bytes.push_back(static_cast<std::byte>(byte));
  result.prefix_bits = prefix_bits;
  return result;
}

TEST(Contact, IsReadAsItWasWritten) {
  for (const std::string secret : {"", "0123abcd"}) {
    const Contact sent{{"10.0.0.7", "fd00::7"}, 29500, secret};
    const Contact got = bootstrap::contact_from(bootstrap::to_text(sent));
    EXPECT_EQ(got.addresses, sent.addresses);
    EXPECT_EQ(got.port, sent.port);
    EXPECT_EQ(got.secret, sent.secret);
  }
}

TEST(Contact, IsRefusedWhenItIsNone) {
  for (const std::string& wrong :
       {std::string{}, std::string{"troupe1"}, std::string{"troupe2 1 s 10.0.0.1"}, std::string{"troupe1 0 s 10.0.0.1"},
        std::string{"troupe1 65536 s 10.0.0.1"}, std::string{"troupe1 12x s 10.0.0.1"}, std::string{"troupe1 12 s "},
        std::string{"troupe1 12 s host"}, std::string{"troupe1 12 s 10.0.0.1 "} + std::string(1 << 20, '1')}) {
    EXPECT_THROW(bootstrap::contact_from(wrong), Error) << wrong.substr(0, 40);
  }
}

TEST(Contact, HasASecretThatIsNeverTheSame) {
  const std::string one = bootstrap::fresh_secret();
  EXPECT_EQ(one.size(), 64u);
  EXPECT_NE(one, bootstrap::fresh_secret());
}

TEST(Contact, IsTakenByTheLinkThatBothHostsShare) {
  const std::vector<std::string> theirs{"192.168.3.1", "10.1.2.3", "fd00:5::1"};
  const auto far = address({172, 16, 0, 9}, 16);
  EXPECT_EQ(bootstrap::reachable(theirs, std::vector{far, address({10, 1, 7, 7}, 16)}), "10.1.2.3");
  EXPECT_EQ(bootstrap::reachable(theirs, std::vector{far, address({10, 1, 7, 7}, 24)}), "192.168.3.1");
  EXPECT_EQ(bootstrap::reachable(theirs, std::vector{address({0xfd, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}, 64)}),
            "fd00:5::1");
  EXPECT_EQ(bootstrap::reachable(theirs, {}), "192.168.3.1");
}

TEST(Contact, IsNotTakenByAnAddressThatEveryHostHas) {
  const std::vector<std::string> theirs{"172.17.0.1", "10.1.2.3"};
  const auto bridge = address({172, 17, 0, 1}, 16);
  EXPECT_EQ(bootstrap::reachable(theirs, std::vector{bridge, address({10, 1, 2, 4}, 24)}), "10.1.2.3");
  EXPECT_EQ(bootstrap::reachable(theirs, std::vector{bridge, address({10, 9, 9, 9}, 24)}), "10.1.2.3");
  // Rank 0's own host has all of them.
  EXPECT_EQ(bootstrap::reachable(theirs, std::vector{bridge, address({10, 1, 2, 3}, 24)}), "172.17.0.1");
}

TEST(Contact, OfThisHostIsNumeric) {
  for (const NetworkAddress& own : bootstrap::own_addresses()) {
    EXPECT_GT(own.prefix_bits, 0u);
    EXPECT_THAT(own.to_string(), ::testing::MatchesRegex("[0-9a-f.:]+"));
  }
}

/// An environment as Open MPI's mpirun makes it, without its PMIx server.
class OpenMpiPlace : public ::testing::Test {
 protected:
  OpenMpiPlace() {
    set("OMPI_COMM_WORLD_RANK", "2");
    set("OMPI_COMM_WORLD_SIZE", "4");
    set("OMPI_COMM_WORLD_LOCAL_RANK", "1");
  }
  ~OpenMpiPlace() override {
    for (const char* name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"})
      unsetenv(name);
  }
  static void set(const char* name, const char* value) { setenv(name, value, 1); }
};

TEST_F(OpenMpiPlace, IsReadWithTheMasterThatWasGiven) {
  set("MASTER_ADDR", "node3");
  set("MASTER_PORT", "29500");
  const auto place = launch_place_from_environment();
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->rank, 2u);
  EXPECT_EQ(place->world_size, 4u);
  EXPECT_EQ(place->local_rank, 1u);
  EXPECT_EQ(place->master_address, "node3");
  EXPECT_EQ(place->master_port, 29500);
  EXPECT_THAT(place->found_in, HasSubstr("OMPI_COMM_WORLD_RANK"));
}

TEST_F(OpenMpiPlace, OfManyRanksIsAnErrorWhereNothingTellsOfRankZero) {
  EXPECT_TRUE(has_launcher());
  try {
    launch_place_from_environment();
    FAIL() << "each rank would have run alone";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::environment);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("OMPI_COMM_WORLD_RANK"), HasSubstr("MASTER_ADDR")));
  }
}

TEST_F(OpenMpiPlace, OfOneRankAloneIsNone) {
  set("OMPI_COMM_WORLD_RANK", "0");
  set("OMPI_COMM_WORLD_SIZE", "1");
  EXPECT_FALSE(has_launcher());
  EXPECT_EQ(launch_place_from_environment(), std::nullopt);
}

}  // namespace
}  // namespace troupe::testing
