#pragma once

#include <array>
#include <atomic>
#include <caf/actor.hpp>
#include <caf/proxy_registry.hpp>
#include <caf/scoped_execution_unit.hpp>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "actors/remote/detail/bodies.hpp"
#include "actors/remote/detail/budget.hpp"
#include "actors/remote/detail/codec.hpp"
#include "actors/remote/detail/gate.hpp"
#include "actors/remote/detail/inline_unit.hpp"
#include "actors/remote/detail/open_calls.hpp"
#include "actors/remote/detail/outbox.hpp"
#include "actors/remote/detail/proxy.hpp"
#include "actors/remote/detail/room.hpp"
#include "actors/remote/detail/settled.hpp"
#include "actors/remote/detail/sinks.hpp"
#include "actors/remote/detail/slab_pool.hpp"
#include "actors/remote/detail/window.hpp"
#include "actors/remote/remote_actors.hpp"
#include "actors/remote/wire.hpp"
#include "runtime/base/mpsc_stack.hpp"

namespace troupe::remote {

/// The directory of a process has this actor id for its peers; CAF counts from 1 and never gets here.
inline constexpr caf::actor_id kDirectory = caf::actor_id{1} << 62;

/// Answers a request with an error; anything else is left alone.
void answer(const caf::strong_actor_ptr& sender, caf::message_id id, const caf::error& error);
void answer(const caf::strong_actor_ptr& sender, caf::message_id id, const Status& status);

/// With as much of its text as fits into a head.
Status shortened(const Status& why);

/// Answers to requests, and orders to end, need no room of their own: whoever waits for them may be the one who would
/// make room. They keep their place behind what was sent before.
bool is_free(const caf::mailbox_element& message);
bool is_exit(const caf::mailbox_element& message);

/// A counter that one thread writes and any may read.
class Tally {
 public:
  void add(std::uint64_t n = 1) noexcept { value_.store(get() + n, std::memory_order_relaxed); }
  void set(std::uint64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
  std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// Told that an actor of the peer ended, and why.
struct Ended {
  caf::actor_id actor = 0;
  caf::error reason;
};

struct PeerState {
  Peer number;
  caf::node_id node;
  std::uint64_t offered = 0;  // charge that it takes of all processes' messages unhandled
  std::uint64_t share = 0;    // of that this process's part, if there are as many others there as here
  std::shared_ptr<Waiting> waiting = std::make_shared<Waiting>();  // any thread's
  std::shared_ptr<PeerIntake> intake;                              // of its messages here
  struct {
    Tally messages_sent, bytes_sent, messages_received, bytes_received, batches_sent, batched_sent, unhandled;
    std::array<Tally, std::tuple_size_v<decltype(PeerCounters::answer_ns_log2)>> answer_ns_log2;
  } counts;  // the control lane's to write
  // The control lane's:
  bool dead = false;
  Status why;
  std::uint32_t next_order = 0;                // sequence number of the next message, link or DOWN notice to this peer
  Settled settled;                             // the messages and downs from it that are dealt with
  caf::strong_actor_ptr last_sender;           // a proxy
  std::map<std::uint64_t, Ended> ended;        // by their place; wait for all that was sent before them
  std::size_t held = 0;                        // messages from it before their turn
  bool condemned = false;                      // about to be lost: nothing more is taken in
  std::atomic<std::uint32_t> proxies_made{0};  // any thread's
  Allowance allowance;
  std::uint64_t next_body = 0;                // in pieces, to it
  std::deque<caf::strong_actor_ptr> blocked;  // proxies of it that have messages blocked
  std::deque<std::pair<std::uint64_t, Ended>>
      blocked_ends;  // news of ends, which wait for what was blocked before them
  std::uint64_t next_ticket = 0;
  std::vector<std::shared_ptr<EdgeIntake>> edges;  // of its messages here
  std::vector<std::byte> batch;                    // a frame that is being filled
  std::uint64_t batched = 0;                       // heads in it
  std::vector<std::uint64_t> given_back;           // tokens, to be sent together
  bool heard = false;                              // since the last look at heartbeats
  bool spoken_to = false;
  std::uint64_t refused = 0;      // of its messages, for want of memory, since it was told
  std::uint32_t calls_there = 0;  // of this process, without an answer
  std::uint32_t calls_here = 0;   // of the peer
};

/// What arrived, whole: the bytes live during the call only.
struct Arrival {
  std::span<const std::byte> head;
  Memory payload;
  std::shared_ptr<const void> payload_owner;
  bool refused = false;   // there was no memory for its payload
  ArrivedBody body = {};  // one that came in pieces
};

/// One process's remote actors. All state belongs to the control lane's thread, except where it says otherwise; the
/// bulk lane only sends what it is handed, and hands over what arrives.
class Engine final : public Receiver, public caf::proxy_registry::backend {
 public:
  Engine(caf::actor_system& system, AddressSpace& space, LaneLoop& control, LaneLoop& bulk, Peer self,
         RemoteOptions options);
  ~Engine() override;

  /// `offered`: bytes of all processes' messages that the peer takes unhandled.
  void add_peer(Peer peer, const caf::node_id& node, std::uint64_t offered);
  /// What this process offers.
  std::uint64_t offers() const noexcept {
    return options_.unhandled_bytes != 0 ? options_.unhandled_bytes : incoming_->limit() / 2;
  }
  const std::shared_ptr<Budget>& outgoing() const noexcept { return outgoing_; }
  void bound(Proxy& proxy, const Window& window, WhenFull when_full, std::chrono::milliseconds wait_within);
  const caf::actor& rooms() const noexcept { return rooms_; }
  caf::actor handle(Peer peer, caf::actor_id actor);
  void lost_any_thread(Peer peer, const Status& why, bool found_here = false);
  bool stop(Deadline deadline);
  RemoteCounters counters() const noexcept;
  PeerCounters counters(Peer peer) const;
  std::string describe(Deadline deadline);
  const std::shared_ptr<Gate>& gate() const noexcept { return gate_; }
  void post_sink(SinkKey key, Memory memory, std::shared_ptr<const void> owner);
  std::size_t withdraw_sinks(SinkKey key) { return sinks_.withdraw(key); }
  /// Any thread, as the next.
  Callee callee(const caf::actor& actor);
  void call(Callee callee, std::span<const std::byte> question, CallDone& done);
  // For calls, on the control lane.
  void answer_call(Peer to, std::uint64_t ticket, const Status& status, std::span<const std::byte> bytes);
  void send_answer(Peer to, std::uint64_t ticket, std::span<std::byte> frame);
  const RemoteOptions& options() const noexcept { return options_; }
  const std::shared_ptr<InlineUnit>& inline_unit() const noexcept { return inline_; }
  const caf::actor& own_directory() const noexcept { return directory_; }
  caf::actor_system& system() const noexcept { return system_; }
  Peer self() const noexcept { return self_; }

  // For proxies, on the control lane.
  void attend(Proxy& proxy);
  /// Attends to all proxies made until now. Whoever monitors an actor and then sends a message elsewhere relies on the
  /// first being heard first, so a proxy calls this before it transmits what it has collected.
  void attend_fresh() {
    if (!fresh_.empty()) attend_all_fresh();
  }
  /// Sends it, answers it with an error, or keeps it until the peer takes more.
  void transmit(Proxy& proxy, caf::mailbox_element_ptr message);
  void note_turned_away(PeerState& peer);

  // proxy_registry::backend, any thread
  caf::strong_actor_ptr make_proxy(caf::node_id node, caf::actor_id actor) override;
  void set_last_hop(caf::node_id*) override {}

  // Receiver, either lane's thread
  Memory landing(Peer from, Lane lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept override;
  void arrived(Peer from, Lane lane, std::span<const std::byte> head, Memory payload) noexcept override;
  void dropped(Peer from, Lane lane, Memory payload, const Status& why) noexcept override;
  void lost(Peer peer, const Status& why) noexcept override;

 private:
  struct Held {  // a message before its turn
    std::vector<std::byte> head;
    Memory payload;
    std::shared_ptr<const void> payload_owner;
    bool refused = false;
    ArrivedBody body;
  };
  struct Stream {  // the messages of one process to one actor
    std::uint32_t next = 0;
    std::unordered_map<std::uint32_t, Held> held;
    std::shared_ptr<EdgeIntake> edge;
  };
  struct Local {  // an actor of this process that others know
    caf::strong_actor_ptr actor;
    troupe::detail::InlineGuest* inline_guest = nullptr;  // the actor, when it is one
    bool (*waits)(caf::abstract_actor&) = nullptr;        // whether it has looked at all of its mailbox
    std::vector<Peer> watchers;
    std::map<Peer, Stream> streams;
  };
  struct RequestKey {
    caf::actor_id requester = 0;
    std::uint64_t request = 0;
    friend bool operator==(const RequestKey&, const RequestKey&) = default;
  };
  struct RequestKeyHash {
    std::size_t operator()(const RequestKey& key) const noexcept {
      return key.requester * 0x9e3779b97f4a7c15 + key.request;
    }
  };
  struct Outstanding {
    caf::message_id id;
    Peer peer;
    caf::actor_id target = 0;
    Clock::time_point sent;  // of those that are timed
  };
  struct Lent {
    Peer peer;
    Tensor tensor;
  };
  /// How a message's tensors travel.
  struct TensorPlan {
    std::vector<wire::TensorRecord> records;
    std::vector<Tensor> copied;
    std::vector<Point> awaited;  // before the message may go
    std::uint64_t copied_bytes = 0;

    /// Keeps its memory.
    void clear() noexcept {
      records.clear();
      copied.clear();
      awaited.clear();
      copied_bytes = 0;
    }
  };
  class PointsReached;
  class Borrowed;

  PeerState* peer(Peer number) noexcept;
  PeerState* peer(const caf::node_id& node) noexcept;

  // outbound.cpp
  bool open(const Proxy& proxy) const noexcept;
  void send_now(Proxy& proxy, caf::mailbox_element& message);
  void send_link(Proxy& proxy, const LinkChange& change);
  void block(Proxy& proxy, caf::mailbox_element_ptr message);
  void send_blocked(PeerState& to);
  void send_blocked_ends(PeerState& to);
  void drop_blocked(Proxy& proxy, const caf::error& why);
  void drop_blocked(PeerState& to, const caf::error& why);
  void tell_end(PeerState& to, caf::actor_id actor, const caf::error& reason);
  void send_credit(PeerState& to);
  void send_head(PeerState& to, std::span<const std::byte> head);
  void flush_batch(PeerState& to);
  bool flush_batches();
  void send_given_back(PeerState& to);
  bool flush_given_back();
  void refuse(Proxy& proxy, caf::mailbox_element& message, const Status& why);
  Status plan(PeerState& to, std::span<const Tensor> tensors, TensorPlan& plan);
  Status check_kind(const Tensor& tensor, bool by_reference) const;
  bool reached(Point point) const;
  std::uint64_t source_of(const caf::strong_actor_ptr& sender, wire::Header& header);
  void send_message(Proxy& proxy, wire::Header header, TensorPlan& plan);
  using Frames = std::vector<std::unique_ptr<Frame>>;
  void cut_into_pieces(PeerState& to, std::shared_ptr<const Body> body, Frames& frames);
  void dispatch(Frames frames);
  void park(Frames frames, const std::vector<Point>& awaited);
  bool flush_refused();
  void unpark(std::uint64_t ticket, const Status& status);
  void send_control(PeerState& to, wire::Header header);
  void send_down(PeerState& to, caf::actor_id actor, const caf::error& reason);

  // inbound.cpp
  void take_in(Peer from, Arrival&& arrival);
  void take_in_batch(PeerState& from, std::span<const std::byte> heads);
  void take_in_credit(PeerState& from, const wire::Header& header, std::span<const std::byte> body);
  void take_in_release(PeerState& from, const wire::Header& header, std::span<const std::byte> more);
  void take_in_frame(PeerState& from, const wire::Header& header, Arrival& arrival);
  void take_in_message(PeerState& from, const wire::Header& header, Arrival& arrival);
  void take_in_window(PeerState& from, const wire::Header& header);
  // The bulk lane's:
  void take_in_piece(Peer from, const wire::Header& header, Memory payload);
  void refuse_piece(Peer from, const wire::Header& header, std::uint64_t size_bytes);
  void wait_for_body(Peer from, const wire::Header& header, Bodies::Message message);
  void hand_on(Peer from, Bodies::Whole whole);
  void blame(Peer from, const char* why);
  void notice_skipped();
  void deliver(PeerState& from, const wire::Header& header, Arrival& arrival, const Stream& stream, Local& to);
  void end_link(PeerState& from, const caf::mailbox_element& message, Local& to);
  void change_link(PeerState& from, const wire::Header& header, Local& to);
  Status decode(PeerState& from, const wire::Header& header, const Arrival& arrival,
                const caf::strong_actor_ptr& sender, troupe::detail::Receipt receipt,
                caf::mailbox_element_ptr& message);
  Status decode_lone(PeerState& from, const wire::Header& header, const Arrival& arrival,
                     const caf::strong_actor_ptr& sender, troupe::detail::Receipt receipt,
                     caf::mailbox_element_ptr& message);
  std::optional<Memory> sink_for(std::span<const std::byte> head, std::uint64_t size_bytes);
  Status land(PeerState& from, const wire::TensorRecord& record, const Arrival& arrival,
              detail::TensorSlots::Landed& tensor);
  void give_back(PeerState& from, std::uint64_t token);
  void abandon(PeerState& from, const wire::Header& header, std::span<const std::byte> head);
  void take_in_monitor(PeerState& from, caf::actor_id actor);
  void take_in_down(PeerState& from, const wire::Header& header, const Arrival& arrival);
  void settle(PeerState& from, std::uint32_t order);
  void hold(PeerState& from, const wire::Header& header, Arrival& arrival, Stream& stream);
  std::shared_ptr<EdgeIntake>& edge_of(PeerState& from, caf::actor_id actor, Stream& stream);
  void end_remote(PeerState& from, const Ended& ended);
  caf::strong_actor_ptr sender_of(PeerState& from, const wire::Header& header);
  void drop(const std::string& what);

  // calls.cpp
  void take_in_call(PeerState& from, const wire::Header& header, std::span<const std::byte> question);
  void take_in_answer(PeerState& from, const wire::Header& header, std::span<const std::byte> body);
  void take_call(Peer from, caf::actor_id callee, std::uint64_t ticket, std::span<const std::byte> question);
  void end_call(Peer of, std::uint64_t ticket, const Status& status, std::span<const std::byte> answer);

  // engine.cpp
  /// A backlog that takes more is worth giving its memory back to the system when it is gone.
  static constexpr std::uint64_t kLargeBacklog = std::uint64_t{16} << 20;
  /// One may come and go between two looks around.
  void note_backlog(std::uint64_t bytes) noexcept {
    if (bytes > kLargeBacklog) backlog_seen_ = true;
  }
  void attend_all_fresh();
  void answered(PeerState& by, const Outstanding& request);
  Clock::time_point look_around();
  Clock::time_point look_for_silence();
  std::string report();
  Local& expose(const caf::strong_actor_ptr& actor);
  Local* local(caf::actor_id actor);
  void ended_here(caf::actor_id actor, const caf::error& reason);
  void lose(PeerState& peer, const Status& why, bool found_here);
  void condemn(PeerState& peer, const std::string& why);
  void answer_outstanding(PeerState& peer, caf::actor_id target, const caf::error& error);
  void finish();
  void forget_locals();

  caf::actor_system& system_;
  AddressSpace& space_;
  LaneLoop& control_;
  LaneLoop& bulk_;
  const Peer self_;
  const RemoteOptions options_;
  const std::shared_ptr<Gate> gate_;
  const std::shared_ptr<Budget> outgoing_;        // any thread
  const std::shared_ptr<Budget> incoming_;        // any thread
  const std::shared_ptr<SlabPool> landing_pool_;  // any thread
  Sinks sinks_;                                   // any thread
  const std::shared_ptr<SlabPool> sending_pool_;  // any thread
  Unfinished unfinished_;                         // any thread
  Outbox control_out_;
  Outbox bulk_out_;  // the bulk lane's
  caf::scoped_execution_unit unit_;
  const std::shared_ptr<InlineUnit> inline_;  // its actors keep it too
  caf::proxy_registry proxies_;               // any thread
  Codec codec_;
  caf::actor directory_;
  caf::actor rooms_;
  Bodies bodies_;  // the bulk lane's

  // Fixed once the lanes run, so any thread may look.
  std::map<Peer, std::unique_ptr<PeerState>> peers_;
  std::unordered_map<caf::node_id, PeerState*> peers_by_node_;

  std::unordered_map<caf::actor_id, Local> locals_;
  std::unordered_map<RequestKey, Outstanding, RequestKeyHash> outstanding_;
  OpenCalls calls_;
  std::unordered_map<std::uint64_t, Lent> lent_;
  std::unordered_map<std::uint64_t, Frames> parked_;  // until their tensors are valid
  std::uint64_t next_token_ = 1;
  MpscStack<Proxy, &Proxy::next_fresh> fresh_;  // with a reference each; any thread adds
  unsigned requests_ = 0;
  caf::actor_id last_source_ = 0;            // is exposed
  unsigned heads_ = 0;                       // sent in this round
  std::vector<PeerState*> open_batches_;     // to them
  std::vector<PeerState*> creditors_;        // have tensors to be given back
  std::vector<PeerState*> refused_;          // are to be told of messages that were refused
  std::optional<FailureDetector> detector_;  // made with the first look
  std::vector<char> scratch_;                // the message that is being sent
  TensorPlan tensors_;                       // of it
  bool backlog_seen_ = false;                // a large one, since the last look around
  bool drained_ = true;                      // what a large backlog took was given back to the system
  Clock::time_point last_backlog_;           // when there was some last
  bool ended_ = false;
  bool stopped_ = false;  // the caller's of stop()

  struct {
    Tally sent, delivered, reordered, dropped;  // the control lane's to write
  } counts_;
};

}  // namespace troupe::remote
