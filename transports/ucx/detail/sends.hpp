#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "runtime/memory/arena.hpp"
#include "transports/ucx/detail/context.hpp"
#include "transports/ucx/detail/peer_link.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe {

/// The sending half of a lane: limits what is in progress, cuts large payloads into chunks, keeps alive what UCX reads.
class UcxSends {
 public:
  UcxSends(const UcxContext& context, AddressSpace& space, const UcxOptions& options, DeferredWork& deferred)
      : reads_cuda_(context.reads_cuda()), space_(space), options_(options), deferred_(deferred) {}

  /// The link must have an endpoint and must not be cut. False: a limit is reached. Throws Error{invalid} for a payload
  /// that is not mapped; then nothing was taken.
  bool start(PeerLink& link, Class priority, Channel channel, std::span<const std::byte> head,
             std::span<const Memory> payload, SendDone& done);
  /// Sends the chunks that may be sent now.
  void pump(PeerLink& link);
  /// When the link was cut: ends what was not passed to UCX yet.
  void cut(PeerLink& link);
  /// Ends what was passed to UCX and may never be answered; its memory stays allocated, since UCX may still use it.
  void abandon(PeerLink& link);

 private:
  ucs_memory_type_t type_of(std::span<const Memory> payload) const;
  SendOp& take_op();
  void hand_over(SendOp& op, Channel channel);
  static void on_sent(void* request, ucs_status_t status, void* op);
  void ended(SendOp& op, ucs_status_t status);
  void ended(LargeSend& large, PeerLink& link, const Status& outcome);
  void finish(LargeSend& large, PeerLink& link);
  void send_chunk(LargeSend& large, PeerLink& link);
  LargeSend* next_large(PeerLink& link);

  const bool reads_cuda_;
  AddressSpace& space_;
  const UcxOptions& options_;
  DeferredWork& deferred_;
  std::vector<ucp_dt_iov_t> pieces_;  // of the send in start()
  std::deque<SendOp> all_;
  std::vector<SendOp*> free_;
  std::uint64_t last_number_ = 0;
};

}  // namespace troupe
