#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "actors/remote/detail/body_assembler.hpp"
#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/payload_assembler.hpp"
#include "actors/remote/detail/sinks.hpp"
#include "actors/remote/detail/slab_pool.hpp"
#include "actors/remote/wire.hpp"
#include "runtime/lanes/transport.hpp"

namespace troupe::remote {

class InlineUnit;
class Inbound;

/// The end of the transport: decides where payloads are stored, and passes complete arrivals to the control lane's
/// thread. Arrivals on the control lane are handled at once, and their head's bytes are the transport's; for those on
/// the bulk lane a copy of the head is posted. A body in pieces is joined on the bulk lane, where its message waits for
/// it, as it does for a payload in pieces. If a payload cannot be stored, its head is still passed on, since it has its
/// place in the order. Threads: the lane's that is named; any for the rest.
class Arrivals final : public Receiver {
 public:
  /// `sending` is the pool for outgoing payloads; pieces, which are needed only until they have arrived, may use it,
  /// too.
  Arrivals(Context& context, Inbound& inbound, InlineUnit& inline_unit, std::shared_ptr<SlabPool> landing,
           std::shared_ptr<SlabPool> sending)
      : context_(context),
        inbound_(inbound),
        inline_(inline_unit),
        landing_pool_(std::move(landing)),
        sending_pool_(std::move(sending)),
        body_assembler_(context.incoming),
        payload_assembler_([this](SinkKey key, std::uint64_t size_bytes) { return store_for(key, size_bytes); }) {}

  void post_sink(SinkKey key, Memory memory, std::shared_ptr<const void> owner);
  std::size_t withdraw_sinks(SinkKey key) { return sinks_.withdraw(key); }
  /// Forgets bodies and payloads of a peer that is lost. On the bulk lane.
  void forget_pieces(Peer peer) {
    body_assembler_.forget(peer);
    payload_assembler_.forget(peer);
  }

  Memory landing(Peer from, Lane lane, std::span<const std::byte> head, std::uint64_t size_bytes) noexcept override;
  void arrived(Peer from, Lane lane, std::span<const std::byte> head, Memory payload) noexcept override;
  void dropped(Peer from, Lane lane, Memory payload, const Status& why) noexcept override;
  void lost(Peer peer, const Status& why) noexcept override;

 private:
  std::optional<Memory> sink_for(std::span<const std::byte> head, std::uint64_t size_bytes);
  PayloadAssembler::Store store_for(SinkKey key, std::uint64_t size_bytes);
  // On the bulk lane.
  Memory land_payload_piece(Peer from, const wire::Header& piece, std::uint64_t size_bytes);
  void cut_payload_short(Peer from, const wire::Header& piece);
  void wait_for_payload(Peer from, const wire::Header& header, std::span<const std::byte> head, Memory payload);
  void finish_payload(Peer from, std::uint32_t order);
  void take_in_piece(Peer from, const wire::Header& header, Memory payload);
  void refuse_piece(Peer from, const wire::Header& header, std::uint64_t size_bytes);
  void wait_for_body(Peer from, const wire::Header& header, BodyAssembler::Message message);
  void pass_on(Peer from, const wire::Header& header, BodyAssembler::Message message);
  void finish(Peer from, std::optional<BodyAssembler::Whole> whole, bool wrong, const char* what);
  void report_violation(Peer from, const char* why);

  Context& context_;
  Inbound& inbound_;
  InlineUnit& inline_;
  Sinks sinks_;
  const std::shared_ptr<SlabPool> landing_pool_;
  const std::shared_ptr<SlabPool> sending_pool_;
  // Used by the bulk lane:
  BodyAssembler body_assembler_;
  PayloadAssembler payload_assembler_;
};

}  // namespace troupe::remote
