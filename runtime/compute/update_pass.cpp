#include "runtime/compute/update_pass.hpp"

namespace troupe {

UpdateAddresses addresses_of(const RuleStep& rule, const StripeMemory& stripe, const AddressOf& address) {
  const std::uint64_t count = stripe.stripe.count;
  const auto floats = [&](const Memory& memory, const char* what) {
    return reinterpret_cast<float*>(address(memory, count * sizeof(float), what));
  };
  UpdateAddresses at{.count = count, .first_element = stripe.stripe.first, .no_decay = stripe.no_decay};
  if (needs_tensor_norms(rule.kind) && !stripe.scaled.empty()) {
    at.scaled = stripe.scaled;
    at.squares = reinterpret_cast<TensorSquares*>(
        address(stripe.squares, stripe.scaled.size() * sizeof(TensorSquares), "the squares of tensors"));
  }
  at.parameters = floats(stripe.parameters, "a stripe's parameters");
  if (stripe.half.size_bytes != 0) {
    TROUPE_CHECK(stripe.copy_type == DType::bf16, Code::unsupported, "this device writes no copy of weights in ",
                 name_of(stripe.copy_type), "; write model.dtype = \"bf16\" or \"f32\"");
    at.half = reinterpret_cast<std::uint16_t*>(
        address(stripe.half, count * sizeof(std::uint16_t), "a stripe's copy in bf16"));
  }
  const std::size_t slots = state_slots(rule);
  for (std::size_t s = 0; s < slots; ++s) at.state[s] = floats(stripe.state[s], "a stripe's optimizer state");
  if (stripe.journal.size_bytes != 0) {
    TROUPE_CHECK(stripe.journal.size_bytes >= journal_bytes(slots), Code::invalid, "a stripe's journal has ",
                 stripe.journal.size_bytes, " bytes, ", name_of(rule.kind), " needs ", journal_bytes(slots));
    at.journal = reinterpret_cast<UpdateJournal*>(address(stripe.journal, stripe.journal.size_bytes, "a journal"));
  }
  return at;
}

}  // namespace troupe
