#pragma once

#include <gmock/gmock.h>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/expected.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/caf_error.hpp"
#include "actors/group/group.hpp"

// Two sides at which actors are spawned: the near one, in this process, and the far one, which is the same actor
// system, another one of this process, or that of a child process. CAF's guarantees must hold for each of them.
namespace troupe::test::semantics {

constexpr auto kLong = std::chrono::seconds(100);  // ten times what 400 MB take beside eight busy loops

/// The configuration of both sides: message types, and the roles of all files (roles.hpp).
struct Config : caf::actor_system_config {
  Config();
};

/// One side: an actor system and its group.
struct Side {
  Config config;
  caf::actor_system system{config};
  std::unique_ptr<Group> group;
};

/// Both sides, from the near one's point of view.
class Sides {
 public:
  /// The kinds of far side that this program can test: "one_process", "two_systems"; or "shm", "tcp".
  static std::vector<std::string> kinds();
  /// Those of them in which the far side can be killed alone.
  static std::vector<std::string> mortal_kinds();
  static std::unique_ptr<Sides> make(const std::string& kind);
  virtual ~Sides() = default;
  /// As SIGKILL does.
  virtual void kill_far() = 0;

  Side near;
  Peer far;
};

/// Runs as a child process, if the arguments ask for it.
std::optional<int> run_as_far_side(int argc, char** argv);

/// Sides that the tests use one after the other until one test fails. They end with the program.
class SharedSides final : public ::testing::Environment {
 public:
  SharedSides();
  ~SharedSides() override;
  void TearDown() override { sides_.clear(); }
  static Sides& of(const std::string& kind);
  static void drop(const std::string& kind);

 private:
  std::map<std::string, std::unique_ptr<Sides>> sides_;
};

/// An error as the assertions compare it: "normal", "exit user_shutdown", "system request_timeout", "category code".
std::string brief(const caf::error& error);

/// A test with two sides, an actor `self` of its own at the near one, and actors by their roles at either.
class Semantics : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
  void TearDown() override;

  template <class Handle = caf::actor, class... Args>
  Handle far(const std::string& role, Args&&... args) {
    return spawn<Handle>(sides().far, role, std::forward<Args>(args)...);
  }
  template <class Handle = caf::actor, class... Args>
  Handle near(const std::string& role, Args&&... args) {
    return spawn<Handle>(group().self(), role, std::forward<Args>(args)...);
  }
  /// The answer of `whom`.
  template <class Result, class Handle, class... Parts>
  caf::expected<Result> ask_within(std::chrono::milliseconds within, const Handle& whom, Parts&&... parts) {
    caf::expected<Result> answer = caf::make_error(caf::sec::runtime_error);
    (*self)
        ->request(whom, within, std::forward<Parts>(parts)...)
        .receive([&](Result& result) { answer = std::move(result); },
                 [&](caf::error& error) { answer = std::move(error); });
    return answer;
  }
  template <class Result, class Handle, class... Parts>
  caf::expected<Result> ask(const Handle& whom, Parts&&... parts) {
    return ask_within<Result>(kLong, whom, std::forward<Parts>(parts)...);
  }
  /// The same for an actor whose answer is empty: "normal", or the error.
  template <class Handle, class... Parts>
  std::string order(const Handle& whom, Parts&&... parts) {
    caf::error why;
    (*self)
        ->request(whom, kLong, std::forward<Parts>(parts)...)
        .receive([] {}, [&](caf::error& error) { why = std::move(error); });
    return brief(why);
  }
  /// The reason in the next down message that `self` gets.
  std::string next_down();
  /// Whether the actor answers requests yet.
  bool lives(const caf::actor& mate);
  /// Waits for the end of an actor and returns its reason; the actor may have ended before.
  std::string end_of(const caf::actor& actor);

  virtual Sides& sides() { return SharedSides::of(GetParam()); }
  Group& group() { return *sides().near.group; }
  caf::actor_system& system() { return sides().near.system; }
  bool one_process() const { return GetParam() == "one_process"; }

  Blocking blocking = Blocking::on_thread("test");
  std::optional<caf::scoped_actor> self;
  std::vector<caf::strong_actor_ptr> spawned;

 private:
  template <class Handle, class... Args>
  Handle spawn(Peer peer, const std::string& role, Args&&... args) {
    auto made = group().try_spawn_at<Handle>(blocking, peer, role, Deadline::after(kLong), std::forward<Args>(args)...);
    if (!made) throw std::runtime_error(role + ": " + caf::to_string(made.error()));
    spawned.push_back(caf::actor_cast<caf::strong_actor_ptr>(*made));
    return std::move(*made);
  }
};

/// The same with sides that belong to this test alone, so that it may kill them.
class MortalSemantics : public Semantics {
 protected:
  void SetUp() override {
    own = Sides::make(GetParam());
    Semantics::SetUp();
  }
  void TearDown() override {
    Semantics::TearDown();
    own.reset();
  }
  Sides& sides() override { return *own; }
  std::unique_ptr<Sides> own;
};

inline std::string name_of_kind(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

}  // namespace troupe::test::semantics
