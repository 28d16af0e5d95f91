#include "runtime/compute/text_generation.hpp"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <numeric>

#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"

namespace troupe {
namespace {

constexpr std::uint32_t kBytes = 256;

/// Adds the bytes of `all` from `first` on. Returns the logits after the last one.
std::span<const float> add_from(Decoder& decoder, const std::string& all, std::size_t first) {
  std::span<const float> logits;
  for (std::size_t i = first; i < all.size(); ++i) logits = decoder.add(static_cast<std::uint8_t>(all[i]));
  return logits;
}

}  // namespace

std::string text_refusal(const Graph& graph) {
  if (std::string refused = Decoder::refusal(graph); !refused.empty()) return refused;
  for (const Field& field : graph.fields())
    if (field.classes != 0 && field.classes != kBytes)
      return text("field ", field.name, " has ", field.classes, " classes, and a byte has ", kBytes);
  if (graph.count_classes() != kBytes) return text("it ends in ", graph.count_classes(), " classes, not in ", kBytes);
  return {};
}

std::uint8_t draw_byte(std::span<const float> logits, const TextSettings& settings, double unit) {
  std::array<std::uint8_t, kBytes> order{};
  std::iota(order.begin(), order.end(), std::uint8_t{0});
  std::array<float, kBytes> all{};  // NaN could not be sorted
  std::ranges::transform(logits, all.begin(), [](float x) { return x >= -FLT_MAX ? x : -FLT_MAX; });
  std::ranges::sort(order, [&](std::uint8_t a, std::uint8_t b) { return all[a] != all[b] ? all[a] > all[b] : a < b; });
  if (settings.temperature == 0) return order.front();
  const std::size_t count = settings.most_likely == 0 ? kBytes : std::min(settings.most_likely, kBytes);
  std::array<double, kBytes> sums{};  // of the first bytes' weights
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i)
    sums[i] = sum += std::exp((double{all[order[i]]} - all[order.front()]) / settings.temperature);
  const auto* const drawn = std::upper_bound(sums.begin(), sums.begin() + count, unit * sum);
  return order[std::min<std::size_t>(static_cast<std::size_t>(drawn - sums.begin()), count - 1)];
}

std::string generate_text(Decoder& decoder, const TextSettings& settings, std::uint64_t key,
                          const std::function<bool()>& goes_on) {
  TROUPE_CHECK(!settings.prompt.empty(), Code::invalid, "a text begins with a prompt of at least one byte");
  std::string all = settings.prompt;
  decoder.restart();
  std::span<const float> logits =
      add_from(decoder, all, all.size() - std::min<std::size_t>(all.size(), decoder.length()));
  for (std::uint32_t i = 0; i < settings.bytes && goes_on(); ++i) {
    all += static_cast<char>(draw_byte(logits, settings, random_unit(key, i)));
    if (i + 1 == settings.bytes) break;
    std::size_t unread = 1;
    if (decoder.position() == decoder.length()) {
      decoder.restart();
      unread = std::min<std::size_t>(all.size(), std::max(decoder.length() / 2, 1U));
    }
    logits = add_from(decoder, all, all.size() - unread);
  }
  return all;
}

}  // namespace troupe
