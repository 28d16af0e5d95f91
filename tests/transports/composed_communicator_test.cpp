#include "transports/collectives/composed_communicator.hpp"

#include <gtest/gtest.h>

#include "tests/transports/communicator_worlds.hpp"

namespace troupe::contracts {
namespace {

/// A library that has plain operations only: those of ranks that share arenas.
class PlainOnly final : public ComposedCommunicator {
 public:
  PlainOnly(AddressSpace& space, const ArenaGroup& arenas, ComposedGroup group)
      : ComposedCommunicator(arenas.rank, static_cast<std::uint32_t>(arenas.members.size()), std::move(group)),
        plain_(space, arenas) {}
  CommunicatorTraits traits() const noexcept override { return {}; }
  Rank rank() const noexcept override { return plain_.rank(); }
  std::uint32_t ranks() const noexcept override { return plain_.ranks(); }
  void reduce_scatter(Stream& stream, std::span<const OwnedPart> parts) override {
    plain_.reduce_scatter(stream, parts);
  }
  void all_gather(Stream& stream, std::span<const OwnedPart> parts) override { plain_.all_gather(stream, parts); }
  void barrier(Stream& stream) override { plain_.barrier(stream); }
  void abort(const Status& why) noexcept override { plain_.abort(why); }

 private:
  ArenaCommunicator plain_;
};

/// Ranks with a copy of the parameters each.
class PlainWorld final : public DeviceGroup {
 public:
  PlainWorld(const GroupSpec& spec, MakeDevice make_device) : DeviceGroup(spec, std::move(make_device)) {
    ArenaGroup all{.rank = {}, .members = {}};
    for (auto& space : spaces_)
      for (auto& arena : arenas_) space->map(arena);
    for (std::uint32_t r = 0; r < spec.ranks; ++r) add_device(r, waits_);
    for (std::uint32_t r = 0; r < spec.ranks; ++r)
      for (std::uint32_t other = 0; other < spec.ranks; ++other) import(r, other);
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      Arena& arena = *arenas_[r];
      views_[r].parameters = views_[r].take(spec.elements * sizeof(float));
      views_[r].bf16 = spec.bf16 ? views_[r].take(spec.elements * sizeof(std::uint16_t)) : Memory{};
      allocate_rank(spec, r, arena, views_[r]);
      all.members.push_back({views_[r].contributions, views_[r].sums, arena.make_timeline(), arena.make_timeline(),
                             views_[r].take(8000)});
    }
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      all.rank = Rank{r};
      communicators_.push_back(
          std::make_unique<PlainOnly>(*spaces_[r], all,
                                      ComposedGroup{spec.stripes, spec.buckets, views_[r].parameters, views_[r].bf16,
                                                    views_[r].take(spec.ranks * sizeof(StepSums))}));
      views_[r].communicator = communicators_.back().get();
      add_stream(r);
    }
  }
  ~PlainWorld() override {
    for (auto& communicator : communicators_) communicator->abort({Code::aborted, "the test is over"});
    end_streams();
    end_devices();
  }

 private:
  PlainWait waits_;
  std::vector<std::unique_ptr<PlainOnly>> communicators_;
};

CommunicatorCase plain_case(std::string name, std::function<MakeDevice(const GroupSpec&)> devices) {
  return {std::move(name), [=](const GroupSpec& spec) { return std::make_unique<PlainWorld>(spec, devices(spec)); }};
}

INSTANTIATE_TEST_SUITE_P(
    Composed, CommunicatorContract,
    ::testing::Values(plain_case("Fake", [](const GroupSpec& spec) { return fake_devices(spec.seed); }),
                      plain_case("FarMemory", [](const GroupSpec& spec) { return far_devices(spec.seed); }),
                      plain_case("Threads", [](const GroupSpec&) { return reference_devices(); })),
    communicator_name);

}  // namespace
}  // namespace troupe::contracts
