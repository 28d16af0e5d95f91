#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "runtime/compute/decoder.hpp"

namespace troupe {

/// How a model that predicts bytes continues a text.
struct TextSettings {
  std::uint32_t bytes = 0;        // to generate
  std::string prompt = "\n";      // with which the text begins; not empty
  double temperature = 0.8;       // by which logits are divided; 0: always the most likely byte
  std::uint32_t most_likely = 0;  // bytes among which one is drawn at each place; 0: all
  friend bool operator==(const TextSettings&, const TextSettings&) = default;
};

/// Why `graph` cannot generate text; empty: it can. It needs tokens and labels that are bytes; see Decoder::refusal.
std::string text_refusal(const Graph& graph);

/// The byte that `unit`, in (0, 1), draws by `logits` [256].
std::uint8_t draw_byte(std::span<const float> logits, const TextSettings& settings, double unit);

/// The prompt and the bytes after it. Byte i depends only on the weights, the settings, `key` and i. The model reads
/// the last bytes of the text as far as it has positions; when it has none left, it begins again with the later half of
/// them. Ends early if `goes_on`, called before each byte, returns false.
std::string generate_text(Decoder& decoder, const TextSettings& settings, std::uint64_t key,
                          const std::function<bool()>& goes_on);

}  // namespace troupe
