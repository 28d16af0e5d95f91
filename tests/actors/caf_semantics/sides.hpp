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

// Three sides at which actors are spawned: the near one, in this process, and the far and the third one, which are the
// same actor system, others of this process, or those of child processes. CAF's guarantees must hold for each of them.
namespace troupe::test::semantics {

constexpr auto kLong = std::chrono::seconds(100);  // ten times what 400 MB take beside eight busy loops

/// The configuration of all sides: message types, and the roles of all files (roles.hpp).
struct Config : caf::actor_system_config {
  Config();
};

/// One side: an actor system and its group.
struct Side {
  Config config;
  caf::actor_system system{config};
  std::unique_ptr<Group> group;
};

/// All sides, from the near one's point of view.
class Sides {
 public:
  /// How the sides are connected, as far as this program can test it: "one_process", "three_systems"; or "shm", "tcp".
  static std::vector<std::string> kinds();
  /// Those of them in which the far side can be killed alone.
  static std::vector<std::string> mortal_kinds();
  static std::unique_ptr<Sides> make(const std::string& kind);
  virtual ~Sides() = default;
  /// As SIGKILL does.
  virtual void kill_far() = 0;
  /// The far side leaves the group, which ends the actors that others have spawned there.
  virtual void leave_far() = 0;

  Side near;
  Peer far;
  Peer third;
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

/// A test with three sides, an actor `self` of its own at the near one, and actors by their roles at each.
class Semantics : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
  void TearDown() override;

  template <class Handle = caf::actor, class... Args>
  Handle far(const std::string& role, Args&&... args) {
    return spawn<Handle>(sides().far, role, std::forward<Args>(args)...);
  }
  template <class Handle = caf::actor, class... Args>
  Handle third(const std::string& role, Args&&... args) {
    return spawn<Handle>(sides().third, role, std::forward<Args>(args)...);
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
  /// What a mate has logged, or the error.
  std::string log_of(const caf::actor& mate);
  bool log_becomes(const caf::actor& mate, const std::string& what);

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
