#include "runtime/model/detail/layer_rows.hpp"

namespace troupe::detail {
namespace {

constexpr double kMostDeviation = 1e6;

/// Length and width of a sequence.
struct Sequence {
  std::uint32_t length, width;
};
Sequence sequence_of(const LayerShapes& layer) {
  const std::vector<std::uint32_t>& extents = layer.inputs.front().extents;
  TROUPE_CHECK(extents.size() == 2, Code::invalid, layer.where, ": reads ", layer.inputs.front().to_string(),
               "; it takes a sequence of two extents: length, width");
  return {extents[0], extents[1]};
}

LayerResult infer_embedding(const LayerShapes& layer) {
  const auto& embedding = std::get<Embedding>(layer.operation);
  TROUPE_CHECK(layer.token_classes <= embedding.vocabulary, Code::invalid, layer.where, ": has a vocabulary of ",
               embedding.vocabulary, ", the tokens that it reads are 0 to ", layer.token_classes - 1);
  limited_product(layer, "weights", embedding.vocabulary, embedding.width);
  Shape output = layer.inputs.front();
  output.extents.push_back(embedding.width);
  return {std::move(output), {{"weight", {embedding.vocabulary, embedding.width}, 0, embedding.deviation}}};
}

LayerResult infer_position(const LayerShapes& layer) {
  const auto [length, width] = sequence_of(layer);
  return {layer.inputs.front(), {{"weight", {length, width}, 0, std::get<Position>(layer.operation).deviation}}};
}

LayerResult infer_layer_norm(const LayerShapes& layer) {
  const std::uint64_t width = layer.inputs.front().extents.back();
  return {layer.inputs.front(), {{"weight", {width}, 0, 0, 1}, {"bias", {width}, 0, 0}}};
}

LayerResult infer_attention(const LayerShapes& layer) {
  const auto& attention = std::get<Attention>(layer.operation);
  const auto [length, three_widths] = sequence_of(layer);
  const std::uint32_t width = three_widths / 3;
  TROUPE_CHECK(three_widths % 3 == 0 && width % attention.heads == 0, Code::invalid, layer.where, ": reads ",
               layer.inputs.front().to_string(), "; it takes [length, 3 width], and a width that can be cut into ",
               attention.heads, " heads");
  const std::uint64_t read =
      attention.causal ? std::uint64_t{length} * (length + 1) / 2 : std::uint64_t{length} * length;
  return {Shape{{length, width}},
          {},
          limited_product(layer, "multiplications", limited_product(layer, "multiplications", read, 2), width)};
}

}  // namespace

LayerKind embedding_row() {
  return {
      .name = "embedding",
      .help =
          "A vector of weights for each token. It reads a field of tokens (i32) from 0 to `vocabulary` - 1; a token "
          "below 0 gives zeros. Weights are [vocabulary, width].",
      .shape = "tokens [...] to [..., width]",
      .reads_tokens = true,
      .made = Embedding{},
      .attributes = {{"vocabulary",
                      slot_of<&Embedding::vocabulary>,
                      1,
                      kMostCounted,
                      "number of different tokens",
                      true,
                      false,
                      {"num_embeddings", "input_dim", "classes"}},
                     {"width",
                      slot_of<&Embedding::width>,
                      1,
                      kMostCounted,
                      "elements of a vector",
                      true,
                      false,
                      {"embedding_dim", "output_dim", "units"}},
                     {"deviation", slot_of<&Embedding::deviation>, 0, kMostDeviation,
                      "standard deviation of the starting weights"}},
      .elsewhere = {"embed", "lookup"},
      .infer = infer_embedding};
}

LayerKind position_row() {
  return {.name = "position",
          .help = "Adds a trained vector for each position of a sequence. Weights are [length, width].",
          .shape = "[length, width], same shape",
          .made = Position{},
          .attributes = {{"deviation", slot_of<&Position::deviation>, 0, kMostDeviation,
                          "standard deviation of the starting weights"}},
          .elsewhere = {"position_embedding", "positional_embedding", "positions"},
          .infer = infer_position};
}

LayerKind layer_norm_row() {
  return {
      .name = "layer_norm",
      .help =
          "Normalizes the last extent to mean 0 and variance 1, at each position of the others, then multiplies each "
          "element "
          "by a weight, which starts as 1, and adds a bias.",
      .shape = "anything, same shape",
      .made = LayerNorm{},
      .attributes = {{"epsilon", slot_of<&LayerNorm::epsilon>, 0, 1, "added to the variance", false, true, {"eps"}}},
      .elsewhere = {"layernorm", "layer_normalization"},
      .infer = infer_layer_norm};
}

LayerKind attention_row() {
  return {
      .name = "attention",
      .help =
          "Attention of a sequence to itself, by several heads, each on its part of the width. It has no weights: a "
          "`dense` with `flatten = false` before it computes queries, keys and values, which lie side by side in this "
          "order, and another one may follow.",
      .shape = "[length, 3 width] to [length, width]",
      .made = Attention{},
      .attributes = {{"heads",
                      slot_of<&Attention::heads>,
                      1,
                      kMostCounted,
                      "parts of the width",
                      false,
                      false,
                      {"num_heads", "n_head"}},
                     {"causal", slot_of<&Attention::causal>, 0, 1,
                      "whether a position reads only itself and earlier ones"}},
      .elsewhere = {"self_attention", "multihead_attention", "multi_head_attention"},
      .infer = infer_attention};
}

}  // namespace troupe::detail
