#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "devices/cuda/cuda_device.hpp"
#include "tests/transports/communicator_worlds.hpp"
#include "transports/nccl/nccl_communicator.hpp"

namespace troupe::contracts {

/// Each rank a GPU of its own.
inline MakeDevice gpus() {
  return [](AddressSpace& space, std::uint32_t rank, ActiveWait&) {
    return make_cuda_device(space,
                            {.ordinal = rank, .driver = TROUPE_CUDA_HOST, .products = "own", .convolutions = "own"});
  };
}

/// Ranks with a GPU each, which have mapped each other's arenas.
class NcclWorld final : public DeviceGroup {
 public:
  /// `by_bucket`: the same stripes, given as one range for each rank and bucket, as plans do.
  NcclWorld(const GroupSpec& spec, bool rank_ordered, NcclOptions options = {}, std::vector<Rank> names = {},
            bool by_bucket = false)
      : DeviceGroup(spec, gpus()) {
    options.library = TROUPE_NCCL_HOST;
    const NcclId id = make_nccl_id(options.library);
    for (auto& arena : arenas_) {
      for (auto& space : spaces_) space->map(arena);
      members_.push_back({arena->make_timeline(), arena->make_timeline()});
    }
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      add_device(r, waits_);
      RankView& view = views_[r];
      view.parameters = view.take(spec.elements * sizeof(float));
      view.half = spec.half ? view.take(spec.elements * sizeof(std::uint16_t)) : Memory{};
      allocate_rank(spec, r, *arenas_[r], view);
      add_stream(r);
      NcclGroup group{.rank = Rank{r},
                      .id = id,
                      .members = members_,
                      .names = names,
                      .stripes = by_bucket ? cut(spec) : spec.stripes,
                      .parameters = view.parameters,
                      .half = view.half,
                      .staging = {},
                      .buckets = spec.buckets,
                      .rank_ordered = rank_ordered,
                      .room = kRoom};
      group.staging = view.take(nccl_staging_bytes(group));
      communicators_.push_back(std::make_unique<NcclCommunicator>(*spaces_[r], *view.stream, group, options));
      view.communicator = communicators_.back().get();
    }
    Blocking blocking = Blocking::on_thread("test");
    for (auto& communicator : communicators_)
      communicator->connect(blocking, Deadline::after(std::chrono::seconds{20}));
  }
  ~NcclWorld() override {
    for (auto& communicator : communicators_) communicator->abort({Code::aborted, "the test is over"});
    end_streams();
    communicators_.clear();
    end_devices();
  }

  /// How many calls the rank's stream has done.
  std::uint64_t calls_done(std::uint32_t rank) const {
    return spaces_[rank]->timeline(members_[rank].progress).value() / 2;
  }

 private:
  static std::vector<Stripe> cut(const GroupSpec& spec) {
    std::vector<Stripe> all;
    for (const Bucket& bucket : spec.buckets)
      for (const Stripe& stripe : spec.stripes) all.push_back(common_part(stripe, bucket));
    return all;
  }

  static constexpr std::uint64_t kRoom = 8000;

  PlainWait waits_;
  std::vector<NcclMember> members_;
  std::vector<std::unique_ptr<NcclCommunicator>> communicators_;
};

/// Steps of a group with one bucket, whose exchanges are enqueued `as_pieces` of recorded work or call by call; after
/// each, all ranks have the bits of a serial run.
inline void expect_bits_of_a_serial_run(const GroupSpec& spec, const CommunicatorCase& with, bool as_pieces) {
  constexpr std::uint64_t kSteps = 12;
  std::vector<Programs> programs(spec.ranks);
  WorkingGroup group{spec, with};
  std::vector<std::vector<Memory>> seen(kSteps);
  for (std::uint64_t step = 0; step < kSteps; ++step)
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      RankView& view = group.world->rank(r);
      const Bucket& bucket = spec.buckets[0];
      group.enqueue_gradients(r, step, bucket, WorkingGroup::put(view, SerialRun::gradients(spec, r, step)));
      const StripeMemory mine = group.part_of(r, bucket);
      const auto exchange = [&] {
        view.stream->wait(view.communicator->reduce_update_gather(
            *view.stream, group.work_of(r, step, bucket, {&mine, 1}), rule_step(spec.rule, step + 1)));
      };
      if (as_pieces)
        view.stream->enqueue(programs[r], exchange);
      else
        exchange();
      seen[step].push_back(view.arena->allocate(spec.elements * sizeof(float)));
      view.stream->copy(seen[step].back(), view.parameters);
    }
  ASSERT_TRUE(group.finish());
  SerialRun serial{spec};
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    serial.take_step(step);
    for (std::uint32_t r = 0; r < spec.ranks; ++r)
      ASSERT_EQ(WorkingGroup::get<float>(group.world->rank(r), seen[step][r]), serial.parameters)
          << "step " << step << ", rank " << r;
  }
  for (const Programs& kept : programs) EXPECT_TRUE(!as_pieces || kept.replayed() >= kSteps / 2);
  // NCCL's graphs end before its communicators.
  for (std::uint32_t r = 0; r < spec.ranks; ++r) {
    const auto statuses = group.reach({{r, group.world->rank(r).stream->mark()}});
    ASSERT_TRUE(statuses && statuses->front().ok());
  }
  programs.clear();
}

}  // namespace troupe::contracts
