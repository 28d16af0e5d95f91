#include <algorithm>
#include <cstring>
#include <utility>

#include "actors/remote/detail/outbox.hpp"
#include "actors/remote/wire.hpp"

namespace troupe::remote {

void SendsInProgress::end() noexcept {
  if (count_.fetch_sub(1) == 1 && waited_for_.load()) {
    const std::scoped_lock hold(mutex_);
    none_.notify_all();
  }
}

bool SendsInProgress::wait_for_none(Deadline deadline) {
  std::unique_lock hold(mutex_);
  waited_for_.store(true);
  return none_.wait_until(hold, deadline.at(), [this] { return count_.load() == 0; });
}

Frame::Frame(Outbox& where, Peer peer, std::vector<std::byte> bytes)
    : outbox(&where), to(peer), head(std::move(bytes)), charge_(where.budget_, sizeof(Frame) + head.size()) {
  outbox->unfinished_.begin();
}

Frame::~Frame() {
  if (payload_bytes_ > 0) outbox->payloads_ -= payload_bytes_;
  if (slab_.size_bytes > 0) {
    outbox->slab_bytes_[to] -= slab_.size_bytes;
    outbox->pool_->give_back(slab_);
  }
  outbox->unfinished_.end();
}

void Frame::run() noexcept { outbox->send(std::unique_ptr<Frame>(this)); }

/// The status is not used: Receiver::lost reports a peer's end once for all its frames.
void Frame::sent(Status) noexcept {
  const std::unique_ptr<Frame> self(this);
  --outbox->in_flight_;
}

Outbox::Outbox(Transport& transport, Lane lane, AddressSpace& space, std::shared_ptr<SlabPool> pool,
               std::shared_ptr<Budget> budget, std::uint64_t pool_bytes, SendsInProgress& unfinished)
    : transport_(transport),
      lane_(lane),
      space_(space),
      pool_(std::move(pool)),
      budget_(std::move(budget)),
      most_slab_bytes_(pool_bytes / 4),
      unfinished_(unfinished),
      head_sent_(*this) {}

void Outbox::send(Peer to, std::span<const std::byte> head) noexcept {
  if (is_cut(to)) return;
  if (!waiting_.contains(to)) {
    unfinished_.begin();
    ++in_flight_;
    if (transport_.send(to, lane_, Class::control, Channel::actors, head, {}, head_sent_)) return;
    --in_flight_;
    unfinished_.end();
  }
  send(std::make_unique<Frame>(*this, to, std::vector<std::byte>(head.begin(), head.end())));
}

void Outbox::send(std::unique_ptr<Frame> frame) noexcept {
  const Peer to = frame->to;
  if (is_cut(to)) return;
  frame->payload_bytes_ = frame->body_end - frame->body_begin + frame->piece.size_bytes;
  for (const Tensor& tensor : frame->tensors) frame->payload_bytes_ += tensor.memory().size_bytes;
  payloads_ += frame->payload_bytes_;
  if (!waiting_.contains(to) && try_send(frame)) return;
  waiting_[to].push_back(std::move(frame));
}

/// Each peer's frames are sent in order. Peers do not wait for each other, so that none starves.
bool Outbox::send_waiting() noexcept {
  bool any = false;
  for (auto peer = waiting_.begin(); peer != waiting_.end();) {
    auto& frames = peer->second;
    while (!frames.empty() && try_send(frames.front())) {
      frames.pop_front();
      any = true;
    }
    peer = frames.empty() ? waiting_.erase(peer) : std::next(peer);
  }
  return any || (!waiting_.empty() && in_flight_ == 0);  // refused, and no send in progress will cause another call
}

void Outbox::cut(Peer peer) noexcept {
  if (!is_cut(peer)) cut_.push_back(peer);
  waiting_.erase(peer);
}

bool Outbox::is_cut(Peer peer) const noexcept { return std::ranges::find(cut_, peer) != cut_.end(); }

/// Lists the parts of the payload; false if there is no memory for the body yet.
bool Outbox::prepare(Frame& frame) noexcept {
  if (frame.body) {
    const std::size_t body_bytes = frame.body_end - frame.body_begin;
    std::uint64_t& taken = slab_bytes_[frame.to];
    if (taken > 0 && taken + body_bytes > most_slab_bytes_) return false;
    const auto slab = pool_->take(body_bytes);
    if (!slab) return false;
    taken += slab->size_bytes;
    frame.slab_ = *slab;
    std::memcpy(space_.address(*slab), frame.body->bytes.data() + frame.body_begin, body_bytes);
    frame.body.reset();
  }
  if (frame.tensors.size() > 1 && padding_.size_bytes == 0) {
    const auto padding = pool_->take(wire::kTensorAlignment);
    if (!padding) return false;
    padding_ = *padding;
  }
  if (frame.piece.size_bytes > 0) frame.parts_.push_back(frame.piece);
  std::uint64_t end = 0;
  for (const Tensor& tensor : frame.tensors) {
    const Memory memory = tensor.memory();
    if (memory.size_bytes == 0) continue;
    if (const std::uint64_t gap = wire::align_up(end) - end; gap > 0) frame.parts_.push_back(slice(padding_, 0, gap));
    frame.parts_.push_back(memory);
    end = wire::align_up(end) + memory.size_bytes;
  }
  if (frame.slab_.size_bytes > 0) frame.parts_.push_back(frame.slab_);
  return true;
}

/// Takes the frame if it could be sent.
bool Outbox::try_send(std::unique_ptr<Frame>& frame) noexcept {
  const bool has_payload = !frame->tensors.empty() || frame->body || frame->piece.size_bytes > 0;
  if (has_payload && frame->parts_.empty() && !prepare(*frame)) return false;
  Frame* const held = frame.release();  // sent() may be called before send() returns
  ++in_flight_;
  const Class priority = lane_ == Lane::control ? Class::control : Class::bulk;
  if (transport_.send(held->to, lane_, priority, Channel::actors, held->head, held->parts_, *held)) return true;
  --in_flight_;
  frame.reset(held);
  return false;
}

}  // namespace troupe::remote
