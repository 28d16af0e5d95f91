#include "actors/remote/detail/proxy.hpp"

#include <caf/system_messages.hpp>
#include <utility>

#include "actors/remote/detail/engine.hpp"
#include "actors/remote/detail/inline_unit.hpp"

namespace troupe::remote {

Proxy::Proxy(caf::actor_config& config, Engine& engine, PeerState& peer)
    : actor_proxy(config),
      engine_(engine),
      peer_(peer),
      gate_(engine.gate()),
      room_(peer.room),
      when_full_(engine.options().when_full) {
  allowance.limit(limit_of_edge(peer.window));
}

Proxy::~Proxy() = default;

void Proxy::enqueue(caf::mailbox_element_ptr what, caf::execution_unit*) {
  if (is_exit(*what)) {
    unlink_from(what->content().get_as<caf::exit_msg>(0).source);  // else the link would fire back when this proxy ends
  }
  // An inline actor is on the lane's thread already. What others have sent before goes first: it may be its own.
  if (running_inline() == gate_.get() && !posted_.load(std::memory_order_acquire)) {
    if (room_->full() && !admit(*what)) return;
    engine_.attend_fresh();
    engine_.attend(*this);
    if (!engine_.transmit(*this, std::move(what))) room_->enter();
    return;
  }
  if (room_->full() && !admit(*what)) return;
  room_->enter();
  caf::mailbox_element* const element = what.release();
  caf::mailbox_element* before = newest_.load(std::memory_order_relaxed);
  do {
    element->next = before;
  } while (!newest_.compare_exchange_weak(before, element, std::memory_order_acq_rel, std::memory_order_relaxed));
  if (!wake()) answer_all_with_the_end();
}

/// Whether a message may join those that wait already.
bool Proxy::admit(const caf::mailbox_element& message) {
  if (is_free(message)) return true;
  const WhenFull choice = when_full_.load(std::memory_order_relaxed);
  if (choice == WhenFull::wait && running_inline() == nullptr && room_->wait()) return true;
  answer(message.sender, message.mid,
         Status{Code::out_of_memory,
                text(room_->count(),
                     " messages to another process wait already, and it takes none; send less, or raise "
                     "RemoteOptions::max_waiting")});
  const bool tell = room_->turn_away() && choice != WhenFull::drop && !message.mid.is_request();
  if (tell) gate_->run([engine = &engine_, peer = &peer_] { engine->note_turned_away(*peer); });
  return false;
}

/// The lane holds a reference from the post to the end of run(), so a proxy with messages cannot die.
bool Proxy::wake() noexcept {
  if (posted_.exchange(true, std::memory_order_acq_rel)) return true;
  intrusive_ptr_add_ref(ctrl());
  if (gate_->post(*this)) return true;
  posted_.store(false, std::memory_order_release);
  intrusive_ptr_release(ctrl());
  return false;
}

void Proxy::run() noexcept {
  const caf::strong_actor_ptr self(ctrl(), false);
  posted_.exchange(false, std::memory_order_acq_rel);  // first, so that a message that comes now posts again
  std::uint32_t done = 0;
  caf::mailbox_element* next = take_all();
  engine_.attend_fresh();
  while (next != nullptr) {
    caf::mailbox_element_ptr message(std::exchange(next, static_cast<caf::mailbox_element*>(next->next)));
    message->next = nullptr;
    if (engine_.transmit(*this, std::move(message))) ++done;
  }
  if (done > 0) room_->leave(done);
}

/// In the order of sending.
caf::mailbox_element* Proxy::take_all() noexcept {
  caf::mailbox_element* newest = newest_.exchange(nullptr, std::memory_order_acq_rel);
  caf::mailbox_element* oldest = nullptr;
  while (newest != nullptr) {
    auto* const earlier = static_cast<caf::mailbox_element*>(newest->next);
    newest->next = oldest;
    oldest = newest;
    newest = earlier;
  }
  return oldest;
}

void Proxy::answer_all_with_the_end() noexcept {
  caf::mailbox_element* next = take_all();
  while (next != nullptr) {
    const caf::mailbox_element_ptr message(std::exchange(next, static_cast<caf::mailbox_element*>(next->next)));
    message->next = nullptr;
    room_->leave();
    answer(message->sender, message->mid,
           Status{Code::aborted, "this process has ended its connection to other processes"});
  }
}

void Proxy::kill_proxy(caf::execution_unit* context, caf::error reason) {
  alive_.store(false, std::memory_order_release);
  cleanup(std::move(reason), context);
}

}  // namespace troupe::remote
