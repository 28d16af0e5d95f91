// The messages between members of a job after the join: placements of ranks, members of a group, and the heads and
// abort notices of exchanges over the network. Each is accepted or refused, in memory that its bytes bound.

#include <gtest/gtest.h>

#include <iostream>

#include "actors/group/detail/member.hpp"
#include "apps/session/gathered_places.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "tests/fuzz/allocation_watch.hpp"
#include "tests/fuzz/damage.hpp"
#include "tests/fuzz/seed.hpp"
#include "transports/collectives/detail/direct_head.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;

struct Count {
  std::uint64_t read = 0;
  std::uint64_t refused = 0;
};

/// Gives `read` damaged copies of the good bytes for a while; it returns whether it took them, or throws
/// Error{corrupt}, and takes no block of memory that is larger than a multiple of them.
template <class Read>
void fuzz(const std::vector<Bytes>& good, Read read) {
  constexpr std::uint64_t kBasis = 1 << 16, kGreatestRatio = 16;
  std::mt19937 dice{testing::chosen_seed()};
  Count count;
  for (const testing::FuzzTime time{400ms}; time.goes_on(count.read > 0 && count.refused > 0);) {
    Bytes bytes = good[dice() % good.size()];
    testing::damage(bytes, 0, dice);
    testing::reset_largest_allocation();
    bool taken = false;
    try {
      taken = read(bytes);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::corrupt) << error.what();
    }
    ASSERT_LE(testing::largest_allocation(), kBasis + kGreatestRatio * bytes.size());
    ++(taken ? count.read : count.refused);
  }
  std::cout << count.read << " read, " << count.refused << " refused\n";
  EXPECT_GT(count.read, 0U);
  EXPECT_GT(count.refused, 0U);
}

TEST(MembersFuzz, APlaceIsReadOrRefused) {
  GatheredPlace place{.plan_hash = 7, .arena = {}};
  place.start = {
      .folder = "run/checkpoints", .id = {3, 500}, .first_number = 4, .over = true, .run = "0123456789abcdef"};
  fuzz({encode(place), encode(GatheredPlace{})}, [](const Bytes& bytes) { return decode_place(bytes), true; });
}

TEST(MembersFuzz, AMemberOfAGroupIsReadOrRefused) {
  const group::Member member{Bytes(300), Bytes(20), 7, 8, Bytes(48)};
  fuzz({encode(member), encode(group::Member{})}, [](const Bytes& bytes) { return group::decode_member(bytes), true; });
}

TEST(MembersFuzz, AHeadOfAnExchangeIsReadOrRefused) {
  collectives::DirectHead head{
      .view = 1, .rank = 3, .round = {.sequence = 9, .step = 4, .elements = 1000, .bucket = 1}};
  const auto bytes = collectives::encode(head);
  fuzz({Bytes(bytes.begin(), bytes.end())}, [](const Bytes& from) {
    const auto read = collectives::decode(from);
    if (read) {
      EXPECT_LT(collectives::describe(read->round).size(), 104U);
      EXPECT_LE(read->payload_kind, collectives::PayloadKind::half_result);
    }
    return read.has_value();
  });
}

TEST(MembersFuzz, AbortNoticesAreReadOrRefused) {
  const auto words = [](const std::string& why) {
    return collectives::encode(collectives::AbortNotice{1, 3, {Code::device_fault, why}});
  };
  Bytes endless = words("no more memory");
  endless.resize(10'000, std::byte{'x'});
  fuzz({words("no more memory"), endless}, [](const Bytes& from) {
    const auto read = collectives::decode_abort_notice(from);
    if (read) {
      EXPECT_LT(read->why.text().size(), 2048U);
    }
    return read.has_value();
  });
}

}  // namespace
}  // namespace troupe
