#include <algorithm>
#include <chrono>
#include <utility>

#include "transports/ucx/detail/check.hpp"
#include "transports/ucx/detail/lane.hpp"
#include "transports/ucx/detail/shortage.hpp"

namespace troupe {
namespace {

/// More peers than any job has: it limits the memory for senders that do not exist.
constexpr std::size_t kMostLinks = 1u << 16;
/// How long UCX may take to return what it uses of a peer whose endpoint was closed by force.
constexpr std::chrono::seconds kGrace{1};

const char* name_of(Lane lane) { return lane == Lane::control ? "control" : "bulk"; }

}  // namespace

UcxLane::UcxLane(const UcxContext& context, Lane lane, AddressSpace& space, const UcxOptions& options,
                 const Directory& directory, const Receivers& receivers)
    : lane_(lane),
      directory_(directory),
      receivers_(receivers),
      sends_(context, space, options, deferred_),
      arrivals_(lane, space, receivers, deferred_, [this](Peer peer) { return link_of_sender(peer); }),
      guard_(options.means == UcxMeans::shm ? std::vector<ProcessLocation>{} : options.hosts, options.self) {
  create_worker(context, options.means, options.means == UcxMeans::tcp && !options.hosts.empty());
}

void UcxLane::create_worker(const UcxContext& context, UcxMeans means, bool must_listen) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  TROUPE_UCX(ucp_worker_create(context.get(), &params, &worker), Code::environment, "UCX cannot make the ",
             name_of(lane_), " lane's worker: ", ucx_shortage(means));
  worker_.reset(worker);
  TROUPE_UCX(ucp_worker_get_efd(worker, &fd_), Code::environment, "UCX offers no wake-up for the ", name_of(lane_),
             " lane");
  ucp_worker_attr_t attributes{};
  attributes.field_mask =
      UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER | UCP_WORKER_ATTR_FIELD_THREAD_MODE;
  TROUPE_UCX(ucp_worker_query(worker, &attributes), Code::environment, "UCX cannot describe the ", name_of(lane_),
             " lane");
  const auto* raw = reinterpret_cast<const std::byte*>(attributes.address);
  address_.assign(raw, raw + attributes.address_length);
  ucp_worker_release_address(worker, attributes.address);
  const std::size_t closed = guard_.close_to_strangers(address_);
  TROUPE_CHECK(closed > 0 || !must_listen, Code::environment, "UCX made no TCP port for the ", name_of(lane_),
               " lane that can be closed to strangers");
  TROUPE_CHECK(attributes.thread_mode != UCS_THREAD_MODE_SINGLE, Code::environment,
               "this UCX was built without threads; install one built with --enable-mt");
  TROUPE_CHECK(attributes.max_am_header >= Transport::kMaxHeadBytes + kMaxFrameBytes, Code::environment,
               "UCX's transports here carry headers of ", attributes.max_am_header, " bytes, ",
               Transport::kMaxHeadBytes + kMaxFrameBytes, " are needed; choose others (cluster.transport, UCX_TLS)");
  arrivals_.listen(worker);
}

UcxLane::~UcxLane() {
  const Status why{Code::aborted, "this process closed its transport"};
  arrivals_.close();
  for (auto& [number, link] : links_) {
    if (link->cut) continue;
    link->cut = true;  // messages that end from now on end for this reason
    link->why = why;
  }
  for (void* request : flushes_) ucp_request_free(request);
  give_up_transfers();
  worker_.reset();  // after this UCX does not access our memory any more
  for (auto& [number, link] : links_) {
    sends_.cut(*link);
    sends_.abandon(*link);
    for (Arrival& arrival : link->arrivals) arrival.parts_in_flight = 0;
    arrivals_.drop(*link);
  }
  complete();
}

/// Ends what the flush left unfinished: UCX 1.13 aborts the process if a watched endpoint still has transfers when its
/// worker is destroyed. Receives end without a callback; sends are waited for.
void UcxLane::give_up_transfers() {
  for (auto& [number, link] : links_) {
    if (!link->silent && link->in_use()) close_by_force(*link);
  }
  const auto sends = [](const auto& each) { return !each.second->silent && each.second->ops != nullptr; };
  const Deadline deadline = Deadline::after(kGrace);
  while (std::ranges::any_of(links_, sends) && !deadline.passed()) ucp_worker_progress(worker_.get());
  // Those that end_cut_link() left open come last: after this nothing is answered any more.
  for (auto& [number, link] : links_) {
    if (!link->silent && link->grace) close_by_force(*link);
  }
}

PeerLink* UcxLane::find_or_make(Peer peer) {
  if (last_link_ != nullptr && last_link_->peer == peer) return last_link_;
  auto found = links_.find(peer.value);
  if (found == links_.end()) {
    if (links_.size() >= kMostLinks) return nullptr;
    found = links_.emplace(peer.value, std::make_unique<PeerLink>()).first;
    found->second->peer = peer;
    found->second->deferred = &deferred_;
  }
  last_link_ = found->second.get();
  return last_link_;
}

/// The link of a peer from which something has arrived, with an endpoint of ours. UCX has made its own endpoint for
/// answers, but destroys it when a transfer fails. On a silent lane the next message that names it would end this
/// process in an assertion (1.13: such messages contain the endpoint's address, not a key). UCX keeps ours.
PeerLink* UcxLane::link_of_sender(Peer peer) {
  PeerLink* const link = find_or_make(peer);
  if (link != nullptr && !link->cut && link->endpoint == nullptr) make_endpoint(*link);
  return link;
}

bool UcxLane::send(Peer to, Class priority, Channel channel, std::span<const std::byte> head,
                   std::span<const Memory> payload, SendDone& done) {
  PeerLink* const link = find_or_make(to);
  if (link == nullptr || (!link->cut && link->endpoint == nullptr && !make_endpoint(*link))) {
    deferred_.complete(done, {Code::peer_lost, text("peer ", to.value, " is not connected")});
    return true;
  }
  if (link->cut) {
    deferred_.complete(done, link->why);
    return true;
  }
  return sends_.start(*link, priority, channel, head, payload, done);
}

/// False if the peer is not connected. If UCX finds no path to it, the link is cut.
bool UcxLane::make_endpoint(PeerLink& link) {
  const auto address = directory_.find(link.peer);
  if (address == nullptr) return false;
  link.silent = lane_ == Lane::bulk && address->bulk_silent;
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address->worker[static_cast<std::size_t>(lane_)].data());
  params.err_mode = link.silent ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &UcxLane::on_error;
  params.err_handler.arg = &link;
  const ucs_status_t status = ucp_ep_create(worker_.get(), &params, &link.endpoint);
  if (status != UCS_OK) {
    link.endpoint = nullptr;
    deferred_.cut(
        link,
        {Code::environment, text("UCX finds no way to peer ", link.peer.value, " for the ", name_of(lane_),
                                 " lane: ", ucs_status_string(status),
                                 "; look at cluster.transport, the network device and UCX_TLS on both sides")},
        true);
  }
  return true;
}

void UcxLane::on_error(void* link, ucp_ep_h, ucs_status_t status) {
  auto& ours = *static_cast<PeerLink*>(link);
  ours.deferred->cut(ours, peer_status(ours, status), true);
}

bool UcxLane::progress() {
  const bool did = ucp_worker_progress(worker_.get()) != 0;
  if (deferred_.empty() && closing_.empty()) return did;  // nearly always
  return do_deferred_work() || did;
}

bool UcxLane::arm() {
  if (!deferred_.empty() || !closing_.empty()) return false;
  const ucs_status_t status = ucp_worker_arm(worker_.get());
  if (status == UCS_ERR_BUSY) return false;
  TROUPE_UCX(status, Code::environment, "UCX cannot arm the ", name_of(lane_), " lane's wake-up");
  return true;
}

void UcxLane::fence(Peer peer, const Status& why) noexcept {
  if (PeerLink* const link = find_or_make(peer)) deferred_.cut(*link, why, false);
}

/// Does the work that callbacks have queued; returns whether there was any. SendDone callbacks come last: they may call
/// send() and fence(), which must find all links in a consistent state.
bool UcxLane::do_deferred_work() {
  bool did = false;
  if (!deferred_.pumps.empty() || !deferred_.cuts.empty()) {
    did = true;
    for (PeerLink* link : std::exchange(deferred_.pumps, {})) {
      link->pump_queued = false;
      sends_.pump(*link);
    }
    for (PeerLink* link : std::exchange(deferred_.cuts, {})) end_cut_link(*link);
  }
  if (!closing_.empty()) did |= finish_closing();
  return complete() || did;
}

/// Ends the messages to and from a peer whose link was cut.
void UcxLane::end_cut_link(PeerLink& link) {
  sends_.cut(link);
  arrivals_.drop(link);
  if (link.silent || !link.wired) {
    // The endpoint stays until the worker is destroyed. UCX does not allow a silent one to be closed by force. And
    // while the two sides are still exchanging their endpoints, the peer may know ours while its own request is in
    // transit. UCX would answer that request with a new endpoint, and the peer, which may be healthy, would end in an
    // assertion (ucp_ep.inl, "remote_id == remote_ep_id").
    sends_.abandon(link);
  } else {
    close_by_force(link);
  }
  link.grace = Deadline::after(kGrace);
  closing_.push_back(&link);
}

void UcxLane::close_by_force(PeerLink& link) {
  if (link.endpoint == nullptr) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* const request = ucp_ep_close_nbx(std::exchange(link.endpoint, nullptr), &param);
  if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
}

/// Finishes links that were cut, if UCX does not use them any more, or has had enough time.
bool UcxLane::finish_closing() {
  const auto over = std::partition(closing_.begin(), closing_.end(), [&](PeerLink* link) {
    return link->in_use() && !link->silent && !link->grace->passed();
  });
  const std::vector<PeerLink*> done(over, closing_.end());
  closing_.erase(over, closing_.end());
  for (PeerLink* link : done) {
    sends_.abandon(*link);
    if (std::exchange(link->report_lost, false)) report_lost(*link);
  }
  return !done.empty();
}

void UcxLane::report_lost(PeerLink& link) {
  for (Receiver* const receiver : receivers_) {
    if (receiver != nullptr) receiver->lost(link.peer, link.why);
  }
}

bool UcxLane::complete() {
  if (deferred_.completions.empty()) return false;
  for (DeferredWork::Completion& each : deferred_.take_completions())
    each.done->sent(std::move(each.status));  // callbacks may send again
  return true;
}

void UcxLane::begin_flush() {
  arrivals_.close();
  for (auto& [number, link] : links_) {
    if (link->cut || link->endpoint == nullptr) continue;
    ucp_request_param_t param{};
    void* const request = ucp_ep_flush_nbx(link->endpoint, &param);
    if (UCS_PTR_IS_PTR(request)) flushes_.push_back(request);
  }
}

bool UcxLane::flushed() {
  ucp_worker_progress(worker_.get());
  std::erase_if(flushes_, [](void* request) {
    if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
    ucp_request_free(request);
    return true;
  });
  return flushes_.empty();
}

}  // namespace troupe
