#include <cstring>
#include <utility>

#include "transports/ucx/detail/arrivals.hpp"
#include "transports/ucx/detail/check.hpp"

namespace troupe {

void UcxArrivals::listen(ucp_worker_h worker) {
  worker_ = worker;
  for (const Channel channel : {Channel::actors, Channel::exchange}) {
    listeners_[place(channel)] = {this, channel};
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id = static_cast<unsigned>(channel);
    param.cb = &UcxArrivals::on_message;
    param.arg = &listeners_[place(channel)];
    TROUPE_UCX(ucp_worker_set_am_recv_handler(worker, &param), Code::environment, "UCX refuses a message handler");
  }
}

ucs_status_t UcxArrivals::on_message(void* listener, const void* header, std::size_t header_bytes, void* data,
                                     std::size_t size, const ucp_am_recv_param_t* param) {
  const auto& ours = *static_cast<Listener*>(listener);
  const bool announced = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  return ours.arrivals->take(ours.channel, {static_cast<const std::byte*>(header), header_bytes}, data, size,
                             announced);
}

/// Returning UCS_OK drops the data that was not used, including data that is still at the sender.
ucs_status_t UcxArrivals::take(Channel channel, std::span<const std::byte> header, void* data, std::size_t size,
                               bool announced) {
  Receiver* const receiver = receivers_[place(channel)];
  Frame frame{};
  if (closed_ || receiver == nullptr || header.size() < sizeof frame) return UCS_OK;
  std::memcpy(&frame, header.data(), sizeof frame);
  Incoming in{{0, size, 0}, header.subspan(sizeof frame), data, size, announced};
  if (frame.kind == Frame::kChunk) {
    if (in.head.size() < sizeof in.place) return UCS_OK;
    std::memcpy(&in.place, in.head.data(), sizeof in.place);
    in.head = in.head.subspan(sizeof in.place);
    const ChunkPlace& at = in.place;
    if (at.message == 0 || size == 0 || at.offset > at.size_bytes || size > at.size_bytes - at.offset) return UCS_OK;
  } else if (frame.kind != Frame::kWhole) {
    return UCS_OK;
  }
  if (in.head.size() > Transport::kMaxHeadBytes) return UCS_OK;
  PeerLink* const link = find_link_(Peer{frame.source});
  if (link == nullptr || link->cut) return UCS_OK;
  link->wired = true;
  if (in.place.message == 0) return deliver_whole(*link, *receiver, in);
  return land(arrival_of(*link, *receiver, in), in);
}

ucs_status_t UcxArrivals::deliver_whole(PeerLink& link, Receiver& receiver, const Incoming& in) {
  if (in.size == 0) {
    receiver.arrived(link.peer, lane_, in.head, {});
    return UCS_OK;
  }
  if (in.announced) return land(arrival_of(link, receiver, in), in);
  const Memory memory = receiver.landing(link.peer, lane_, in.head, in.size);
  Status failed;
  std::byte* const base = landing_address(link, memory, in.size, failed);
  if (base == nullptr) {
    receiver.dropped(link.peer, lane_, memory, failed);
    return UCS_OK;
  }
  std::memcpy(base, in.data, in.size);
  receiver.arrived(link.peer, lane_, in.head, slice(memory, 0, in.size));
  return UCS_OK;
}

/// The arrival to which a chunk belongs, or a new one.
Arrival& UcxArrivals::arrival_of(PeerLink& link, Receiver& receiver, const Incoming& in) {
  if (in.place.message != 0) {
    for (Arrival& arrival : link.arrivals) {
      if (arrival.number == in.place.message && arrival.receiver == &receiver) return arrival;
    }
  }
  Arrival& arrival = link.arrivals.emplace_back();
  arrival.place = std::prev(link.arrivals.end());
  arrival.link = &link;
  arrival.receiver = &receiver;
  arrival.number = in.place.message;
  arrival.size_bytes = in.place.size_bytes;
  arrival.head.assign(in.head.begin(), in.head.end());
  arrival.memory = receiver.landing(link.peer, lane_, in.head, arrival.size_bytes);
  arrival.base = landing_address(link, arrival.memory, arrival.size_bytes, arrival.failed);
  return arrival;
}

/// The address of a landing; null if it cannot be used, with the reason.
std::byte* UcxArrivals::landing_address(PeerLink& link, const Memory& memory, std::uint64_t size,
                                        Status& failed) const {
  if (memory.size_bytes < size) {
    failed = {Code::invalid,
              text("the landing for ", size, " bytes from peer ", link.peer.value, " has only ", memory.size_bytes)};
    return nullptr;
  }
  try {
    return space_.address(memory);
  } catch (const Error& error) {  // the callers are UCX's functions: no exception may pass through them
    failed = {error.code(), text("the landing for ", size, " bytes from peer ", link.peer.value, ": ", error.what())};
    return nullptr;
  }
}

ucs_status_t UcxArrivals::land(Arrival& arrival, const Incoming& in) {
  const std::uint64_t offset = in.place.offset;
  const bool fits = offset <= arrival.size_bytes && in.size <= arrival.size_bytes - offset;
  if (!fits && arrival.failed.ok()) {
    arrival.failed = {Code::corrupt, text("peer ", arrival.link->peer.value, " sent parts that do not fit together")};
  }
  if (!arrival.failed.ok() || !in.announced) {
    if (arrival.failed.ok()) std::memcpy(arrival.base + offset, in.data, in.size);
    arrival.seen_bytes += in.size;
    finish_if_over(arrival);
    return UCS_OK;
  }
  Arrival::Part& part = arrival.parts.emplace_back(Arrival::Part{this, &arrival, in.size});
  ++arrival.parts_in_flight;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.recv_am = &UcxArrivals::on_received;
  param.user_data = &part;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucs_status_ptr_t request = ucp_am_recv_data_nbx(worker_, in.data, arrival.base + offset, in.size, &param);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) received(part, UCS_PTR_STATUS(request));
  return UCS_INPROGRESS;
}

void UcxArrivals::on_received(void* request, ucs_status_t status, std::size_t, void* part) {
  auto& ours = *static_cast<Arrival::Part*>(part);
  ours.arrivals->received(ours, status);
  ucp_request_free(request);
}

void UcxArrivals::received(Arrival::Part& part, ucs_status_t status) {
  Arrival& arrival = *part.arrival;
  --arrival.parts_in_flight;
  arrival.seen_bytes += part.bytes;
  if (status != UCS_OK && arrival.failed.ok()) {
    arrival.failed = peer_status(*arrival.link, status);
    if (arrival.failed.code() == Code::peer_lost) deferred_.cut(*arrival.link, arrival.failed, true);
  }
  finish_if_over(arrival);
}

void UcxArrivals::finish_if_over(Arrival& arrival) {
  PeerLink& link = *arrival.link;
  if (arrival.parts_in_flight > 0) return;
  if (!link.cut && !closed_ && arrival.seen_bytes < arrival.size_bytes) return;
  std::list<Arrival> over;  // removed from the link first, since the receiver's callback may do anything
  over.splice(over.begin(), link.arrivals, arrival.place);
  if (arrival.failed.ok() && link.cut) arrival.failed = link.why;
  if (arrival.failed.ok() && arrival.seen_bytes < arrival.size_bytes) {
    arrival.failed = {Code::aborted, "this process closed its transport"};
  }
  if (arrival.failed.ok()) {
    arrival.receiver->arrived(link.peer, lane_, arrival.head, slice(arrival.memory, 0, arrival.size_bytes));
  } else {
    arrival.receiver->dropped(link.peer, lane_, arrival.memory, arrival.failed);
  }
}

void UcxArrivals::drop(PeerLink& link) {
  for (auto next = link.arrivals.begin(); next != link.arrivals.end();) {
    Arrival& arrival = *next++;
    finish_if_over(arrival);
  }
}

}  // namespace troupe
