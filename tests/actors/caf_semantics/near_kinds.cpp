// All sides in this process: in one actor system, or in three over the loopback transport.
#include <array>

#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"
#include "tests/transports/bootstrap_ranks.hpp"
#include "transports/loopback/loopback_transport.hpp"

namespace troupe::test::semantics {
namespace {

class OneProcess final : public Sides {
 public:
  OneProcess() {
    far = third = Peer{0};
    auto blocking = Blocking::on_thread("test");
    near.group = Group::join(blocking, near.system, {});
    publish_typed_actors(*near.group);
  }
  ~OneProcess() override {
    auto blocking = Blocking::on_thread("test");
    near.group->stop(blocking, Deadline::after(kLong));
  }
  void kill_far() override { throw std::logic_error("it is this process"); }
  void leave_far() override { kill_far(); }
};

class ThreeSystems final : public Sides {
 public:
  ThreeSystems() {
    far = Peer{1};
    third = Peer{2};
    const testing::Listener listener;
    testing::at_once(kSize, [&](std::size_t i) {
      auto blocking = Blocking::on_thread("test");
      GroupOptions options;
      options.place = testing::rank_options(listener, static_cast<std::uint32_t>(i), kSize).place;
      options.deadline = Deadline::after(kLong);
      options.remote.dropped = [](std::string_view) {};
      options.make_transport = [this](const TransportContext& at) { return network_.endpoint(at.self, at.space); };
      side(i).group = Group::join(blocking, side(i).system, std::move(options));
    });
    publish_typed_actors(*side(far.value).group);
  }
  ~ThreeSystems() override {
    testing::at_once(kSize, [&](std::size_t i) {
      auto blocking = Blocking::on_thread("test");
      side(i).group->stop(blocking, Deadline::after(killed_ ? std::chrono::milliseconds(1) : kLong));
    });
    for (std::size_t i = 0; i < kSize; ++i) side(i).group.reset();
  }
  void kill_far() override {
    killed_ = true;
    network_.kill(far);
  }
  void leave_far() override {
    auto blocking = Blocking::on_thread("test");
    side(far.value).group->leave(blocking, Deadline::after(kLong));
  }

 private:
  static constexpr std::size_t kSize = 3;
  Side& side(std::size_t i) { return i == 0 ? near : others_[i - 1]; }
  bool killed_ = false;
  LoopbackNetwork network_;
  std::array<Side, kSize - 1> others_;
};

}  // namespace

std::vector<std::string> Sides::kinds() { return {"one_process", "three_systems"}; }
std::vector<std::string> Sides::mortal_kinds() { return {"three_systems"}; }

std::unique_ptr<Sides> Sides::make(const std::string& kind) {
  if (kind == "one_process") return std::make_unique<OneProcess>();
  return std::make_unique<ThreeSystems>();
}

std::optional<int> run_as_far_side(int, char**) { return {}; }

}  // namespace troupe::test::semantics
