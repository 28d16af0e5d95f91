#pragma once

#include <caf/mailbox_element.hpp>
#include <cstdint>
#include <span>

#include "actors/detail/receipt.hpp"
#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/known_actors.hpp"
#include "actors/remote/detail/tensor_loans.hpp"
#include "actors/remote/tensor.hpp"
#include "actors/remote/wire.hpp"

namespace troupe::remote {

/// Makes CAF's element of a message that has arrived: from the head, the payload, or the joined body. All bytes come
/// from another process, so each length is compared with the available bytes before it is used. Threads: the control
/// lane's.
class MessageReader {
 public:
  MessageReader(Context& context, TensorLoans& loans) : context_(context), loans_(loans) {}

  /// The charge that the sender must have computed for the message.
  static std::uint16_t charge_of(const wire::Header& header, const Arrival& arrival);
  /// The element, with `receipt` in it. Tensors that were lent for the message are given back when the element is
  /// destroyed, or by this call if there is no element.
  Status read(PeerState& from, const wire::Header& header, const Arrival& arrival, const caf::strong_actor_ptr& sender,
              troupe::detail::Receipt&& receipt, caf::mailbox_element_ptr& message);

 private:
  Status decode(PeerState& from, const wire::Header& header, const Arrival& arrival,
                const caf::strong_actor_ptr& sender, troupe::detail::Receipt&& receipt,
                caf::mailbox_element_ptr& message);
  Status decode_lone(PeerState& from, const wire::Header& header, const Arrival& arrival,
                     const caf::strong_actor_ptr& sender, troupe::detail::Receipt&& receipt,
                     caf::mailbox_element_ptr& message);
  Status land_all(PeerState& from, std::span<const wire::TensorRecord> records, const Arrival& arrival,
                  detail::TensorSlots& slots, std::uint64_t& end);

  Context& context_;
  TensorLoans& loans_;
};

}  // namespace troupe::remote
