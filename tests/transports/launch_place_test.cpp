#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "runtime/base/error.hpp"
#include "transports/bootstrap/bootstrap.hpp"
#include "transports/bootstrap/detail/hello_codec.hpp"

namespace troupe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A correct environment of rank 1 of 4; each test damages one thing in it.
class LaunchPlaceTest : public ::testing::Test {
 protected:
  LaunchPlaceTest() {
    set("RANK", "1");
    set("WORLD_SIZE", "4");
    set("LOCAL_RANK", "0");
    set("MASTER_ADDR", "node7");
    set("MASTER_PORT", "29500");
  }
  ~LaunchPlaceTest() override {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TROUPE_SECRET_FILE", "TROUPE_LISTEN_FD"}) {
      unsetenv(name);
    }
    unlink(file_.c_str());
  }
  static void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }
  void write_secret(const std::string& content, mode_t mode) {
    std::ofstream{file_} << content;
    ASSERT_EQ(chmod(file_.c_str(), mode), 0);
    set("TROUPE_SECRET_FILE", file_);
  }
  static Status error() {
    try {
      launch_place_from_environment();
    } catch (const Error& error) {
      return error.status();
    }
    return {};
  }
  static std::string make_file() {
    std::string name = ::testing::TempDir() + "troupe-secret-XXXXXX";
    close(mkstemp(name.data()));
    return name;
  }

  const std::string file_ = make_file();
};

TEST_F(LaunchPlaceTest, IsReadFromTheEnvironment) {
  write_secret("  not a blank \n\n", 0600);
  set("RANK", "0");
  set("TROUPE_LISTEN_FD", "5");
  const auto place = launch_place_from_environment();
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->rank, 0u);
  EXPECT_EQ(place->world_size, 4u);
  EXPECT_EQ(place->local_rank, 0u);
  EXPECT_EQ(place->master_address, "node7");
  EXPECT_EQ(place->master_port, 29500);
  EXPECT_EQ(place->listen_fd, 5);
  EXPECT_EQ(place->secret, "  not a blank");
  EXPECT_THAT(place->found_in, HasSubstr("MASTER_ADDR"));
}

TEST_F(LaunchPlaceTest, IsAnnouncedByALauncherWhateverItsValuesAre) {
  set("RANK", "many");
  unsetenv("MASTER_PORT");
  EXPECT_TRUE(has_launcher());
}

TEST_F(LaunchPlaceTest, IsAbsentWithoutARank) {
  unsetenv("RANK");
  EXPECT_FALSE(has_launcher());
  EXPECT_EQ(launch_place_from_environment(), std::nullopt);
}

TEST_F(LaunchPlaceTest, NamesWhatIsNotSet) {
  for (const char* name : {"WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    const std::string value = std::getenv(name);
    unsetenv(name);
    EXPECT_EQ(error().code(), Code::environment);
    EXPECT_THAT(std::string{error().text()}, HasSubstr(name));
    set(name, value);
  }
  EXPECT_TRUE(error().ok());
}

TEST_F(LaunchPlaceTest, NamesWhatIsMalformedWithItsValue) {
  const std::pair<const char*, const char*> wrong[] = {
      {"RANK", "4"},       {"RANK", "-1"},      {"RANK", ""},         {"RANK", "1x"},
      {"WORLD_SIZE", "0"}, {"LOCAL_RANK", "7"}, {"MASTER_PORT", "0"}, {"MASTER_PORT", "65536"}};
  for (const auto& [name, value] : wrong) {
    const std::string before = std::getenv(name);
    set(name, value);
    EXPECT_EQ(error().code(), Code::environment);
    EXPECT_THAT(std::string{error().text()}, AllOf(HasSubstr(name), HasSubstr(text("'", value, "'"))));
    set(name, before);
  }
}

TEST_F(LaunchPlaceTest, RefusesASecretThatOthersCanRead) {
  write_secret("secret", 0644);
  EXPECT_THAT(std::string{error().text()}, HasSubstr("chmod 600"));
  write_secret("secret", 0620);
  EXPECT_EQ(error().code(), Code::environment);
  write_secret("secret", 0440);
  EXPECT_TRUE(error().ok());
}

TEST_F(LaunchPlaceTest, RefusesASecretFileThatIsMissingEmptyOrHuge) {
  set("TROUPE_SECRET_FILE", "/nonexistent/secret");
  EXPECT_THAT(std::string{error().text()}, AllOf(HasSubstr("/nonexistent/secret"), HasSubstr("No such file")));
  write_secret(" \n", 0600);
  EXPECT_THAT(std::string{error().text()}, HasSubstr("is empty"));
  write_secret(std::string(5000, 'x'), 0600);
  EXPECT_THAT(std::string{error().text()}, HasSubstr("longer than"));
}

bootstrap::WireHello rich_hello() {
  bootstrap::WireHello wire;
  wire.world_size = 8;
  wire.hello = {.rank = 3,
                .troupe_version = "0.1.0",
                .protocol = 1,
                .caf_version = "0.17.6",
                .ucx_version = "",
                .settings_hash = ~0ull,
                .type_table_hash = 5,
                .pid = 4711,
                .pid_namespace = 99,
                .topology = {}};
  Topology& topology = wire.hello.topology;
  topology.identity = {"0b5c1d2e", 4026531840};
  topology.host = "n\u00f6de";
  topology.cpu_model = "some processor";
  topology.accelerators = {{.name = "GPU 0",
                            .model = "H100",
                            .memory_bytes = 1ull << 36,
                            .numa = 1,
                            .nearest_nics = {"eth0"},
                            .bus = "0000:3b:00.0",
                            .vendor = "nvidia",
                            .cuda = true,
                            .exclusive = true,
                            .reaches = {"0000:af:00.0"}}};
  topology.numa = {{0, 1ull << 34}, {1, 1ull << 35}};
  topology.cores = {{0, 0, 0, {0, 4}, 0}, {1, 1, 0, {1, 5}, 1}, {2, 1, 1, {}, 3}};
  topology.nics = {{"eth0", "10.0.0.1", -1, 10'000'000'000, true, false, "mlx5_0"},
                   {"lo", "127.0.0.1", 0, 0, true, true, ""}};
  topology.l2_bytes = 1 << 20;
  topology.l3_bytes = 1 << 25;
  topology.cpu_quota = 1.5;
  topology.memory_bytes = 1ull << 36;
  topology.memory_limit_bytes = 1ull << 33;
  wire.hello.nccl = 22105;
  wire.hello.end_mark = 9;
  wire.hello.settings = {"data.batch = 100", "model.dtype = \"f32\""};
  return wire;
}

TEST(HelloCodec, CarriesEveryField) {
  const bootstrap::WireHello sent = rich_hello();
  const bootstrap::WireHello got = bootstrap::decode_hello(bootstrap::encode(sent));
  EXPECT_EQ(got.world_size, sent.world_size);
  EXPECT_EQ(got.hello.rank, sent.hello.rank);
  EXPECT_EQ(got.hello.troupe_version, sent.hello.troupe_version);
  EXPECT_EQ(got.hello.protocol, sent.hello.protocol);
  EXPECT_EQ(got.hello.caf_version, sent.hello.caf_version);
  EXPECT_EQ(got.hello.ucx_version, sent.hello.ucx_version);
  EXPECT_EQ(got.hello.settings_hash, sent.hello.settings_hash);
  EXPECT_EQ(got.hello.type_table_hash, sent.hello.type_table_hash);
  EXPECT_EQ(got.hello.pid, sent.hello.pid);
  EXPECT_EQ(got.hello.pid_namespace, sent.hello.pid_namespace);
  EXPECT_EQ(got.hello.topology, sent.hello.topology);
  EXPECT_EQ(got.hello.settings, sent.hello.settings);
  EXPECT_EQ(got.hello.nccl, sent.hello.nccl);
  EXPECT_EQ(got.hello.end_mark, sent.hello.end_mark);
}

TEST(HelloCodec, RefusesBytesThatAreNoHello) {
  using bootstrap::decode_hello;
  const auto good = bootstrap::encode(rich_hello());
  for (const std::size_t size : {std::size_t{0}, std::size_t{3}, std::size_t{8}, good.size() - 8, good.size() - 1}) {
    EXPECT_THROW(decode_hello(std::span{good}.first(size)), Error) << size;
  }
  for (const std::byte fill : {std::byte{0xff}, std::byte{0x7f}}) {
    EXPECT_THROW(decode_hello(std::vector<std::byte>(256, fill)), Error);
  }
  EXPECT_THROW(decode_hello(std::vector<std::byte>(bootstrap::kMaxHelloBytes + 8)), Error);
}

}  // namespace
}  // namespace troupe::testing
