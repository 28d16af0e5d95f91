// The exchange of a hosted group: with a staleness of 0 it guarantees what synchronous ones do.

#include "tests/actors/exchange/hosted_world.hpp"
#include "tests/contracts/exchange_contract.hpp"

namespace troupe::contracts {
namespace {

/// Starts the world with the first step of any rank; until then a test may write parameters.
template <class World>
class StartedByStep final : public Exchange {
 public:
  StartedByStep(std::shared_ptr<bool> started, World& world, std::unique_ptr<Exchange> exchange)
      : started_(std::move(started)), world_(world), exchange_(std::move(exchange)) {}
  void begin(Stream& stream, const StepFacts& facts, Memory sums, Memory total) override {
    if (!std::exchange(*started_, true)) world_.start();
    exchange_->begin(stream, facts, sums, total);
  }
  bool has_round() const noexcept override { return exchange_->has_round(); }
  bool totals_are_common() const noexcept override { return exchange_->totals_are_common(); }
  void contribute(Stream& stream, const Bucket& bucket) override { exchange_->contribute(stream, bucket); }
  void commit(Stream& stream) override { exchange_->commit(stream); }
  bool is_consistent() const noexcept override { return exchange_->is_consistent(); }
  void show_common(Stream& stream) override { exchange_->show_common(stream); }
  void show_own(Stream& stream) override { exchange_->show_own(stream); }
  const PolicySettings& policy() const noexcept override { return exchange_->policy(); }
  void switch_at(Step step, const PolicySettings& policy) override { exchange_->switch_at(step, policy); }
  std::uint64_t updates() const noexcept override { return exchange_->updates(); }
  std::vector<StripeMemory> retire(const Status& why) noexcept override { return exchange_->retire(why); }

 private:
  std::shared_ptr<bool> started_;
  World& world_;
  std::unique_ptr<Exchange> exchange_;
};

/// The suite makes the ranks' exchanges one after the other, right behind their world.
template <class World, class MakeDevice>
ExchangeCase hosted_case(std::string name, MakeDevice make_device) {
  struct Made {
    World* world = nullptr;
    std::shared_ptr<bool> started;
    std::uint32_t ranks = 0;
  };
  const auto made = std::make_shared<Made>();
  return {{std::move(name),
           [=](const GroupSpec& spec) {
             auto world = std::make_unique<World>(spec, make_device(spec));
             *made = {world.get(), std::make_shared<bool>(false), 0};
             return world;
           }},
          [=](const GroupSpec&, const RankView&, std::uint64_t updates) -> std::unique_ptr<Exchange> {
            const test::HostedOptions options{.updates = updates};
            if (made->ranks == 0) made->world->host(options);
            return std::make_unique<StartedByStep<World>>(made->started, *made->world,
                                                          made->world->exchange(made->ranks++, options));
          },
          false};
}

using FakeWorld = test::HostedWorld<test::ActorWorld>;
using ThreadsWorld = test::HostedWorld<test::ThreadedActors>;

FakeWorld::MakeDevice fakes(const GroupSpec& spec) {
  return
      [seed = spec.seed](AddressSpace& space, std::uint32_t rank) { return test::fake_device_of(seed, space, rank); };
}
ThreadsWorld::MakeDevice threads(const GroupSpec&) {
  return [](AddressSpace& space, std::uint32_t) { return make_reference_device(space); };
}

INSTANTIATE_TEST_SUITE_P(Hosted, ExchangeContract,
                         ::testing::Values(hosted_case<FakeWorld>("HostedFake", fakes),
                                           hosted_case<ThreadsWorld>("HostedThreads", threads)),
                         exchange_name);

}  // namespace
}  // namespace troupe::contracts
