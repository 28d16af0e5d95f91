#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/model/graph.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {

/// Computes what a causal model of tokens predicts, one position after the other, on the thread that calls it. Keys and
/// values of earlier positions are kept, so a token costs one pass over the weights, not one over the whole context. In
/// f32 whatever the graph's type is; every sum has a fixed order, the same for all instruction sets. Source of the
/// cache: Pope et al. 2022 (Efficiently scaling transformer inference), section 3.3. Threads: one at a time.
class Decoder {
 public:
  /// Why `graph` cannot be decoded, with the layer that prevents it; empty: it can. It must read tokens [length] and
  /// end in its only loss, softmax_cross_entropy of as many labels, and no position may read a later one.
  static std::string refusal(const Graph& graph);

  /// `parameters` [layout.count_elements()] are not copied; they outlive the decoder. Throws Error{unsupported} with
  /// the refusal.
  Decoder(const Graph& graph, const Layout& layout, std::span<const float> parameters);

  /// How many positions the model has.
  std::uint32_t length() const noexcept { return length_; }
  /// How many tokens there are; at most length().
  std::uint32_t position() const noexcept { return position_; }
  /// Adds a token; position() must be below length(). Returns the logits of the token after it, valid until the next
  /// call. Throws Error{invalid} for a token that is not in the vocabulary.
  std::span<const float> add(std::uint32_t token);
  /// Begins again at position 0.
  void restart() noexcept { position_ = 0; }

 private:
  struct Work;
  static bool can_decode(const Operation& operation);
  std::span<const float> weights(std::size_t parameter) const;

  const Graph graph_;
  const Layout layout_;
  const std::span<const float> parameters_;
  std::uint32_t length_ = 0;
  std::uint32_t vocabulary_ = ~0U;
  std::uint32_t position_ = 0;
  std::vector<std::size_t> first_parameter_;  // by layer
  std::vector<std::vector<float>> values_;    // by tensor, of the present position
  std::vector<std::vector<float>> kept_;      // by layer: keys and values [length, 2 width] of an attention
};

}  // namespace troupe
