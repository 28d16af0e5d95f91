#pragma once

#include <caf/actor_control_block.hpp>
#include <caf/message.hpp>
#include <caf/response_promise.hpp>
#include <caf/result.hpp>
#include <memory>
#include <utility>

#include "actors/caf_error.hpp"

namespace troupe {

/// The promise of an answer, for a handler that answers later, to a requester in any process. If its last copy is
/// destroyed without an answer, the answer is Error{aborted}. CAF's own promise would not answer at all, and the
/// requester would wait until its time limit. Threads: the actor's calls deliver() and fail(); any may destroy it.
template <class... Results>
class Promise {
 public:
  /// Make it in the handler of the request, once.
  template <class Self>
  explicit Promise(Self* self) : state_(std::make_shared<State>(self->make_response_promise())) {}

  bool pending() const { return state_->promise.pending(); }
  /// Answers. Later answers are ignored.
  void deliver(Results... results) {
    if (!pending()) return;
    if constexpr (sizeof...(Results) == 0) {
      state_->promise.deliver(caf::unit);
    } else {
      state_->promise.deliver(std::move(results)...);
    }
  }
  /// Answers with an error.
  void fail(const Status& why) {
    if (pending()) state_->promise.deliver(to_caf(why));
  }
  /// What the handler returns.
  caf::result<Results...> later() const { return caf::delegated<Results...>{}; }

 private:
  struct State {
    explicit State(caf::response_promise given) : promise(std::move(given)) {}
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() {
      if (!promise.source() || !promise.id().is_request()) return;
      // Not by deliver(), which acts in the name of the actor; this may be another thread.
      const caf::error why = to_caf(Status{Code::aborted, "the actor dropped its promise to answer"});
      promise.source()->enqueue(nullptr, promise.id().response_id(), caf::make_message(why), nullptr);
    }
    caf::response_promise promise;
  };
  std::shared_ptr<State> state_;
};

}  // namespace troupe
