#include <caf/config_value.hpp>
#include <caf/cow_tuple.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/ipv4_address.hpp>
#include <caf/ipv6_address.hpp>
#include <caf/message_builder.hpp>
#include <caf/meta/load_callback.hpp>
#include <caf/meta/save_callback.hpp>
#include <caf/node_id.hpp>
#include <caf/optional.hpp>
#include <caf/others.hpp>
#include <caf/uri.hpp>
#include <caf/variant.hpp>
#include <cmath>
#include <limits>
#include <list>
#include <numeric>
#include <unordered_map>

#include "actors/group/registration.hpp"
#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

// More kinds of content, those of CAF's tests of serialization: whatever arrives and is sent back is as it was sent.
namespace troupe::test::semantics {
namespace {

enum class Level : std::uint8_t { low = 1, high = 200 };

struct Empty {
  friend bool operator==(const Empty&, const Empty&) = default;
};

struct Arrays {
  std::int32_t row[4]{};
  std::int32_t table[2][4]{};
  friend bool operator==(const Arrays&, const Arrays&) = default;
};

struct Leaf {
  std::string name;
  caf::optional<Level> level;
  friend bool operator==(const Leaf&, const Leaf&) = default;
};

using Branch = caf::variant<caf::none_t, Leaf, std::vector<Leaf>, double>;

struct Tree {
  caf::optional<Leaf> maybe;
  caf::optional<caf::optional<std::int32_t>> twice;
  std::vector<Branch> branches;
  std::tuple<std::int32_t, std::string, bool> three;
  std::list<std::int16_t> list;
  std::unordered_map<std::int32_t, std::string> hashed;
  std::multimap<std::string, std::int32_t> several;
  std::vector<bool> bits;
  std::vector<Empty> nothing;
  std::map<std::string, std::map<std::string, caf::optional<double>>> maps;
  caf::actor_addr address;
  friend bool operator==(const Tree&, const Tree&) = default;
};

/// Has a sum that is not sent: it is made when the numbers are written and checked when they were read.
struct Summed {
  std::vector<std::int32_t> numbers;
  std::int32_t written = 0;
  std::int32_t sum = 0;
};

template <class Inspector>
auto inspect(Inspector& f, Empty&) {
  return f(caf::meta::type_name("semantics.Empty"));
}
template <class Inspector>
auto inspect(Inspector& f, Arrays& x) {
  return f(caf::meta::type_name("semantics.Arrays"), x.row, x.table);
}
template <class Inspector>
auto inspect(Inspector& f, Leaf& x) {
  return f(caf::meta::type_name("semantics.Leaf"), x.name, x.level);
}
template <class Inspector>
auto inspect(Inspector& f, Tree& x) {
  return f(caf::meta::type_name("semantics.Tree"), x.maybe, x.twice, x.branches, x.three, x.list, x.hashed, x.several,
           x.bits, x.nothing, x.maps, x.address);
}
template <class Inspector>
auto inspect(Inspector& f, Summed& x) {
  const auto sum = [&x] { return std::accumulate(x.numbers.begin(), x.numbers.end(), 0); };
  auto saved = [&x, sum]() -> caf::error {
    x.written = sum();
    return caf::none;
  };
  auto loaded = [&x, sum]() -> caf::error {
    x.sum = sum();
    return x.sum >= 0 ? caf::error{} : caf::make_error(caf::sec::invalid_argument, "a sum below 0");
  };
  return f(caf::meta::type_name("semantics.Summed"), caf::meta::save_callback(saved), x.numbers,
           caf::meta::load_callback(loaded));
}

using Pair = caf::cow_tuple<std::int32_t, std::string>;
using Forward = caf::atom_constant<caf::atom("forward")>;  // (Forward, actor): delegates everything to it from now on
using Read = caf::atom_constant<caf::atom("read")>;        // (Read, Summed): its sum
using Deep = caf::atom_constant<caf::atom("deep")>;        // (Deep, message): how many messages are within each other
using Count = caf::atom_constant<caf::atom("count")>;      // (Count, n empty values): n

int depth_of(const caf::message& of) {
  return of.match_elements<std::int32_t, caf::message>() ? 1 + depth_of(of.get_as<caf::message>(1)) : 1;
}

caf::behavior taker(caf::event_based_actor* self) {
  return {[](Read, const Summed& x) { return x.sum; }, [](Deep, const caf::message& x) { return depth_of(x); },
          [](Count, const std::vector<Empty>& values) { return values.size(); },
          [=](Forward, const caf::actor& to) {
            self->become([] {});
            self->set_default_handler([=](caf::scheduled_actor*, caf::message_view& view) -> caf::result<caf::message> {
              self->delegate(to, view.move_content_to_message());
              return caf::delegated<caf::message>{};
            });
          }};
}

caf::message nested(int depth) {
  caf::message message = caf::make_message(std::int32_t{1});
  for (int i = 1; i < depth; ++i) message = caf::make_message(std::int32_t{i}, message);
  return message;
}

class Contents : public Semantics {
 protected:
  void SetUp() override {
    Semantics::SetUp();
    mirror_ = far("mirror");
  }
  void TearDown() override {
    mirror_ = {};
    Semantics::TearDown();
  }
  template <class T>
  T back(const T& value) {
    auto answer = ask<T>(mirror_, value);
    if (!answer) throw std::runtime_error(brief(answer.error()));
    return std::move(*answer);
  }
  template <class T>
  void expect_back(const T& value) {
    EXPECT_EQ(back(value), value);
  }
  /// Sends a message and returns what came back as text, with the types.
  std::string text_back(const caf::message& message) {
    std::string text;
    caf::behavior any{
        [&](std::int32_t a, const std::string& b) { text = std::to_string(a) + b; },
        [&](std::int32_t a) { text = std::to_string(a); }, [&](const std::string& b) { text = b; },
        [&](std::int32_t a, std::int32_t b, std::int32_t c) { text = std::to_string(a * 100 + b * 10 + c); },
        caf::after(kLong) >> [] {}};
    (*self)->send(mirror_, message);
    (*self)->receive(any);
    return text;
  }
  caf::actor mirror_;
};
INSTANTIATE_TEST_SUITE_P(Over, Contents, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Contents);

TEST_P(Contents, OfOtherEnumsAndEmptyStructs) {
  expect_back(Level::high);
  expect_back(Empty{});
}

TEST_P(Contents, OfRawArrays) { expect_back(Arrays{{0, 1, 2, 3}, {{4, 5, 6, 7}, {8, 9, 10, 11}}}); }

TEST_P(Contents, OfContainersWithinContainers) {
  Tree tree{.maybe = Leaf{"a leaf", Level::low},
            .twice = caf::optional<std::int32_t>{},
            .branches = {Leaf{"another", {}}, caf::none, 0.5, std::vector<Leaf>{{"x", Level::high}, {"y", {}}}},
            .three = {1, "two", true},
            .list = {1, 2, 3},
            .hashed = {{1, "one"}, {2, "two"}},
            .several = {{"a", 1}, {"a", 2}},
            .bits = std::vector<bool>(65, true),
            .nothing = std::vector<Empty>(70),
            .maps = {{"outer", {{"inner", 0.25}, {"none", {}}}}},
            .address = near("mate").address()};
  tree.bits[64] = false;
  expect_back(tree);
  expect_back(Tree{});
}

TEST_P(Contents, OfBitsOfAnyNumber) {
  for (const std::size_t size : {0, 1, 7, 8, 63, 64, 65, 1000}) {
    std::vector<bool> bits(size);
    for (std::size_t i = 0; i < size; ++i) bits[i] = i % 3 == 0;
    expect_back(bits);
  }
}

TEST_P(Contents, OfStringsOfAnyBytes) {
  std::string all(256, 0);
  std::iota(all.begin(), all.end(), static_cast<char>(0));
  expect_back(all);
  expect_back(std::vector<char>(all.begin(), all.end()));
  expect_back(std::vector<std::string>{all, "", all});
  expect_back(std::u16string(3, static_cast<char16_t>(0xd800)));  // half of a pair
  expect_back(std::map<std::string, std::string>{{all, ""}, {"", all}});
}

TEST_P(Contents, OfNumbersThatAreNone) {
  EXPECT_TRUE(std::isnan(back(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(back(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::signbit(back(-0.0)));
  expect_back(std::numeric_limits<float>::infinity());
  expect_back(std::numeric_limits<double>::denorm_min());
  const auto listed = back(std::vector<double>{-0.0, std::numeric_limits<double>::infinity()});
  EXPECT_EQ(listed.back(), std::numeric_limits<double>::infinity());
}

TEST_P(Contents, OfLongDoublesOfEveryKind) {
  using Limits = std::numeric_limits<long double>;
  for (const long double x : {Limits::infinity(), -Limits::infinity(), Limits::max(), Limits::lowest(), Limits::min(),
                              Limits::denorm_min(), 1 + Limits::epsilon(), -0.0L, 1.0L / 3})
    expect_back(x);
  EXPECT_TRUE(std::signbit(back(-0.0L)));
  EXPECT_TRUE(std::isnan(back(Limits::quiet_NaN())));
}

TEST_P(Contents, OfUrisAndAddresses) {
  const auto uri = caf::make_uri("https://me@host:8080/a/path?a=1&b=#part");
  ASSERT_TRUE(uri);
  EXPECT_EQ(to_string(back(*uri)), to_string(*uri));
  EXPECT_EQ(to_string(back(caf::uri{})), "");
  expect_back(caf::make_ipv4_address(127, 0, 0, 1));
  expect_back(caf::ipv6_address({0xfe80}, {1}));
  expect_back(system().node());
  expect_back(caf::node_id{});
}

TEST_P(Contents, OfConfigurations) {
  caf::settings settings;
  put(settings, "scheduler.policy", caf::atom("none"));
  put(settings, "scheduler.max-threads", 42);
  put(settings, "span", caf::timespan{std::chrono::seconds(5)});
  put(settings, "nodes", caf::make_config_value_list("sun", 1.5, true));
  put(settings, "place", *caf::make_uri("file:/a/b"));
  expect_back(caf::config_value{settings});
  expect_back(caf::config_value{});
  expect_back(settings);
}

TEST_P(Contents, OfTuplesThatAreSharedUntilTheyAreWritten) {
  const Pair pair{1, "one"};
  const Pair same = back(pair);
  EXPECT_EQ(same, pair);
}

TEST_P(Contents, OfTypesWithCallbacks) {
  EXPECT_EQ(ask<std::int32_t>(far("taker"), Read::value, Summed{{1, 2, 3}, 0, 6}), 6);
}

TEST_P(Contents, OfErrorsWithinErrors) {
  const caf::error inner = own_error(1, "inner");
  const caf::error outer(2, caf::atom("semantics"), caf::make_message(inner, near("mate"), std::int32_t{7}));
  const auto list = back(std::vector<caf::error>{outer});
  ASSERT_EQ(list.size(), 1u);
  ASSERT_EQ(list[0].context().size(), 3u);
  EXPECT_EQ(brief(list[0].context().get_as<caf::error>(0)), "semantics 1");
}

TEST_P(Contents, OfNoticesThatAreSentAsValues) {
  const auto mate = far("mate");
  std::string told;
  (*self)->send(mirror_, std::int32_t{1}, caf::down_msg{mate.address(), own_error(3, "")},
                caf::exit_msg{mate.address(), own_error(4, "")});
  (*self)->receive([&](std::int32_t, const caf::down_msg& down, const caf::exit_msg& exit) {
    told = brief(down.reason) + " " + brief(exit.reason) + (down.source == exit.source ? "" : " of another");
  });
  EXPECT_EQ(told, "semantics 3 semantics 4");
}

TEST_P(Contents, OfWeakPointersToActors) {
  const auto here = near("mate");
  const auto there = far("mate");
  expect_back(caf::actor_cast<caf::weak_actor_ptr>(here));
  expect_back(caf::actor_cast<caf::weak_actor_ptr>(there));
  expect_back(caf::weak_actor_ptr{});
  expect_back(std::vector<caf::actor_addr>{here.address(), there.address(), {}});
}

TEST_P(Contents, OfPartsOfMessagesAndOfSeveralJoined) {
  const caf::message one = caf::make_message(std::int32_t{5}, std::string("five"));
  EXPECT_EQ(text_back(one.take(1)), "5");
  EXPECT_EQ(text_back(one.drop(1)), "five");
  EXPECT_EQ(text_back(one.take(1) + caf::message{} + one.drop(1) + one.drop(2)), "5five");
}

TEST_P(Contents, OfMessagesWithManyValues) {
  caf::message_builder builder;
  for (std::int32_t i = 0; i < 500; ++i) builder.append(i);
  caf::message back;
  (*self)->send(mirror_, builder.to_message());
  (*self)->receive(caf::others >> [&](caf::message_view& view) -> caf::result<caf::message> {
    back = view.move_content_to_message();
    return caf::message{};
  });
  ASSERT_EQ(back.size(), 500u);
  EXPECT_EQ(back.get_as<std::int32_t>(499), 499);
}

TEST_P(Contents, ThatAreForwardedAsTheyAre) {
  const auto forwarder = far("taker");
  EXPECT_EQ(order(forwarder, Forward::value, far("mirror")), "normal");
  EXPECT_EQ(ask<std::int32_t>(forwarder, std::int32_t{5}), 5);
  EXPECT_EQ(ask<std::string>(forwarder, std::string("text")), "text");
  EXPECT_EQ(ask<Arrays>(forwarder, Arrays{{1}, {{2}}}), (Arrays{{1}, {{2}}}));
  const auto home = far("taker");
  EXPECT_EQ(order(home, Forward::value, near("mirror")), "normal");
  EXPECT_EQ(ask<std::int32_t>(home, std::int32_t{6}), 6);
  EXPECT_EQ(ask<Arrays>(home, Arrays{{3}, {{4}}}), (Arrays{{3}, {{4}}}));
}

TEST_P(Contents, OfMessagesWithinEachOther) {
  EXPECT_EQ(ask<std::int32_t>(far("taker"), Deep::value, nested(50)), 50);
  EXPECT_EQ(ask<std::int32_t>(far("taker"), Deep::value, nested(1)), 1);
}

class ContentDifferences : public Contents {};
INSTANTIATE_TEST_SUITE_P(Over, ContentDifferences, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ContentDifferences);

TEST_P(ContentDifferences, MessagesNestedTooDeeplyAndListsOfTooMuchNothingAreRefused) {
  const auto taker = far("taker");
  const auto deep = ask<std::int32_t>(taker, Deep::value, nested(100));
  EXPECT_EQ(deep ? std::to_string(*deep) : "refused", one_process() ? "100" : "refused");
  const auto many = ask<std::size_t>(taker, Count::value, std::vector<Empty>(5000));
  EXPECT_EQ(many ? std::to_string(*many) : "refused", one_process() ? "5000" : "refused");
  EXPECT_EQ(ask<std::size_t>(taker, Count::value, std::vector<Empty>(4000)), 4000u);
}

TEST_P(ContentDifferences, ValuesThatTheirReaderRefusesAreErrors) {
  const auto answer = ask<std::int32_t>(far("taker"), Read::value, Summed{{-5}, 0, -5});
  EXPECT_EQ(answer ? std::to_string(*answer) : brief(answer.error()),
            one_process() ? "-5" : "troupe " + std::to_string(static_cast<int>(Code::device_fault)));
}

TEST_P(ContentDifferences, ValuesThatTheirReaderRefusesWithinAMessageWithinAMessageAreErrors) {
  const caf::message inner = caf::make_message(std::int32_t{1}, Summed{{-5}, 0, -5});
  const auto answer = ask<std::int32_t>(far("taker"), Deep::value, caf::make_message(std::int32_t{2}, inner));
  EXPECT_EQ(answer ? std::to_string(*answer) : "refused", one_process() ? "2" : "refused");
}

TEST_P(ContentDifferences, AddressesOfActorsThatNobodyKeepsAreEmptyElsewhere) {
  auto mate = near("mate");
  const caf::actor_addr address = mate.address();
  (*self)->send(mate, Quit::value, caf::error{});
  EXPECT_EQ(end_of(mate), "normal");
  mate = {};
  spawned.clear();
  const Deadline deadline = Deadline::after(kLong);
  while (caf::actor_cast<caf::strong_actor_ptr>(address) && !deadline.passed()) std::this_thread::yield();
  const auto same = ask<caf::actor_addr>(mirror_, address);
  ASSERT_TRUE(same) << brief(same.error());
  EXPECT_EQ(*same == address, one_process());
}

}  // namespace

void add_content_roles(caf::actor_system_config& config) {
  add_messages(config, MessageName<Empty>{"semantics.Empty"}, MessageName<Arrays>{"semantics.Arrays"},
               MessageName<Tree>{"semantics.Tree"}, MessageName<Summed>{"semantics.Summed"},
               MessageName<Pair>{"semantics.CowPair"}, MessageName<caf::uri>{"semantics.Uri"},
               MessageName<caf::ipv4_address>{"semantics.Ipv4"}, MessageName<caf::ipv6_address>{"semantics.Ipv6"},
               MessageName<caf::settings>{"semantics.Settings"});
  add_messages_without_lists(config, MessageName<Level>{"semantics.Level"},
                             MessageName<std::vector<bool>>{"semantics.Bits"},
                             MessageName<std::vector<double>>{"semantics.Doubles"});
  register_actor(config, "taker", taker);
}

}  // namespace troupe::test::semantics
