#include <caf/event_based_actor.hpp>
#include <caf/stateful_actor.hpp>

#include "actors/group/registration.hpp"
#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

// Messages of all sizes, mixed, arrive in their order.
namespace troupe::test::semantics {
namespace {

using Sum = caf::atom_constant<caf::atom("sum")>;  // how many bytes came, and how many messages, if all in order
using Bytes = std::vector<char>;
constexpr std::size_t kMiB = std::size_t{1} << 20;

struct WeigherState {
  std::uint64_t bytes = 0;
  std::int32_t next = 0;
  bool right = true;
};

/// The content at a few places of body `number`.
char sign(std::int32_t number, std::size_t place) {
  return static_cast<char>((static_cast<std::size_t>(number) * 31 + place % 251) % 127);
}

Bytes body(std::int32_t number, std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; i += 4093) bytes[i] = sign(number, i);
  return bytes;
}

bool is_body(std::int32_t number, const Bytes& bytes) {
  for (std::size_t i = 0; i < bytes.size(); i += 4093) {
    if (bytes[i] != sign(number, i)) return false;
  }
  return true;
}

caf::behavior weigher(caf::stateful_actor<WeigherState>* self) {
  return {[=](std::int32_t number, const Bytes& bytes) {
            auto& s = self->state;
            s.right = s.right && number == s.next && is_body(number, bytes);
            s.next = number + 1;
            s.bytes += bytes.size();
          },
          [](const std::string& text) { return text.size(); }, [](Echo, Bytes& bytes) { return std::move(bytes); },
          [=](Sum) -> caf::result<std::uint64_t, std::int32_t> {
            return {self->state.right ? self->state.bytes : 0, self->state.next};
          }};
}

class Sizes : public Semantics {
 protected:
  /// Sends bodies of these sizes one after the other to one actor: all arrive, complete and in their order.
  void expect_all(const std::vector<std::size_t>& sizes) {
    const auto to = far("weigher");
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto number = static_cast<std::int32_t>(i);
      (*self)->send(to, number, body(number, sizes[i]));
      all += sizes[i];
    }
    expect_sum(to, all, sizes.size());
  }
  void expect_sum(const caf::actor& of, std::uint64_t bytes, std::size_t messages) {
    (*self)
        ->request(of, kLong, Sum::value)
        .receive(
            [&](std::uint64_t sum, std::int32_t count) {
              EXPECT_EQ(sum, bytes);
              EXPECT_EQ(count, static_cast<std::int32_t>(messages));
            },
            [](const caf::error& why) { ADD_FAILURE() << brief(why); });
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Sizes, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Sizes);

TEST_P(Sizes, EightyOfFiveMebibytesThenOneOfTen) {
  std::vector<std::size_t> sizes(80, 5 * kMiB);
  sizes.push_back(10 * kMiB);
  expect_all(sizes);
}

TEST_P(Sizes, OneThirtyFiveAndFortyMebibytesOneAfterTheOther) { expect_all({kMiB, 30 * kMiB, 5 * kMiB, 40 * kMiB}); }

TEST_P(Sizes, OneThirtyFiveAndFortyMebibytesThereAndBack) {
  const auto to = far("weigher");
  std::int32_t number = 0;
  for (const std::size_t size : {kMiB, 30 * kMiB, 5 * kMiB, 40 * kMiB}) {
    const auto back = ask<Bytes>(to, Echo::value, body(number, size));
    ASSERT_TRUE(back) << size << ": " << brief(back.error());
    EXPECT_EQ(back->size(), size);
    EXPECT_TRUE(is_body(number++, *back)) << size;
  }
}

TEST_P(Sizes, AStringOfSeventyMegabytes) {
  EXPECT_EQ(ask<std::size_t>(far("weigher"), std::string(70'000'000, 's')), 70'000'000u);
}

TEST_P(Sizes, ManySmallOnesBetweenLargeOnesInOrder) {
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < 2000; ++i) sizes.push_back(i % 100 == 50 ? 2 * kMiB + i : i % 60);
  expect_all(sizes);
}

TEST_P(Sizes, AroundEveryLimitInOrder) {
  std::vector<std::size_t> sizes;
  for (std::size_t power = 4; power <= 24; ++power) {
    for (const std::size_t size :
         {(std::size_t{1} << power) - 1, std::size_t{1} << power, (std::size_t{1} << power) + 1})
      sizes.push_back(size);
  }
  expect_all(sizes);
}

TEST_P(Sizes, LargeOnesToOneActorLetSmallOnesToAnotherPass) {
  const auto slow = far("weigher");
  const auto quick = far("mate");
  for (std::int32_t i = 0; i < 10; ++i) {
    (*self)->send(slow, i, body(i, 8 * kMiB));
    EXPECT_EQ(ask<std::int32_t>(quick, Echo::value, i), i);
  }
  expect_sum(slow, 80 * kMiB, 10);
}

TEST_P(Sizes, LargeOnesBothWaysAtOnce) {
  const auto first = far("weigher");
  const auto second = far("weigher");
  caf::scoped_actor other(system());
  const Bytes bytes = body(1, 20 * kMiB);
  auto one = (*self)->request(first, kLong, Echo::value, bytes);
  auto two = other->request(second, kLong, Echo::value, bytes);
  int whole = 0;
  one.receive([&](const Bytes& back) { whole += back == bytes; },
              [](const caf::error& e) { ADD_FAILURE() << brief(e); });
  two.receive([&](const Bytes& back) { whole += back == bytes; },
              [](const caf::error& e) { ADD_FAILURE() << brief(e); });
  EXPECT_EQ(whole, 2);
}

}  // namespace

void add_size_roles(caf::actor_system_config& config) { register_actor(config, "weigher", weigher); }

}  // namespace troupe::test::semantics
