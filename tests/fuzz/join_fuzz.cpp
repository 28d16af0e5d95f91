// Joins whose bytes are damaged on the way, at both ends: challenges, proofs, welcomes, and hellos of those who know
// the secret. Nobody is let in who should not be, and nobody hangs.

#include <gtest/gtest.h>

#include <iostream>

#include "tests/fuzz/damage.hpp"
#include "tests/fuzz/seed.hpp"
#include "tests/transports/bootstrap_hostile.hpp"
#include "transports/bootstrap/detail/contact.hpp"
#include "transports/bootstrap/detail/hello_codec.hpp"
#include "transports/bootstrap/detail/proof.hpp"

namespace troupe::testing {
namespace {

using bootstrap::Bytes;
using bootstrap::Kind;

constexpr auto kSpan = 700ms;

std::string damaged(const std::string& good, std::mt19937& dice) {
  const auto* first = reinterpret_cast<const std::byte*>(good.data());
  Bytes bytes(first, first + good.size());
  damage(bytes, 0, dice);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(JoinFuzz, DamagedRecordingsOfAJoinAreRefusedAndTheRankIsLetIn) {
  std::mt19937 dice{chosen_seed()};
  const Recording recording = record_a_join();
  const Listener listener;
  Attendance zero;
  std::thread host{[&] { zero = join(rank_options(listener, 0, 2)); }};
  std::uint64_t strangers = 0;
  for (const FuzzTime time{kSpan}; time.goes_on(strangers > 0); ++strangers) {
    const Line line = Line::to(listener.port());
    line.send(damaged(recording.connector, dice));
    shutdown(line.fd(), SHUT_WR);
    line.receive_all();
  }
  const Attendance one = join(rank_options(listener, 1, 2));
  host.join();
  std::cout << strangers << " strangers\n";
  EXPECT_TRUE(zero.status.ok()) << zero.error();
  EXPECT_TRUE(one.status.ok()) << one.error();
  EXPECT_GT(strangers, 0U);
}

TEST(JoinFuzz, DamagedRecordingsOfRankZeroFoolNoRank) {
  std::mt19937 dice{chosen_seed()};
  const Recording recording = record_a_join();
  std::uint64_t joins = 0;
  for (const FuzzTime time{kSpan}; time.goes_on(joins > 0); ++joins) {
    const Listener listener;
    std::thread impostor{[&, said = damaged(recording.listener, dice)] {
      const Line line = Line::accept_from(listener);
      line.send(said);
      shutdown(line.fd(), SHUT_WR);
      line.receive_all();
      close(listener.fd());
    }};
    RankOptions options = rank_options(listener, 1, 2);
    options.patience = 20ms;
    const Attendance one = join(options);
    impostor.join();
    ASSERT_FALSE(one.status.ok());
    ASSERT_GT(one.status.text().size(), 20U);
  }
  std::cout << joins << " joins\n";
  EXPECT_GT(joins, 0U);
}

/// Proves the secret as rank 1 does, then sends `hello`.
void join_with(const RankOptions& options, Bytes hello) {
  const Deadline deadline = Deadline::after(10s);
  bootstrap::Connection link{
      bootstrap::connect_to(bootstrap::resolve("127.0.0.1", options.place.master_port, deadline).front(), deadline),
      "rank 0"};
  bootstrap::Connection* const links[] = {&link};
  const auto next = [&]() -> std::optional<bootstrap::Frame> {
    for (;;) {
      if (auto frame = link.take()) return frame;
      if (!link.open() || deadline.passed()) return std::nullopt;
      bootstrap::wait_ready(links, -1, deadline);
      link.flush();
      link.receive();
    }
  };
  const auto challenge = next();
  ASSERT_TRUE(challenge && challenge->body.size() == 32);
  bootstrap::Nonce theirs{};
  std::ranges::copy(challenge->body, theirs.begin());
  const bootstrap::Nonce mine = bootstrap::fresh_nonce();
  const bootstrap::Mac mac = bootstrap::prove(options.place.secret, bootstrap::Role::connects, theirs, mine, 1);
  Bytes proof{mine.begin(), mine.end()};
  bootstrap::put_u32(proof, 1);
  proof.insert(proof.end(), mac.begin(), mac.end());
  link.send(Kind::proof, std::move(proof));
  ASSERT_TRUE(next());
  link.accept_frames_of(bootstrap::kMaxFrameBytes);
  link.send(Kind::hello, std::move(hello));
  bootstrap::flush_all(links, deadline);
  link.end_sending();
  // Until it is let in, or shown out.
  for (auto frame = next(); frame && frame->kind != Kind::hello; frame = next()) {
  }
}

TEST(JoinFuzz, DamagedHellosOfInsidersEndOrAreReadButNeverHang) {
  std::mt19937 dice{chosen_seed()};
  std::uint64_t joined = 0;
  std::uint64_t refused = 0;
  for (const FuzzTime time{kSpan}; time.goes_on(refused > 0);) {
    const Listener listener;
    RankOptions options = rank_options(listener, 0, 2);
    options.patience = 30ms;
    Attendance zero;
    std::thread host{[&] { zero = join(options); }};
    const RankOptions one = rank_options(listener, 1, 2);
    Bytes hello = bootstrap::encode({one.hello, one.place.world_size});
    damage(hello, 0, dice);
    join_with(one, std::move(hello));
    host.join();
    (zero.status.ok() ? joined : refused) += 1;
    if (zero.status.ok()) {
      ASSERT_EQ(zero.bootstrap->hellos().size(), 2U);
    }
  }
  std::cout << joined << " joined, " << refused << " refused\n";
  EXPECT_GT(refused, 0U);
}

TEST(JoinFuzz, AContactIsReadAsItIsOrRefused) {
  std::mt19937 dice{chosen_seed()};
  const std::string good = bootstrap::to_text({{"10.1.2.3", "fd00::17"}, 4711, bootstrap::fresh_secret()});
  std::uint64_t read = 0;
  std::uint64_t refused = 0;
  for (const FuzzTime time{300ms}; time.goes_on(read > 0 && refused > 0);) {
    const std::string text = damaged(good, dice);
    try {
      const bootstrap::Contact contact = bootstrap::contact_from(text);
      ASSERT_NE(contact.port, 0);
      ASSERT_FALSE(contact.addresses.empty());
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::corrupt) << error.what();
      ++refused;
    }
  }
  std::cout << read << " contacts read, " << refused << " refused\n";
  EXPECT_GT(read, 0U);
  EXPECT_GT(refused, 0U);
}

}  // namespace
}  // namespace troupe::testing
