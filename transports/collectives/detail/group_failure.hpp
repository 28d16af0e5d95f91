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

/// The end of a group's exchange at this rank, and the word to the others. Once it has failed every wait of this rank
/// ends, nothing is sent any more, and what arrives is not looked at: the group is of no use until another view makes a
/// new one. The first reason stays. Threads: any, but for construction and watch().
class GroupFailure {
 public:
  GroupFailure(const RoundPlan& plan, LaneLoop& loop) : notices_(*this), plan_(plan), loop_(loop) {}

  /// `line` is poisoned with the reason. Before anything can fail.
  void poisons(Timeline& line) { lines_.push_back(&line); }
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// Ends every wait of this rank with `why`.
  void fail(const Status& why) noexcept;
  /// The same for what went wrong at this rank, which the others hear, too: they need not wait for a deadline.
  void fail_everywhere(const Status& why) noexcept;
  /// Does `what`, unless the group has failed; an Error in it is the group's failure.
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
  /// Tells every other rank, on the lane's thread; again while the transport has no room.
  class Notices final : public LaneTask, public SendDone {
   public:
    explicit Notices(GroupFailure& failure) : failure_(failure) {}
    void run() noexcept override;
    void sent(Status) noexcept override {}
    Status why;  // written before it is posted

   private:
    bool try_tell(std::uint32_t rank);
    GroupFailure& failure_;
    std::uint32_t told_ = 0;  // ranks, this one included
  };

  std::atomic<bool> failed_{false};
  std::atomic<bool> others_told_{false};
  Notices notices_;
  const RoundPlan& plan_;
  LaneLoop& loop_;
  std::vector<Timeline*> lines_;
};

}  // namespace troupe::collectives
