#include <array>
#include <caf/event_based_actor.hpp>
#include <caf/optional.hpp>
#include <caf/timestamp.hpp>
#include <caf/variant.hpp>

#include "actors/group/registration.hpp"
#include "actors/plain_messages.hpp"
#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

// The content of messages: it returns as it was sent.
namespace troupe::test::semantics {
namespace {

enum class Colour : std::int32_t { red, green };

struct Point {
  std::int32_t x = 0;
  std::int32_t y = 0;
  friend bool operator==(const Point&, const Point&) = default;
};

struct Shape {
  std::string name;
  Colour colour = Colour::red;
  std::vector<Point> corners;
  std::map<std::string, std::vector<double>> numbers;
  caf::optional<Point> centre;
  caf::actor owner;
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// Trivially copyable, registered as a plain message.
struct Plain {
  std::uint64_t number = 0;
  double value = 0;
  friend bool operator==(const Plain&, const Plain&) = default;
};

template <class Inspector>
auto inspect(Inspector& f, Point& x) {
  return f(caf::meta::type_name("semantics.Point"), x.x, x.y);
}
template <class Inspector>
auto inspect(Inspector& f, Shape& x) {
  return f(caf::meta::type_name("semantics.Shape"), x.name, x.colour, x.corners, x.numbers, x.centre, x.owner);
}
template <class Inspector>
auto inspect(Inspector& f, Plain& x) {
  return f(caf::meta::type_name("semantics.Plain"), x.number, x.value);
}

using Choice = caf::variant<std::int32_t, std::string, Point>;
using Nested = std::vector<std::vector<std::string>>;
using Numbers = std::map<std::string, std::int32_t>;
using Stop = caf::atom_constant<caf::atom("stop")>;

/// Sends everything back unchanged.
caf::behavior mirror(caf::event_based_actor* self) {
  self->set_default_handler(caf::reflect);
  return {[=](Stop) { self->quit(); }};
}

/// Accepts what the mirror cannot: answers with the way in which it is to be read.
caf::behavior reader(caf::event_based_actor* self) {
  return {[](Echo, const caf::message& inner) { return inner.size(); },
          [=](const std::vector<caf::actor>& actors) {
            for (const auto& one : actors) self->send(one, Note::value, std::string("called"));
          },
          [=](const caf::actor_addr& address) {
            self->send(caf::actor_cast<caf::actor>(address), Note::value, std::string("called"));
          }};
}

class Messages : public Semantics {
 protected:
  template <class T>
  void expect_back(const T& value) {
    const auto back = ask<T>(mirror_, value);
    ASSERT_TRUE(back) << brief(back.error());
    EXPECT_EQ(*back, value);
  }
  void SetUp() override {
    Semantics::SetUp();
    mirror_ = far("mirror");
  }
  void TearDown() override {
    mirror_ = {};
    Semantics::TearDown();
  }
  caf::actor mirror_;
};
INSTANTIATE_TEST_SUITE_P(Over, Messages, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Messages);

TEST_P(Messages, CarryNumbersOfEveryKind) {
  expect_back(std::numeric_limits<std::int8_t>::min());
  expect_back(std::numeric_limits<std::uint8_t>::max());
  expect_back(std::numeric_limits<std::int16_t>::min());
  expect_back(std::numeric_limits<std::uint16_t>::max());
  expect_back(std::numeric_limits<std::int32_t>::min());
  expect_back(std::numeric_limits<std::uint32_t>::max());
  expect_back(std::numeric_limits<std::int64_t>::min());
  expect_back(std::numeric_limits<std::uint64_t>::max());
  expect_back(true);
  expect_back(0.1f);
  expect_back(-std::numeric_limits<double>::infinity());
  expect_back(0.1);
}

TEST_P(Messages, CarryLongDoubles) {
  expect_back(0.25L);
  expect_back(-1234567.0L);
}

TEST_P(Messages, CarryStrings) {
  expect_back(std::string());
  expect_back(std::string("with\0zero", 9));
  expect_back(std::string(100'000, 'x'));
  expect_back(std::u16string(u"sixteen \u20ac"));
  expect_back(std::u32string(U"thirty-two \U0001f600"));
}

TEST_P(Messages, CarryContainers) {
  expect_back(std::vector<std::string>{"a", "", "c"});
  expect_back(std::vector<std::int32_t>{});
  expect_back(Numbers{{"one", 1}, {"two", 2}});
  expect_back(std::set<std::string>{"x", "y"});
  expect_back(Nested{{"a"}, {}, {"b", "c"}});
  expect_back(std::vector<char>(70'000, 'y'));
  expect_back(std::array<std::int32_t, 3>{1, 2, 3});
  expect_back(std::make_pair(std::int32_t{1}, std::string("pair")));
}

TEST_P(Messages, CarryOptionalsAndVariants) {
  expect_back(caf::optional<std::int32_t>{});
  expect_back(caf::optional<std::int32_t>{5});
  expect_back(Choice{std::int32_t{7}});
  expect_back(Choice{std::string("text")});
  expect_back(Choice{Point{1, 2}});
}

TEST_P(Messages, CarryTypesOfOnesOwn) {
  expect_back(Point{3, 4});
  expect_back(Plain{5, 0.5});
  expect_back(Shape{"a shape", Colour::green, {{1, 2}, {3, 4}}, {{"n", {0.5, 1.5}}}, Point{9, 9}, near("mate")});
  expect_back(std::vector<Point>{{1, 2}, {3, 4}});
}

TEST_P(Messages, CarryTimes) {
  expect_back(caf::make_timestamp());
  expect_back(caf::timespan{std::chrono::microseconds(5)});
  expect_back(caf::duration{std::chrono::seconds(3)});
}

TEST_P(Messages, CarryAtoms) {
  expect_back(caf::atom("anything"));
  const auto back = ask<caf::atom_value>(mirror_, Echo::value);
  ASSERT_TRUE(back) << brief(back.error());
  EXPECT_EQ(*back, caf::atom("echo"));
}

TEST_P(Messages, CarryErrors) {
  const auto back = ask<std::vector<caf::error>>(mirror_, std::vector<caf::error>{own_error(5, "five"), {}});
  ASSERT_TRUE(back) << brief(back.error());
  ASSERT_EQ(back->size(), 2u);
  EXPECT_EQ(brief(back->front()), "semantics 5");
  EXPECT_EQ(brief(back->back()), "normal");
}

TEST_P(Messages, MayBeEmpty) { EXPECT_EQ(order(mirror_, caf::message{}), "normal"); }

TEST_P(Messages, CarryManyValues) {
  std::string all;
  (*self)
      ->request(mirror_, kLong, std::int32_t{1}, std::string("two"), 3.0, std::vector<std::int32_t>{4, 5}, true,
                Point{6, 7}, caf::atom("eight"), std::u16string(u"nine"), std::uint8_t{10})
      .receive([&](std::int32_t a, const std::string& b, double, const std::vector<std::int32_t>& d, bool,
                   const Point& f, caf::atom_value, const std::u16string&,
                   std::uint8_t i) { all = std::to_string(a) + b + std::to_string(d[1] + f.y + i); },
               [&](const caf::error& why) { all = brief(why); });
  EXPECT_EQ(all, "1two22");
}

TEST_P(Messages, CarryMessages) {
  const auto inner = caf::make_message(std::int32_t{1}, std::string("two"), near("mate"));
  EXPECT_EQ(ask<std::size_t>(far("reader"), Echo::value, inner), 3u);
}

TEST_P(Messages, CarryHandlesOfEitherSide) {
  const auto here = near("mate");
  const auto there = far("mate");
  expect_back(here);
  expect_back(there);
  expect_back(mirror_);
  expect_back(caf::actor_cast<caf::strong_actor_ptr>(here));
  expect_back(std::vector<caf::actor>{here, there, here});
  EXPECT_EQ(order(far("reader"), std::vector<caf::actor>{here, there}), "normal");
  EXPECT_TRUE(log_becomes(here, "called "));
  EXPECT_TRUE(log_becomes(there, "called "));
}

TEST_P(Messages, CarryAddresses) {
  const auto here = near("mate");
  const auto there = far("mate");
  expect_back(here.address());
  expect_back(there.address());
  expect_back(caf::actor_addr{});
  EXPECT_EQ(order(far("reader"), here.address()), "normal");
  EXPECT_TRUE(log_becomes(here, "called "));
}

TEST_P(Messages, CarryHandlesOfActorsThatHaveEnded) {
  const std::vector<caf::actor> ended{near("mate"), far("mate")};
  for (const caf::actor& one : ended) {
    (*self)->send(one, Quit::value, own_error(5, "ended"));
    EXPECT_EQ(end_of(one), "semantics 5");
  }
  const std::string why = one_process() ? "semantics 5" : "exit unknown";
  const auto back = ask<std::vector<caf::actor>>(mirror_, ended);
  ASSERT_TRUE(back) << brief(back.error());
  ASSERT_EQ(*back, ended);
  for (const caf::actor& one : *back) {
    EXPECT_EQ(end_of(one), why);
    EXPECT_EQ(order(one, Trap::value), "system request_receiver_down");
  }
  const auto watching = far("mate");
  for (const caf::actor& one : ended) EXPECT_EQ(order(watching, Watch::value, one), "normal");
  EXPECT_TRUE(log_becomes(watching, "down:" + why + " down:" + why + " "));
}

TEST_P(Messages, CarryHandlesThatAreNone) {
  expect_back(caf::strong_actor_ptr{});
  expect_back(std::vector<caf::actor>{});
}

}  // namespace

void add_message_roles(caf::actor_system_config& config) {
  add_messages(config, MessageName<Point>{"semantics.Point"}, MessageName<Shape>{"semantics.Shape"},
               MessageName<Choice>{"semantics.Choice"}, MessageName<Nested>{"semantics.Nested"},
               MessageName<Numbers>{"semantics.Numbers"}, MessageName<std::vector<Point>>{"semantics.Points"},
               MessageName<std::vector<std::int32_t>>{"semantics.Int32s"},
               MessageName<std::array<std::int32_t, 3>>{"semantics.ThreeInt32s"},
               MessageName<std::pair<std::int32_t, std::string>>{"semantics.Pair"},
               MessageName<caf::optional<std::int32_t>>{"semantics.MaybeInt32"},
               MessageName<std::vector<caf::error>>{"semantics.Errors"});
  add_plain_messages(config, MessageName<Plain>{"semantics.Plain"});
  register_actor(config, "mirror", mirror);
  register_actor(config, "reader", reader);
}

}  // namespace troupe::test::semantics
