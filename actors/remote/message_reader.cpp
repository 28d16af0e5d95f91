#include "actors/remote/detail/message_reader.hpp"

#include <algorithm>
#include <caf/downstream_msg.hpp>
#include <caf/upstream_msg.hpp>
#include <utility>

#include "actors/plain_messages.hpp"

namespace troupe::remote {
namespace {

/// The body is not in the head.
constexpr std::uint8_t kElsewhere = wire::kBodyInPayload | wire::kBodyInPieces;

/// CAF derives a message's queue from its number, and assumes without checking that the content fits it.
bool fits_its_queue(const caf::mailbox_element& message) {
  if (message.mid.is_upstream_message()) return message.content().match_elements<caf::upstream_msg>();
  if (message.mid.is_downstream_message()) return message.content().match_elements<caf::downstream_msg>();
  return true;
}

/// A message from another process in its receiver's mailbox.
class ReceivedMessage final : public caf::mailbox_element {
 public:
  ReceivedMessage(caf::strong_actor_ptr sender, caf::message_id id, Codec::Decoded&& decoded,
                  troupe::detail::Receipt&& receipt)
      : caf::mailbox_element(std::move(sender), id, std::move(decoded.stages)),
        message_(std::move(decoded.content)),
        receipt_(std::move(receipt)) {}
  caf::type_erased_tuple& content() override {
    if (message_.empty()) return nothing_;
    return message_.vals().unshared();
  }
  const caf::type_erased_tuple& content() const override {
    if (message_.empty()) return nothing_;
    return *message_.cvals();
  }
  caf::message move_content_to_message() override { return std::move(message_); }
  caf::message copy_content_to_message() const override { return message_; }

 private:
  caf::message message_;
  caf::empty_type_erased_tuple nothing_;
  const troupe::detail::Receipt receipt_;
};

}  // namespace

std::uint16_t MessageReader::charge_of(const wire::Header& header, const Arrival& arrival) {
  std::uint64_t copied = 0;
  std::uint64_t end = 0;  // of the tensors in the payload
  const std::size_t records_bytes = std::size_t{header.tensors} * sizeof(wire::TensorRecord);
  if (header.tensors > 0) {
    for (const wire::TensorRecord& record : wire::load_records(arrival.head, header.tensors)) {
      if (record.by_reference != 0) continue;
      copied += record.size_bytes;
      end = std::max(end, record.offset + record.size_bytes);
    }
  }
  std::uint64_t body = arrival.head.size() - std::min(arrival.head.size(), wire::kHeaderBytes + records_bytes);
  if ((header.flags & wire::kBodyInPieces) != 0) body = arrival.body.size_bytes;
  if ((header.flags & wire::kBodyInPayload) != 0)
    body = arrival.payload.size_bytes - std::min(arrival.payload.size_bytes, end);
  return wire::charge_of(body, copied);
}

Status MessageReader::read(PeerState& from, const wire::Header& header, const Arrival& arrival,
                           const caf::strong_actor_ptr& sender, troupe::detail::Receipt&& receipt,
                           caf::mailbox_element_ptr& message) {
  Status status = decode(from, header, arrival, sender, std::move(receipt), message);
  if (status.ok() && !fits_its_queue(*message))
    return {Code::corrupt, "a message with the number of a stream's messages that is not one"};
  return status;
}

Status MessageReader::decode(PeerState& from, const wire::Header& header, const Arrival& arrival,
                             const caf::strong_actor_ptr& sender, troupe::detail::Receipt&& receipt,
                             caf::mailbox_element_ptr& message) {
  const caf::message_id id{header.message_id};
  if ((header.flags & wire::kPlain) != 0 && header.tensors == 0) {
    std::span<const std::byte> body = arrival.head.subspan(wire::kHeaderBytes);
    if ((header.flags & wire::kBodyInPieces) != 0) {
      body = {arrival.body.bytes.get(), arrival.body.size_bytes};
    } else if ((header.flags & kElsewhere) != 0) {
      body = {};
      if (arrival.payload.size_bytes > 0) body = {context_.space.address(arrival.payload), arrival.payload.size_bytes};
    }
    return context_.codec.decode_plain(body, sender, id, std::move(receipt), message);
  }
  if ((header.flags & wire::kLone) != 0) return decode_lone(from, header, arrival, sender, std::move(receipt), message);
  const auto records = wire::load_records(arrival.head, header.tensors);
  detail::TensorSlots slots;
  std::uint64_t end = 0;
  Status status = land_all(from, records, arrival, slots, end);
  if (records.size() != header.tensors) status = {Code::corrupt, "a message is shorter than its tensors' records"};
  if (!status.ok()) return status;
  std::span<const std::byte> body = arrival.head.subspan(wire::kHeaderBytes);
  body = body.first(body.size() - records.size() * sizeof(wire::TensorRecord));
  if ((header.flags & wire::kBodyInPieces) != 0) {
    if (!arrival.body.bytes) return {Code::corrupt, "a message without its body"};
    body = {arrival.body.bytes.get(), arrival.body.size_bytes};
  } else if ((header.flags & wire::kBodyInPayload) != 0) {
    if (end >= arrival.payload.size_bytes) return {Code::corrupt, "a message's body lies outside its payload"};
    body = {context_.space.address(arrival.payload) + end, arrival.payload.size_bytes - end};
  }
  Codec::Decoded decoded;
  status = context_.codec.decode(body, (header.flags & wire::kHasStages) != 0, decoded);
  if (status.ok()) message.reset(new ReceivedMessage(sender, id, std::move(decoded), std::move(receipt)));
  return status;
}

/// Makes all tensors of a message, also those after one with an error: tensors that were lent must be given back in any
/// case. `end`: where the tensors in the payload end; a body in the payload begins there.
Status MessageReader::land_all(PeerState& from, std::span<const wire::TensorRecord> records, const Arrival& arrival,
                               detail::TensorSlots& slots, std::uint64_t& end) {
  Status status;
  for (const wire::TensorRecord& record : records) {
    Status wrong = loans_.land(from, record, arrival, slots.arrived.emplace_back());
    if (!wrong.ok()) status = std::move(wrong);
    if (record.by_reference == 0) end = std::max(end, record.offset + record.size_bytes);
  }
  return status;
}

/// A message that consists of one tensor.
Status MessageReader::decode_lone(PeerState& from, const wire::Header& header, const Arrival& arrival,
                                  const caf::strong_actor_ptr& sender, troupe::detail::Receipt&& receipt,
                                  caf::mailbox_element_ptr& message) {
  const auto record = wire::load_record(arrival.head);
  const bool whole = record && header.tensors == 1 && (header.flags & (kElsewhere | wire::kHasStages)) == 0;
  if (!whole) return {Code::corrupt, "a message of one tensor that does not tell where it is"};
  troupe::detail::TensorSlots::Landed landed;
  Status status = loans_.land(from, *record, arrival, landed);
  if (!status.ok()) return status;
  const std::span<const std::byte> body = arrival.head.subspan(wire::kHeaderBytes);
  Tensor tensor;
  status = Codec::decode_lone(body.first(body.size() - sizeof *record), std::move(landed), tensor);
  if (status.ok()) {
    message.reset(new troupe::detail::PlainElement<Tensor>(sender, caf::message_id{header.message_id},
                                                           std::move(tensor), std::move(receipt)));
  }
  return status;
}

}  // namespace troupe::remote
