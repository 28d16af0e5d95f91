#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/model/fused_norms.hpp"

namespace troupe {

/// Which gradients have one memory. The gradient to a sum is that to each of its terms, so a term shares the sum's
/// memory if the sum is the first layer that writes the term's gradient in a backward pass, and if what is written to
/// that memory later comes when the layers that have put out the other terms have read it. The layers of a FusedNorm
/// share memory, too: a norm reads the gradient to what its ReLU has put out, and that to a sum replaces it in place.
class SharedGradients {
 public:
  explicit SharedGradients(const Graph& graph) : graph_(graph) {
    for (std::uint32_t l = 0; l < graph_.layers().size(); ++l)
      for (const std::uint32_t t : graph_.inputs_of(l)) note_reader(t, l);
    for (std::uint32_t t = 0; t < memory_.size(); ++t) memory_[t] = t;
    for (std::uint32_t l = 0; l < graph_.layers().size(); ++l) {
      last_read_[graph_.output_tensor(l)] = l;
      if (std::holds_alternative<Add>(graph_.layers()[l].operation)) share_with_terms(l);
      for (const FusedNorm& fused : fused_)
        if (fused.relu == l) share_with_norm(fused);
    }
    for (auto t = static_cast<std::uint32_t>(memory_.size()); t-- > 0;) memory_[t] = memory_[memory_[t]];
  }

  /// By tensor: the one whose gradient's memory it has, perhaps its own.
  const std::vector<std::uint32_t>& by_tensor() const noexcept { return memory_; }

 private:
  /// A view has its tensor's gradient, and losses write gradients before all other layers.
  void note_reader(std::uint32_t tensor, std::uint32_t layer) {
    const Operation& operation = graph_.layers()[layer].operation;
    const bool is_view = std::holds_alternative<Flatten>(operation);
    if (is_view || kind_of(operation).is_loss) is_no_term_[tensor] = true;
    if (is_view) is_no_term_[graph_.output_tensor(layer)] = true;
    if (readers_[tensor]++ > 0) writes_after_[tensor] = last_reader_[tensor] + 1;
    last_reader_[tensor] = layer;
  }
  bool may_share(std::uint32_t term, std::uint32_t sum) const {
    return term >= graph_.fields().size() && !is_no_term_[term] && graph_.is_trained(term) &&
           last_reader_[term] == sum && std::ranges::count(graph_.inputs_of(sum), term) == 1;
  }
  void share_with_terms(std::uint32_t sum) {
    std::vector<std::uint32_t> terms;
    const auto share = [&](std::uint32_t term) {
      const bool in_time = std::ranges::all_of(terms, [&](std::uint32_t other) {
        return last_read_[other] >= writes_after_[term] && last_read_[term] >= writes_after_[other];
      });
      if (may_share(term, sum) && in_time) terms.push_back(term);
    };
    // Tensors that nothing else reads first: they go with all others.
    for (const bool alone : {true, false})
      for (const std::uint32_t term : graph_.inputs_of(sum))
        if ((readers_[term] == 1) == alone) share(term);
    for (const std::uint32_t term : terms) join(graph_.output_tensor(sum), term);
  }
  void share_with_norm(const FusedNorm& fused) {
    const std::uint32_t put_out = graph_.output_tensor(fused.relu), read = graph_.inputs_of(fused.relu).front();
    join(put_out, read);
    if (fused.sum) writes_after_[put_out] = std::max(writes_after_[put_out], fused.sum->layer + 1);
  }
  void join(std::uint32_t whole, std::uint32_t part) {
    memory_[part] = whole;
    last_read_[whole] = std::min(last_read_[whole], last_read_[part]);
    writes_after_[whole] = std::max(writes_after_[whole], writes_after_[part]);
  }

  const Graph& graph_;
  const std::vector<FusedNorm> fused_ = fused_norms(graph_);
  std::vector<std::uint32_t> memory_ = std::vector<std::uint32_t>(graph_.fields().size() + graph_.layers().size());
  // By tensor. Backward passes go from the last layer to the first.
  std::vector<std::uint32_t> readers_ = std::vector<std::uint32_t>(memory_.size());
  std::vector<std::uint32_t> last_reader_ = readers_;  // layer
  std::vector<std::uint32_t> last_read_ = readers_;    // the lowest layer that reads memory which its gradient shares
  /// One more than the highest layer that writes such memory once the last reader of the tensor has; 0: none does.
  std::vector<std::uint32_t> writes_after_ = readers_;
  std::vector<bool> is_no_term_ = std::vector<bool>(memory_.size());
};

}  // namespace troupe
