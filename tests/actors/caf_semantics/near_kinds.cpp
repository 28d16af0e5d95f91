// The far side in this process: the same actor system, or another one over the loopback transport.
#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"
#include "tests/transports/bootstrap_ranks.hpp"
#include "transports/loopback/loopback_transport.hpp"

namespace troupe::test::semantics {
namespace {

class OneProcess final : public Sides {
 public:
  OneProcess() {
    far = Peer{0};
    auto blocking = Blocking::on_thread("test");
    near.group = Group::join(blocking, near.system, {});
    publish_typed_actors(*near.group);
  }
  ~OneProcess() override {
    auto blocking = Blocking::on_thread("test");
    near.group->stop(blocking, Deadline::after(kLong));
  }
  void kill_far() override { throw std::logic_error("it is this process"); }
};

class TwoSystems final : public Sides {
 public:
  TwoSystems() {
    far = Peer{1};
    const testing::Listener listener;
    testing::at_once(2, [&](std::size_t i) {
      Side& side = i == 0 ? near : far_side_;
      auto blocking = Blocking::on_thread("test");
      GroupOptions options;
      options.place = testing::rank_options(listener, static_cast<std::uint32_t>(i), 2).place;
      options.deadline = Deadline::after(kLong);
      options.remote.dropped = [](std::string_view) {};
      options.make_transport = [this](const TransportContext& at) { return network_.endpoint(at.self, at.space); };
      side.group = Group::join(blocking, side.system, std::move(options));
    });
    publish_typed_actors(*far_side_.group);
  }
  ~TwoSystems() override {
    testing::at_once(2, [&](std::size_t i) {
      auto blocking = Blocking::on_thread("test");
      Side& side = i == 0 ? near : far_side_;
      side.group->stop(blocking, Deadline::after(killed_ ? std::chrono::milliseconds(1) : kLong));
    });
    near.group.reset();
    far_side_.group.reset();
  }
  void kill_far() override {
    killed_ = true;
    network_.kill(far);
  }

 private:
  bool killed_ = false;
  LoopbackNetwork network_;
  Side far_side_;
};

}  // namespace

std::vector<std::string> Sides::kinds() { return {"one_process", "two_systems"}; }
std::vector<std::string> Sides::mortal_kinds() { return {"two_systems"}; }

std::unique_ptr<Sides> Sides::make(const std::string& kind) {
  if (kind == "one_process") return std::make_unique<OneProcess>();
  return std::make_unique<TwoSystems>();
}

std::optional<int> run_as_far_side(int, char**) { return {}; }

}  // namespace troupe::test::semantics
