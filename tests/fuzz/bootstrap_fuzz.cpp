#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "tests/fuzz/damage.hpp"
#include "tests/fuzz/seed.hpp"
#include "transports/bootstrap/detail/connection.hpp"
#include "transports/bootstrap/detail/hello_codec.hpp"

namespace troupe::bootstrap {
namespace {

using testing::damage;

WireHello some_hello() {
  WireHello wire{.hello = {}, .world_size = 4};
  wire.hello.rank = 3;
  wire.hello.troupe_version = "0.1.0";
  wire.hello.caf_version = "0.17.6";
  wire.hello.topology.host = "node";
  wire.hello.topology.numa = {{0, 1ULL << 34}};
  wire.hello.topology.cores = {{0, 0, 0, {0, 2}}, {1, 0, 0, {1, 3}}};
  wire.hello.topology.nics = {{"eth0", "10.0.0.1", 0, 1000, true, false, ""}};
  return wire;
}

TEST(BootstrapFuzz, AHelloIsReadOrRefused) {
  const std::uint32_t seed = testing::chosen_seed();
  std::mt19937 dice{seed};
  const Bytes good = encode(some_hello());
  std::uint64_t read = 0;
  std::uint64_t refused = 0;
  for (const testing::FuzzTime time{std::chrono::milliseconds{700}}; time.goes_on(read > 0 && refused > 0);) {
    Bytes bytes = good;
    damage(bytes, 0, dice);
    try {
      const WireHello hello = decode_hello(bytes);
      // What was read can be told on, unless it says more than its bytes do: that the limits of the reader prevent.
      ASSERT_LE(encode(hello).size(), 2 * kMaxHelloBytes);
      ++read;
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == Code::corrupt || error.code() == Code::invalid) << error.what();
      ++refused;
    }
  }
  std::cout << read << " hellos read, " << refused << " refused\n";
  EXPECT_GT(read, 0U);
  EXPECT_GT(refused, 0U);
}

/// Feeds a connection a stream of bytes in pieces, and takes what it makes of them.
TEST(BootstrapFuzz, AStreamGivesFramesWithinTheLimitOrEnds) {
  std::mt19937 dice{testing::chosen_seed()};
  std::uint64_t frames = 0;
  std::uint64_t ended = 0;
  for (const testing::FuzzTime time{std::chrono::milliseconds{700}}; time.goes_on(frames > 0 && ended > 0);) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    Connection link{Fd{ends[0]}, "peer"};
    link.accept_frames_of(256);
    Bytes stream;
    for (std::uint32_t count = 1 + dice() % 5; count > 0; --count) {
      const std::uint32_t length = dice() % 300;
      for (const std::uint32_t word : {0x31505254U, static_cast<std::uint32_t>(1 + dice() % 10), length})
        put_u32(stream, word);
      stream.resize(stream.size() + length);
    }
    if (dice() % 2 == 0) damage(stream, 0, dice);
    bool open = true;
    for (std::size_t at = 0; at < stream.size() && open;) {
      const std::size_t piece = std::min<std::size_t>(1 + dice() % 64, stream.size() - at);
      ASSERT_EQ(write(ends[1], stream.data() + at, piece), static_cast<ssize_t>(piece));
      at += piece;
      open = link.receive();
      for (; auto frame = link.take(); ++frames) ASSERT_LE(frame->body.size(), 256U);
    }
    ended += open ? 0 : 1;
    close(ends[1]);
    EXPECT_FALSE(link.receive());
    EXPECT_FALSE(link.why().empty());
  }
  EXPECT_GT(frames, 0U);
  EXPECT_GT(ended, 0U);
}

}  // namespace
}  // namespace troupe::bootstrap
