#include <gmock/gmock.h>

#include <caf/send.hpp>
#include <thread>

#include "tests/actors/remote/asking.hpp"
#include "tests/support/child_process.hpp"

// What remote actors guarantee over any transport: two ends in this process, or two processes over shared memory and
// over TCP.
namespace troupe::test {
namespace {

using ::testing::HasSubstr;
using troupe::testing::eventually;

class RemoteActorsOver : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { world = World::make(GetParam()); }
  caf::actor_system& system() { return world->here->system; }
  template <class... Results, class... Parts>
  Answer<Results...> ask_server(Parts&&... parts) {
    return ask<Results...>(system(), world->server, std::forward<Parts>(parts)...);
  }
  caf::actor worker() { return ask_server<caf::actor>(Worker::value).get(); }

  std::unique_ptr<World> world;
};

INSTANTIATE_TEST_SUITE_P(Transports, RemoteActorsOver, ::testing::ValuesIn(World::kinds()),
                         [](const auto& info) { return info.param; });
// A build without UCX has no two processes to test.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RemoteActorsOver);

TEST_P(RemoteActorsOver, AnswerRequests) {
  EXPECT_EQ(ask_server<std::uint64_t>(Echo::value, std::uint64_t{42}).get(), 42u);
  EXPECT_EQ(ask_server<std::string>(Echo::value, std::string("hello")).get(), "hello");
}

TEST_P(RemoteActorsOver, CarryBodiesOfAnySizeInBand) {
  for (const std::size_t size : {0, 3900, 4000, 4096, 65000, 70000, 3 << 20, 20 << 20}) {
    const std::vector<char> body(size, static_cast<char>(size % 100 + 1));
    const auto answer = ask_server<std::vector<char>>(Echo::value, body);
    ASSERT_TRUE(answer.ok()) << size << ": " << answer.why.text();
    EXPECT_EQ(answer.get(), body) << size;
  }
}

TEST_P(RemoteActorsOver, CarryHandlesThatWork) {
  const caf::actor other = worker();
  EXPECT_NE(other.id(), world->server.id());
  EXPECT_EQ((ask<std::uint64_t>(system(), other, Echo::value, std::uint64_t{7}).get()), 7u);
}

TEST_P(RemoteActorsOver, ReceiveInTheOrderOfSendingWhateverTheSize) {
  constexpr std::uint64_t kThreads = 3;
  constexpr std::uint64_t kNotes = 300;
  const auto send_notes = [&](std::uint64_t thread, const std::vector<Tensor>& tensors) {
    std::size_t next_tensor = 0;
    for (std::uint64_t i = 0; i < kNotes; ++i) {
      if (i % 30 == 7) {
        caf::anon_send(world->server, Note::value, thread, i, tensors[next_tensor++]);
      } else if (i % 15 == 4) {
        caf::anon_send(world->server, Note::value, thread, i, std::vector<char>(i % 2 == 0 ? 5000 : 200'000));
      } else {
        caf::anon_send(world->server, Note::value, thread, i);
      }
    }
  };
  constexpr std::array<std::uint64_t, 10> kBytes{16, 1 << 20, 4096, 16, 8 << 20, 65536, 16, 8 << 20, 4096, 1 << 20};
  std::vector<std::vector<Tensor>> tensors(kThreads);
  for (auto& mine : tensors) {
    for (std::size_t i = 0; i < kBytes.size(); ++i) {
      mine.push_back(world->here->tensor(kBytes[i], i));
      const std::uint64_t stamp = i * 30 + 7;
      std::memcpy(world->here->space.address(mine.back().memory()), &stamp, sizeof stamp);
    }
  }
  std::vector<std::thread> senders;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    senders.emplace_back(send_notes, thread, std::cref(tensors[thread]));
  }
  for (auto& sender : senders) sender.join();
  const auto noted = ask_server<std::uint64_t, std::uint64_t>(Noted::value);  // sent last, so it arrives last
  ASSERT_TRUE(noted.ok()) << noted.why.text();
  EXPECT_EQ(noted.get<0>(), kThreads * kNotes);
  EXPECT_EQ(noted.get<1>(), 0u);
}

TEST_P(RemoteActorsOver, TellMonitorsWhyAnActorEnded) {
  const caf::actor other = worker();
  caf::scoped_actor self(system());
  self->monitor(other);
  self->send(other, Quit::value, static_cast<std::uint8_t>(Code::device_fault), std::string("it melted"));
  Status why;
  self->receive([&](const caf::down_msg& down) { why = from_caf(down.reason); }, caf::after(kLong) >> [] {});
  EXPECT_EQ(why.code(), Code::device_fault);
  EXPECT_EQ(why.text(), "it melted");
}

TEST_P(RemoteActorsOver, AnswerRequestsToEndedActorsWithAnError) {
  const caf::actor other = worker();
  caf::scoped_actor self(system());
  auto hanging = self->request(other, kLong, Hang::value, std::uint64_t{0});
  self->send(other, Quit::value, static_cast<std::uint8_t>(Code::aborted), std::string("enough"));
  Status why;
  hanging.receive([](std::uint64_t) {}, [&](const caf::error& error) { why = from_caf(error); });
  EXPECT_EQ(why.code(), Code::peer_lost) << why.text();
  EXPECT_EQ((ask<std::uint64_t>(system(), other, Echo::value, std::uint64_t{1}).why.code()), Code::peer_lost);
}

TEST_P(RemoteActorsOver, AnswerRequestsToUnknownActorsWithAnError) {
  const caf::actor nobody = world->here->remote->lookup(World::kThere, 987654321);
  EXPECT_EQ((ask<std::uint64_t>(system(), nobody, Echo::value, std::uint64_t{1}).why.code()), Code::peer_lost);
}

TEST_P(RemoteActorsOver, DeliverTheLastAnswerBeforeTheEndOfItsSender) {
  for (int round = 0; round < 5; ++round) {
    const auto answer = ask<Tensor>(system(), worker(), Last::value, std::uint64_t{4 << 20});
    ASSERT_TRUE(answer.ok()) << answer.why.text();
    EXPECT_EQ(answer.get().memory().size_bytes, 4u << 20);
  }
}

TEST_P(RemoteActorsOver, AnswerEverythingWhenTheirProcessIsKilled) {
  caf::scoped_actor self(system());
  const caf::actor other = worker();
  self->monitor(other);
  self->monitor(world->server);
  int errors = 0;
  std::vector<std::function<void()>> hanging;
  for (std::uint64_t i = 0; i < 20; ++i) {
    auto handle = std::make_shared<decltype(self->request(other, kLong, Hang::value, i))>(
        self->request(i % 2 == 0 ? other : world->server, kLong, Hang::value, i));
    hanging.push_back([&errors, handle] {
      handle->receive([](std::uint64_t) {},
                      [&](const caf::error& error) { errors += from_caf(error).code() == Code::peer_lost; });
    });
  }
  ASSERT_TRUE(ask_server<std::uint64_t>(Echo::value, std::uint64_t{1}).ok());
  world->kill_there();
  for (const auto& receive : hanging) receive();
  EXPECT_EQ(errors, 20);
  for (int downs = 0; downs < 2; ++downs) {
    Code code = Code::ok;
    self->receive([&](const caf::down_msg& down) { code = from_caf(down.reason).code(); }, caf::after(kLong) >> [] {});
    EXPECT_EQ(code, Code::peer_lost);
  }
  EXPECT_EQ(ask_server<std::uint64_t>(Echo::value, std::uint64_t{1}).why.code(), Code::peer_lost);
}

TEST_P(RemoteActorsOver, AnswerEverythingWhenTheirProcessIsKilledAmongLargeTensors) {
  const Tensor large = world->here->tensor(16 << 20, 1);
  std::atomic<int> echoes{0};
  std::atomic<int> errors{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      while (ask_server<Tensor>(Echo::value, large).ok()) ++echoes;
      ++errors;
    });
  }
  EXPECT_TRUE(eventually([&] { return echoes >= 4; }));
  world->kill_there();
  for (auto& client : clients) client.join();
  EXPECT_EQ(errors, 4);
}

TEST_P(RemoteActorsOver, RefuseTypesThatAreNotRegistered) {
  const auto answer = ask_server<std::uint64_t>(Echo::value, Unregistered{1});
  EXPECT_EQ(answer.why.code(), Code::unsupported);
  EXPECT_THAT(std::string(answer.why.text()), HasSubstr("Unregistered"));
  caf::anon_send(world->server, Unregistered{2});
  EXPECT_TRUE(ask_server<std::uint64_t>(Echo::value, std::uint64_t{1}).ok());
  EXPECT_EQ(world->here->remote->counters().dropped, 2u);
  EXPECT_EQ(world->here->told_dropped, 2u);
}

TEST_P(RemoteActorsOver, TurnAnAnswerThatCannotTravelIntoAnError) {
  const auto answer = ask_server<std::uint64_t>(Untravelled::value);
  EXPECT_EQ(answer.why.code(), Code::unsupported);
  EXPECT_THAT(std::string(answer.why.text()), HasSubstr("Unregistered"));
}

TEST_P(RemoteActorsOver, SurviveAnInspectThatThrows) {
  const auto writing = ask_server<Thorny>(Echo::value, Thorny{Thorny::writing});
  EXPECT_THAT(std::string(writing.why.text()), HasSubstr("a thorn in writing"));
  const auto reading = ask_server<Thorny>(Echo::value, Thorny{Thorny::reading});
  EXPECT_THAT(std::string(reading.why.text()), HasSubstr("a thorn in reading"));
  EXPECT_TRUE(ask_server<Thorny>(Echo::value, Thorny{}).ok());
}

TEST_P(RemoteActorsOver, PassTensorsByReferenceInASharedArena) {
  const Tensor tensor = world->here->tensor(1 << 20, 5, /*shared=*/true);
  const auto where = ask_server<std::uint32_t, std::uint64_t>(Where::value, tensor);
  ASSERT_TRUE(where.ok()) << where.why.text();
  EXPECT_EQ(where.get<0>(), tensor.memory().arena.value);
  EXPECT_EQ(where.get<1>(), tensor.memory().offset);
  EXPECT_EQ(ask_server<Tensor>(Echo::value, tensor).get().memory(), tensor.memory());
  EXPECT_EQ(ask_server<std::uint64_t>(Digest::value, tensor).get(), digest(world->here->space, tensor));
}

TEST_P(RemoteActorsOver, KeepATensorUntilItsLastHandleEndsEverywhere) {
  auto owner = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owner;
  {
    const Tensor tensor = world->here->tensor(4096, 5, /*shared=*/true, {}, std::move(owner));
    ASSERT_TRUE(ask_server<std::uint64_t>(Keep::value, tensor).ok());
  }
  ASSERT_TRUE(ask_server<std::uint64_t>(Echo::value, std::uint64_t{1}).ok());
  EXPECT_FALSE(watch.expired());
  caf::anon_send(world->server, Forget::value);
  EXPECT_TRUE(eventually([&] { return watch.expired(); }));
}

TEST_P(RemoteActorsOver, CopyTensorsFromOtherArenas) {
  for (const std::uint64_t bytes : {0, 4, 60, 4096, 70'000, 9 << 20}) {
    const Tensor tensor = world->here->tensor(bytes, bytes);
    const std::uint64_t expected = digest(world->here->space, tensor);
    const auto there = ask_server<std::uint64_t>(Digest::value, tensor);
    ASSERT_TRUE(there.ok()) << there.why.text();
    EXPECT_EQ(there.get(), expected);
    const auto back = ask_server<Tensor>(Echo::value, tensor);
    ASSERT_TRUE(back.ok()) << back.why.text();
    if (bytes > 0) {
      EXPECT_NE(back.get().memory(), tensor.memory());
    }
    EXPECT_EQ(back.get().extents(), tensor.extents());
    EXPECT_EQ(digest(world->here->space, back.get()), expected);
  }
}

TEST_P(RemoteActorsOver, CarrySeveralTensorsInOneMessage) {
  RemoteEnd& here = *world->here;
  const std::array<Tensor, 3> tensors{here.tensor(100, 1), here.tensor(2 << 20, 2, /*shared=*/true),
                                      here.tensor(3 << 20, 3)};
  const auto answer =
      ask_server<std::uint64_t, std::uint64_t, std::uint64_t>(Digest::value, tensors[0], tensors[1], tensors[2]);
  ASSERT_TRUE(answer.ok()) << answer.why.text();
  EXPECT_EQ(answer.get<0>(), digest(here.space, tensors[0]));
  EXPECT_EQ(answer.get<1>(), digest(here.space, tensors[1]));
  EXPECT_EQ(answer.get<2>(), digest(here.space, tensors[2]));
}

TEST_P(RemoteActorsOver, CarryBytesOfAnySizeInAnyOrder) {
  for (const std::size_t size : {0, 1, 7, 24, 64, 4000, 4096, 70'000, 1 << 20, (1 << 20) + 1, 3'000'000, 5, 12 << 20}) {
    std::vector<char> bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + size);
    const auto back = ask_server<std::vector<char>>(Echo::value, bytes);
    ASSERT_TRUE(back.ok()) << size << ": " << back.why.text();
    EXPECT_EQ(back.get(), bytes) << size;
  }
}

TEST_P(RemoteActorsOver, AnswerOutOfMemoryWhenTheAnswerHasNoPlaceToLand) {
  world.reset();
  world = World::make(GetParam(), {.landing_bytes = 1 << 20});
  const std::vector<char> large(5 << 20);  // comes in pieces, which do not stay where they land
  EXPECT_EQ(ask_server<std::vector<char>>(Echo::value, large).get(), large);
  EXPECT_EQ(ask_server<Tensor>(Echo::value, world->here->tensor(3 << 20, 1)).why.code(), Code::out_of_memory);
  const std::vector<char> small(500'000, 'x');
  EXPECT_EQ(ask_server<std::vector<char>>(Echo::value, small).get(), small);
}

TEST_P(RemoteActorsOver, AreFoundByNameWhenTheyArePublished) {
  auto blocking = Blocking::on_thread("test");
  caf::actor found;
  std::thread finder([&] {
    auto finding = Blocking::on_thread("finder");
    found = world->here->remote->resolve(finding, World::kThere, "late", Deadline::after(kLong));
  });
  caf::anon_send(world->server, Publish::value, std::string("late"));
  finder.join();
  EXPECT_EQ(found, world->server);
  try {
    world->here->remote->resolve(blocking, World::kThere, "never", Deadline::after(std::chrono::milliseconds(20)));
    ADD_FAILURE() << "found an actor that nobody published";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::timeout);
    EXPECT_THAT(error.what(), HasSubstr("never"));
  }
}

}  // namespace
}  // namespace troupe::test
