#include "actors/remote/detail/proxy.hpp"

#include <caf/detail/serialized_size.hpp>
#include <caf/system_messages.hpp>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/remote/detail/inline_unit.hpp"
#include "actors/remote/detail/outbound.hpp"
#include "actors/remote/detail/proxies.hpp"

namespace troupe::remote {
namespace {

/// Only when this number of messages to a peer wait does the size of each one matter.
constexpr std::uint64_t kManyWait = 256;

/// True while this thread executes a link change that another process requested.
thread_local bool quiet = false;

class Quietly {
 public:
  Quietly() noexcept { quiet = true; }
  ~Quietly() { quiet = false; }
};

}  // namespace

std::uint64_t cost_of(caf::actor_system& system, const caf::mailbox_element& message) noexcept {
  try {
    caf::detail::serialized_size_inspector size(system);
    const caf::type_erased_tuple& content = message.content();
    for (std::size_t i = 0; i < content.size(); ++i) {
      if (content.save(i, size)) break;  // it will be refused later, with the reason
    }
    return wire::cost_of(size.result(), 0);
  } catch (...) {  // of a user's inspect; likewise
    return wire::cost_of(0, 0);
  }
}

Proxy::Proxy(caf::actor_config& config, Outbound& outbound, PeerState& peer)
    : actor_proxy(config),
      outbound_(outbound),
      peer_(peer),
      lane_access_(outbound.context().lane_access),
      outgoing_(peer.outgoing),
      budget_(outbound.context().outgoing) {}

Proxy::~Proxy() = default;

SendWindow& Proxy::make_send_window() {
  std::call_once(send_window_made_, [this] {
    owned_send_window_ = std::make_unique<SendWindow>();
    send_window_.store(owned_send_window_.get(), std::memory_order_release);
  });
  return *owned_send_window_;
}

void Proxy::enqueue(caf::mailbox_element_ptr what, caf::execution_unit*) {
  if (is_exit(*what)) {
    unlink_from(what->content().get_as<caf::exit_msg>(0).source);  // else the link fires again when this proxy ends
  }
  if (!admit(*what)) return;
  // An inline actor runs on the lane's thread already. But messages of other senders go first: one may be its own.
  if (running_inline() == lane_access_.get() && !posted_.load(std::memory_order_acquire)) {
    outbound_.proxies().serve_new();
    outbound_.proxies().serve(*this);
    return outbound_.transmit(*this, std::move(what));
  }
  push(std::move(what));
}

void Proxy::push(caf::mailbox_element_ptr message) {
  const std::uint64_t bytes =
      outgoing_->messages.fetch_add(1, std::memory_order_relaxed) < kManyWait || message->sender.get() == ctrl()
          ? wire::kMessageBytes
          : cost_of(home_system(), *message);
  budget_->enter(bytes);
  queued_bytes_.fetch_add(bytes, std::memory_order_relaxed);  // before another thread can take the message
  sent_.push(*message.release());
  if (!wake()) fail_all_requests();
}

/// Whether there is space for a message, in the actor's window and in this process's memory. Answers and exit messages
/// are always accepted, since their receivers may be the actors that would make space.
bool Proxy::admit(const caf::mailbox_element& message) {
  SendWindow* const send_window = this->send_window();
  const bool no_memory = budget_->full();  // read once: other threads send, and the lane takes messages away
  if (!no_memory && send_window == nullptr) return true;
  const bool counted = !is_free(message) && message.sender.get() != ctrl();
  if (!counted || (!no_memory && (send_window == nullptr || !send_window->full()))) {
    if (counted && send_window != nullptr) send_window->enter();
    return true;
  }
  const WhenFull choice = no_memory ? WhenFull::error : send_window->when_full();
  if (message.mid.is_request()) {  // its text costs more than a send
    answer(message.sender, message.mid,
           Status{Code::out_of_memory,
                  no_memory ? text("messages to other processes take ", budget_->used(),
                                   " bytes here already, since a receiver is slow; send less, or raise "
                                   "RemoteOptions::memory_bytes")
                            : text(send_window->count(),
                                   " messages to that actor are not handled yet, all that its window has space for "
                                   "(RemoteActors::bound)")});
  }
  outgoing_->sends_refused.fetch_add(1, std::memory_order_relaxed);
  const bool report = choice != WhenFull::drop && !message.mid.is_request();
  if (report && outgoing_->unreported.fetch_add(1) == 0)
    lane_access_->run([outbound = &outbound_, peer = &peer_] { outbound->note_refused_send(*peer); });
  return false;
}

bool Proxy::add_backlink(caf::abstract_actor* local) {
  if (!actor_proxy::add_backlink(local)) return false;
  if (!quiet) push(caf::mailbox_element_ptr{new LinkChange(ctrl(), local->ctrl(), true)});
  return true;
}

bool Proxy::remove_backlink(caf::abstract_actor* local) {
  if (!actor_proxy::remove_backlink(local)) return false;
  if (!quiet) push(caf::mailbox_element_ptr{new LinkChange(ctrl(), local->ctrl(), false)});
  return true;
}

void Proxy::link_quietly(caf::abstract_actor& local) {
  exclusive_critical_section([&] { actor_proxy::add_backlink(&local); });
}

void Proxy::unlink_quietly(caf::abstract_actor& local) {
  const Quietly hold;
  local.remove_link(this);
}

/// The lane holds a reference from the post until the end of run(), so a proxy with messages is not destroyed.
bool Proxy::wake() noexcept {
  if (posted_.exchange(true, std::memory_order_acq_rel)) return true;
  intrusive_ptr_add_ref(ctrl());
  if (lane_access_->post(*this)) return true;
  posted_.store(false, std::memory_order_release);
  intrusive_ptr_release(ctrl());
  return false;
}

void Proxy::run() noexcept {
  const caf::strong_actor_ptr self(ctrl(), false);
  posted_.exchange(false, std::memory_order_acq_rel);  // first, so that a message that arrives now posts again
  std::uint64_t done = 0;
  const std::uint64_t bytes = queued_bytes_.exchange(0, std::memory_order_acq_rel);  // of these, or slightly more
  caf::mailbox_element* next = sent_.take_all();
  outbound_.proxies().serve_new();
  while (next != nullptr) {
    caf::mailbox_element_ptr message(std::exchange(next, Messages::next_of(*next)));
    message->next = nullptr;
    outbound_.transmit(*this, std::move(message));
    ++done;
  }
  budget_->leave(bytes);
  outgoing_->messages.fetch_sub(done, std::memory_order_relaxed);
}

void Proxy::fail_all_requests() noexcept {
  budget_->leave(queued_bytes_.exchange(0, std::memory_order_acq_rel));
  caf::mailbox_element* next = sent_.take_all();
  while (next != nullptr) {
    const caf::mailbox_element_ptr message(std::exchange(next, Messages::next_of(*next)));
    message->next = nullptr;
    outgoing_->messages.fetch_sub(1, std::memory_order_relaxed);
    answer(message->sender, message->mid,
           Status{Code::aborted, "this process has ended its connection to other processes"});
  }
}

void Proxy::kill_proxy(caf::execution_unit* context, caf::error reason) {
  alive_.store(false, std::memory_order_release);
  if (SendWindow* const send_window = this->send_window()) send_window->open();
  cleanup(std::move(reason), context);
}

}  // namespace troupe::remote
