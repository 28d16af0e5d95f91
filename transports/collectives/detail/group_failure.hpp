#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/lanes/lane_loop.hpp"
#include "runtime/lanes/transport.hpp"
#include "runtime/memory/timeline.hpp"
#include "transports/collectives/detail/round_plan.hpp"

namespace troupe::collectives {

/// The failure of a group's exchange at this rank, and the notice to the others. After a failure every wait of this
/// rank ends, nothing is sent any more, and arriving messages are ignored: the group cannot be used until another view
/// makes a new one. The first reason remains. Threads: any, except for construction and watch().
class GroupFailure {
 public:
  GroupFailure(const RoundPlan& plan, LaneLoop& loop) : notices_(*this), plan_(plan), loop_(loop) {}

  /// `line` will be poisoned with the reason. Before anything can fail.
  void poisons(Timeline& line) { lines_.push_back(&line); }
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// Ends every wait of this rank with `why`.
  void fail(const Status& why) noexcept;
  /// The same for a failure of this rank itself. The others are told, so they need not wait for a deadline.
  void fail_everywhere(const Status& why) noexcept;
  /// Calls `what`, unless the group has failed; an Error from it makes the group fail.
  template <class What>
  void guarded(What&& what) noexcept {
    if (failed()) return;
    try {
      what();
    } catch (const Error& error) {
      fail_everywhere(error.status());
    } catch (const std::exception& error) {
      fail_everywhere({Code::device_fault, error.what()});
    }
  }

 private:
  /// Sends the notice to every other rank, on the lane's thread; tries again while the transport has no space.
  class Notices final : public LaneTask, public SendDone {
   public:
    explicit Notices(GroupFailure& failure) : failure_(failure) {}
    void run() noexcept override;
    void sent(Status) noexcept override {}
    Status why;  // written before it is posted

   private:
    bool try_tell(std::uint32_t rank);
    GroupFailure& failure_;
    std::uint32_t told_ = 0;  // number of ranks that were handled, including this one
  };

  std::atomic<bool> failed_{false};
  std::atomic<bool> others_told_{false};
  Notices notices_;
  const RoundPlan& plan_;
  LaneLoop& loop_;
  std::vector<Timeline*> lines_;
};

}  // namespace troupe::collectives
