#pragma once

#include <algorithm>
#include <atomic>
#include <caf/actor_system.hpp>
#include <caf/execution_unit.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/resumable.hpp>
#include <caf/scheduled_actor.hpp>
#include <chrono>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "actors/remote/calls.hpp"
#include "runtime/base/clock.hpp"

namespace troupe {

/// Where inline actors run: the control lane's thread. Its actors keep it alive; when the lane has ended, the scheduler
/// runs them.
class InlineExecutor {
 public:
  virtual ~InlineExecutor() = default;
  /// The unit that resumes its actors. Its exec_later may be called by any thread.
  virtual caf::execution_unit* unit() noexcept = 0;
  /// Whether it still runs actors. Any thread.
  virtual bool runs() const noexcept = 0;
};

namespace detail {

/// The interface of an inline actor to its executor.
class InlineHandler {
 public:
  virtual ~InlineHandler() = default;
  /// On the executor's thread: handles a message at once, bypassing the mailbox, and takes it. False: the mailbox has
  /// an earlier message, or the actor is not ready.
  virtual bool handle(caf::mailbox_element_ptr& message) = 0;
  /// The actor, if it can take calls now.
  virtual CallTaker* call_taker() noexcept = 0;
  caf::execution_unit* executor_unit() const noexcept { return executor_->unit(); }
  bool executor_runs() const noexcept { return executor_->runs(); }
  /// Counts a handler that blocked the lane for too long. True after several of them: the scheduler then runs the actor
  /// for a second, and twice as long each time that it is moved again soon after it came back.
  bool count_slow_handler(Clock::time_point now) noexcept {
    if (++slow_handlers_ < kMostSlowHandlers) return false;
    slow_handlers_ = 0;
    away_ = now - return_at_ > kLongestAway ? kShortestAway : std::min(2 * away_, kLongestAway);
    return_at_ = now + away_;
    moved_.store(true, std::memory_order_release);  // the scheduler sees everything done here
    return true;
  }
  /// On the executor's thread: when the time is over, the actor runs here again.
  void return_inline(Clock::time_point now) noexcept {
    if (now >= return_at_) moved_.store(false, std::memory_order_release);
  }
  bool is_moved() const noexcept { return moved_.load(std::memory_order_acquire); }

 protected:
  explicit InlineHandler(std::shared_ptr<InlineExecutor> executor) noexcept : executor_(std::move(executor)) {}
  caf::execution_unit* unit() const noexcept { return is_moved() ? nullptr : executor_->unit(); }

 private:
  static constexpr int kMostSlowHandlers = 3;
  static constexpr Clock::duration kShortestAway = std::chrono::seconds(1);
  static constexpr Clock::duration kLongestAway = std::chrono::seconds(64);
  const std::shared_ptr<InlineExecutor> executor_;
  // Used by the executor's thread:
  int slow_handlers_ = 0;
  Clock::duration away_{};
  Clock::time_point return_at_{};
  std::atomic<bool> moved_{false};
};

/// An actor of class `Base` that runs inline, for all senders.
template <class Base>
class InlineActor final : public Base, public InlineHandler {
 public:
  template <class... Arguments>
  InlineActor(caf::actor_config& config, std::shared_ptr<InlineExecutor> executor, Arguments&&... arguments)
      : Base(config, std::forward<Arguments>(arguments)...), InlineHandler(std::move(executor)) {}

  using Base::enqueue;
  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit*) override {
    Base::enqueue(std::move(what), this->unit());
  }
  /// A sender may have given the actor to the scheduler while it was moved, and the scheduler may resume it after it
  /// came back. Then the executor takes it over, since its thread may be running a handler of this actor.
  caf::resumable::resume_result resume(caf::execution_unit* by, std::size_t most) override {
    if (by == this->executor_unit() || this->is_moved() || !this->executor_runs()) return Base::resume(by, most);
    caf::intrusive_ptr_add_ref(static_cast<caf::resumable*>(this));
    this->executor_unit()->exec_later(this);
    return caf::resumable::awaiting_message;
  }
  CallTaker* call_taker() noexcept override {
    if constexpr (std::is_base_of_v<CallTaker, Base>) {
      if (!is_moved() && this->mailbox().blocked()) return this;  // begun, not ended, and not scheduled
    }
    return nullptr;
  }
  bool handle(caf::mailbox_element_ptr& message) override {
    using Scheduled = caf::scheduled_actor;
    auto& mailbox = this->mailbox();
    // Blocked means: it has begun, and no thread has scheduled it since.
    if (is_moved() || !mailbox.blocked()) return false;
    auto& queues = mailbox.queue().queues();
    if (!std::get<Scheduled::normal_queue_index>(queues).cache().empty() ||
        !std::get<Scheduled::urgent_queue_index>(queues).cache().empty()) {
      return false;  // skipped messages, which the next resume() looks at again
    }
    const auto result = this->activate(executor_unit(), *message);
    if (result == Scheduled::activation_result::skipped) {
      Base::enqueue(std::move(message), executor_unit());
    } else {
      message.reset();
    }
    return true;
  }
};

}  // namespace detail

/// Spawns an actor that `executor` runs: a function with a self pointer, as for caf::actor_system::spawn.
template <class Function, class... Arguments>
auto spawn_inline(caf::actor_system& system, const std::shared_ptr<InlineExecutor>& executor, Function function,
                  Arguments&&... arguments) {
  using Base = caf::infer_impl_from_fun_t<Function>;
  caf::actor_config config{executor->unit()};
  if constexpr (sizeof...(Arguments) == 0) {
    // Without arguments, CAF's factory would take them from a null pointer. This helper gets an empty tuple instead.
    using Trait = typename caf::detail::get_callable_trait<Function>::type;
    constexpr bool kReturnsBehavior = std::is_convertible_v<typename Trait::result_type, caf::behavior>;
    constexpr bool kTakesSelf = Trait::num_args == 1;
    using Helper = caf::detail::init_fun_factory_helper<Base, Function, std::shared_ptr<std::tuple<>>, kReturnsBehavior,
                                                        kTakesSelf>;
    config.init_fun = caf::detail::unique_function<caf::behavior(caf::local_actor*)>{
        new Helper{std::move(function), std::make_shared<std::tuple<>>()}};
  } else {
    caf::detail::init_fun_factory<Base, Function> factory;
    config.init_fun = factory(std::move(function), std::forward<Arguments>(arguments)...);
  }
  return system.spawn_impl<detail::InlineActor<Base>, caf::no_spawn_options>(config, executor);
}

/// The same for an actor class.
template <class Class, class... Arguments>
auto spawn_inline(caf::actor_system& system, const std::shared_ptr<InlineExecutor>& executor,
                  Arguments&&... arguments) {
  caf::actor_config config{executor->unit()};
  return system.spawn_impl<detail::InlineActor<Class>, caf::no_spawn_options>(config, executor,
                                                                              std::forward<Arguments>(arguments)...);
}

}  // namespace troupe
