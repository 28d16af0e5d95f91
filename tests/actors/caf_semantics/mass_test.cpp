#include <malloc.h>

#include <array>
#include <caf/event_based_actor.hpp>
#include <caf/response_promise.hpp>
#include <caf/stateful_actor.hpp>
#include <thread>

#include "actors/group/registration.hpp"
#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"

// Many actors, handles and requests: all work, and what has ended takes no memory.
namespace troupe::test::semantics {
namespace {

using Breed = caf::atom_constant<caf::atom("breed")>;  // (Breed, n): n new actors
using Poll = caf::atom_constant<caf::atom("poll")>;    // (Poll, actors): how many of them answer
using Storm = caf::atom_constant<caf::atom("storm")>;  // (Storm, actor, n): n requests of 1 ms; answers and timeouts
using Used = caf::atom_constant<caf::atom("used")>;    // the bytes that its process has allocated
using Actors = std::vector<caf::actor>;

std::uint64_t bytes_used() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

/// Answers nothing.
caf::behavior silent(caf::event_based_actor* self) {
  return {[=](Echo, std::int32_t) -> caf::result<std::int32_t> {
    self->make_response_promise();
    return caf::delegated<std::int32_t>{};
  }};
}

caf::behavior one_of_many(caf::event_based_actor* self) {
  return {[](Echo, std::int32_t x) { return x; }, [=](Quit) { self->quit(); }};
}

struct BreederState {
  std::int32_t answers = 0;
  std::int32_t late = 0;
};

caf::behavior breeder(caf::stateful_actor<BreederState>* self) {
  return {[=](Breed, std::uint64_t n) {
            Actors made;
            for (std::uint64_t i = 0; i < n; ++i) made.push_back(self->spawn(one_of_many));
            return made;
          },
          [=](Poll, const Actors& actors) -> caf::result<std::int32_t> {
            auto promise = self->make_response_promise();
            auto right = std::make_shared<std::int32_t>(0);
            auto left = std::make_shared<std::size_t>(actors.size());
            for (std::size_t i = 0; i < actors.size(); ++i) {
              const auto number = static_cast<std::int32_t>(i);
              auto count = [=](bool is_right) mutable {
                *right += is_right;
                if (--*left == 0) promise.deliver(*right);
              };
              // CAF keeps a timeout until its time has come, also when the answer has arrived.
              self->request(actors[i], caf::infinite, Echo::value, number)
                  .then([=](std::int32_t x) mutable { count(x == number); },
                        [=](const caf::error&) mutable { count(false); });
            }
            return caf::delegated<std::int32_t>{};
          },
          [=](Storm, const caf::actor& other, std::int32_t n) -> caf::result<std::int32_t, std::int32_t> {
            auto promise = self->make_response_promise();
            self->state = {};
            auto look = [=]() mutable {
              const auto& s = self->state;
              if (s.answers + s.late == n) promise.deliver(s.answers, s.late);
            };
            for (std::int32_t i = 0; i < n; ++i) {
              self->request(other, std::chrono::milliseconds(1), Echo::value, i)
                  .then(
                      [=](std::int32_t x) mutable {
                        self->state.answers += x == i;
                        look();
                      },
                      [=](const caf::error& why) mutable {
                        self->state.late += why == caf::sec::request_timeout;
                        look();
                      });
            }
            return caf::delegated<std::int32_t, std::int32_t>{};
          },
          [](Used) { return bytes_used(); }};
}

class Masses : public Semantics {
 protected:
  void end(const Actors& actors) {
    for (const auto& one : actors) caf::anon_send(one, Quit::value);
  }
  Actors breed(const caf::actor& by, std::uint64_t n) {
    auto made = ask<Actors>(by, Breed::value, n);
    if (!made) throw std::runtime_error(brief(made.error()));
    return std::move(*made);
  }
  /// 5000 requests that are never answered.
  void let_time_out(const caf::actor& breeder, const caf::actor& silent) {
    std::int32_t timed_out = 0;
    (*self)
        ->request(breeder, kLong, Storm::value, silent, std::int32_t{5000})
        .receive([&](std::int32_t, std::int32_t late) { timed_out = late; },
                 [](const caf::error& e) { ADD_FAILURE() << brief(e); });
    EXPECT_EQ(timed_out, 5000);
  }
  /// How many requests of an actor here are open, according to the report on its group.
  std::size_t open_requests_of(caf::actor_id actor) {
    const std::string report = group().remote().describe(blocking, Deadline::after(kLong));
    const std::string line = "actor " + std::to_string(actor) + " waits for an answer";
    std::size_t count = 0;
    for (auto at = report.find(line); at != std::string::npos; at = report.find(line, at + 1)) ++count;
    return count;
  }
  bool at_most_open(caf::actor_id actor, std::size_t most) {
    const Deadline deadline = Deadline::after(kLong);
    while (open_requests_of(actor) > most) {
      if (deadline.passed()) return false;
      std::this_thread::yield();
    }
    return true;
  }
  static constexpr std::size_t kFew = 1024;  // are not looked through
  std::uint64_t used_by(const caf::actor& breeder) { return *ask<std::uint64_t>(breeder, Used::value); }
};
INSTANTIATE_TEST_SUITE_P(Over, Masses, ::testing::ValuesIn(Sides::kinds()), name_of_kind);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Masses);

TEST_P(Masses, OfTenThousandActorsAllAnswerEveryone) {
  const auto there = far("breeder");
  const auto many = breed(there, 10'000);
  EXPECT_EQ(ask<std::int32_t>(near("breeder"), Poll::value, many), 10'000);
  EXPECT_EQ(ask<std::int32_t>(third("breeder"), Poll::value, many), 10'000);
  for (const auto& one : many) (*self)->monitor(one);
  end(many);
  for (std::size_t i = 0; i < many.size(); ++i) EXPECT_EQ(next_down(), "normal");
}

TEST_P(Masses, OfHandlesThatArePassedAndReleasedTakeNoMemory) {
  const auto here = near("breeder");
  const auto there = far("breeder");
  const auto beyond = third("breeder");
  const auto round = [&](std::uint64_t n) {
    const auto many = breed(there, n);
    EXPECT_EQ(ask<std::int32_t>(beyond, Poll::value, many), static_cast<std::int32_t>(n));
    for (const auto& one : many) (*self)->monitor(one);
    end(many);
    for (std::size_t i = 0; i < many.size(); ++i) EXPECT_EQ(next_down(), "normal");
  };
  constexpr std::uint64_t kEach = 5000;  // all rounds: each of 50,000 handles is passed twice
  round(kEach);
  constexpr std::uint64_t kRounds = 9;
  const auto used = [&] { return std::array{bytes_used(), used_by(there), used_by(beyond)}; };
  const auto before = used();
  for (std::uint64_t i = 0; i < kRounds; ++i) round(kEach);
  const auto after = used();
  // Less than the smallest thing that was ever kept for an actor (160 bytes), but enough for pools of UCX's that grow,
  // and for the actors of the last round, of whose end the third side may learn later than this one.
  constexpr std::uint64_t kMost = kRounds * kEach * 80;
  for (std::size_t side = 0; side < 3; ++side) EXPECT_LT(after[side], before[side] + kMost) << "side " << side;
}

TEST_P(Masses, OfRequestsThatTimeOutInAFloodAreEachHandledOnce) {
  const auto there = far("breeder");
  const auto here = near("breeder");
  const auto other = breed(there, 1).front();
  for (int round = 0; round < 3; ++round) {
    std::int32_t all = 0;
    (*self)
        ->request(here, kLong, Storm::value, other, std::int32_t{3000})
        .receive([&](std::int32_t answers, std::int32_t late) { all = answers + late; },
                 [](const caf::error& e) { ADD_FAILURE() << brief(e); });
    EXPECT_EQ(all, 3000);
  }
  EXPECT_EQ(ask<std::int32_t>(other, Echo::value, std::int32_t{1}), 1);
  end({other});
}

TEST_P(Masses, OfRequestsThatTimedOutAreForgotten) {
  const auto here = near("breeder");
  let_time_out(here, far("silent"));
  EXPECT_TRUE(at_most_open(here.id(), kFew));
}

TEST_P(Masses, OfRequestsOfBlockingActorsThatTimedOutAreForgottenWithTheirActor) {
  const auto there = far("silent");
  const auto here = near("breeder");
  const std::size_t many = one_process() ? 0 : 100;
  caf::actor_id blocking_actor = 0;
  {
    const caf::scoped_actor asking(system());
    blocking_actor = asking->id();
    for (std::int32_t i = 0; i < 100; ++i)
      asking->request(there, std::chrono::milliseconds(0), Echo::value, i)
          .receive([](std::int32_t) {}, [](const caf::error&) {});
    let_time_out(here, there);
    EXPECT_TRUE(at_most_open(here.id(), kFew));
    EXPECT_EQ(open_requests_of(blocking_actor), many);
  }
  EXPECT_TRUE(at_most_open(blocking_actor, 0));
}

TEST_P(Masses, OfActorsThatAskOnceTakeNoMemory) {
  const auto there = far("breeder");
  const auto other = breed(there, 1).front();
  const auto round = [&] {
    for (std::int32_t i = 0; i < 2000; ++i) {
      const caf::scoped_actor once(system());
      std::int32_t answer = -1;
      once->request(other, kLong, Echo::value, i)
          .receive([&](std::int32_t x) { answer = x; }, [](const caf::error&) {});
      EXPECT_EQ(answer, i);
    }
  };
  round();
  const std::uint64_t before = bytes_used();
  for (int i = 0; i < 3; ++i) round();
  EXPECT_LT(bytes_used(), before + (1u << 20));
  end({other});
}

}  // namespace

void add_mass_roles(caf::actor_system_config& config) {
  register_actor(config, "breeder", breeder);
  register_actor(config, "silent", silent);
}

}  // namespace troupe::test::semantics
