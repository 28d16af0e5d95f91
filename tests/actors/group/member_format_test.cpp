#include <gmock/gmock.h>

#include <random>

#include "actors/group/detail/member.hpp"
#include "runtime/base/error.hpp"

namespace troupe::group {
namespace {

std::vector<std::byte> bytes(std::size_t size, int value) { return std::vector(size, std::byte(value)); }

Member a_member() {
  return {.transport = bytes(300, 1), .actor_node = bytes(24, 2), .broadcaster = 7, .agent = 8, .arena = bytes(104, 4)};
}

/// Decodes bytes from another process: returns the member, or nothing if they were refused.
std::optional<Member> read(std::span<const std::byte> from) {
  try {
    return decode_member(from);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::corrupt) << error.what();
    return std::nullopt;
  }
}

TEST(MemberFormat, IsReadAsItWasWritten) {
  const Member member = a_member();
  const Member read = decode_member(encode(member));
  EXPECT_EQ(read.transport, member.transport);
  EXPECT_EQ(read.actor_node, member.actor_node);
  EXPECT_EQ(read.broadcaster, 7u);
  EXPECT_EQ(read.agent, 8u);
  EXPECT_EQ(read.arena, member.arena);
}

TEST(MemberFormat, RefusesBytesThatEndEarly) {
  const auto whole = encode(a_member());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto got = read(std::span(whole).first(size));
    if (got) {
      EXPECT_LT(got->transport.size() + got->actor_node.size(), whole.size());
    }
  }
}

TEST(MemberFormat, RefusesGarbageOrReadsAsManyBytesAsThereAre) {
  std::mt19937 random(7);
  const auto whole = encode(a_member());
  for (int round = 0; round < 3000; ++round) {
    auto changed = whole;
    for (int flips = 0; flips < 4; ++flips)
      changed[random() % (round % 2 == 0 ? 64 : changed.size())] = std::byte(random());
    if (const auto got = read(changed)) {
      EXPECT_LE(got->transport.size(), changed.size());
    }
  }
}

}  // namespace
}  // namespace troupe::group
