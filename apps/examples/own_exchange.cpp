// A policy and a communicator of the app's own. Ranks work locally, as under update.policy = "local_sgd", but their
// rounds are 1, 2, 4, ... steps apart, up to update.every_steps: early rounds keep the ranks together while the weights
// move fast. The communicator counts rounds and bytes, and passes everything on. Arguments: app.toml, then settings.
#include <algorithm>
#include <iostream>

#include "apps/session/session.hpp"

using namespace troupe;

/// Source of growing periods: Haddadpour et al. 2019 (Local SGD with periodic averaging), section 4.
class GrowingPeriods final : public RoundPolicy {
 public:
  explicit GrowingPeriods(std::uint64_t longest) : longest_(longest) {}
  StepActions next(const StepFacts& facts) override {
    StepActions actions{.local_update = true};
    if (++steps_ < period_ && !facts.last) return actions;
    steps_ = 0;
    period_ = std::min(2 * period_, longest_);
    actions.sent = Sent::delta;
    actions.outer = {.kind = RuleKind::sgd, .rate = 1};  // the new weights are the mean of the ranks' weights
    actions.finish = true;
    return actions;
  }

 private:
  const std::uint64_t longest_;
  std::uint64_t period_ = 1, steps_ = 0;
};

struct Counts {
  std::uint64_t rounds = 0, bytes = 0;
};

class CountingCommunicator final : public Communicator {
 public:
  CountingCommunicator(Counts& counts, std::unique_ptr<Communicator> own) : counts_(counts), own_(std::move(own)) {}

  Point reduce_update_gather(Stream& stream, const BucketWork& work, const RuleStep& rule) override {
    counts_.rounds += work.first;
    counts_.bytes += work.gradients.size_bytes;
    return own_->reduce_update_gather(stream, work, rule);
  }

  CommunicatorTraits traits() const noexcept override { return own_->traits(); }
  Rank rank() const noexcept override { return own_->rank(); }
  std::uint32_t ranks() const noexcept override { return own_->ranks(); }
  void reduce_scatter(Stream& s, std::span<const OwnedPart> parts) override { own_->reduce_scatter(s, parts); }
  void all_gather(Stream& s, std::span<const OwnedPart> parts) override { own_->all_gather(s, parts); }
  void barrier(Stream& s) override { own_->barrier(s); }
  Point gather_gradients(Stream& s, const BucketWork& work) override { return own_->gather_gradients(s, work); }
  Point agree(Stream& s, const BucketWork& work) override { return own_->agree(s, work); }
  Point update_gather(Stream& s, const BucketWork& work, const RuleStep& rule) override {
    return own_->update_gather(s, work, rule);
  }
  void barrier_with_relieved(Stream& s) override { own_->barrier_with_relieved(s); }
  void abort(const Status& why) noexcept override { own_->abort(why); }

 private:
  Counts& counts_;
  const std::unique_ptr<Communicator> own_;
};

int main(int argc, char** argv) try {
  if (argc < 2) return std::cerr << "usage: " << argv[0] << " app.toml [key=value ...]\n", 2;
  auto blocking = Blocking::on_thread("main");
  SessionOptions options{.configuration = read_configuration(argv[1], {argv + 2, argv + argc})};
  options.place = launch_place_from_environment();
  options.make_policy = [](const PolicySettings& named, std::uint32_t) -> std::unique_ptr<RoundPolicy> {
    if (named.kind != PolicyKind::local_sgd) return nullptr;
    return std::make_unique<GrowingPeriods>(named.every_steps);
  };
  Counts counts;
  options.make_communicator = [&](const CommunicatorContext&, std::unique_ptr<Communicator> own) {
    return std::make_unique<CountingCommunicator>(counts, std::move(own));
  };
  const RunResult result = Session::start(blocking, std::move(options))->run(blocking);
  if (!result.status.ok()) std::cerr << result.status.text() << std::endl;
  std::cout << result.total.steps << " steps, " << counts.rounds << " rounds, " << counts.bytes << " bytes"
            << std::endl;
  return exit_code(result.status.code());
} catch (const Error& error) {
  std::cerr << error.what() << std::endl;
  return exit_code(error.code());
}
