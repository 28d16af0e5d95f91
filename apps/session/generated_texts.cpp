// Texts that the model of a run generates after its evaluations, at rank 0.

#include "apps/session/view.hpp"
#include "runtime/base/printable.hpp"
#include "runtime/base/random.hpp"
#include "runtime/compute/text_generation.hpp"

namespace troupe {
namespace {

/// The part of the seed for texts.
constexpr std::uint64_t kTexts = 0x74657874;

/// Bytes of an arena besides its content.
constexpr std::uint64_t kArenaWords = 64 << 10;

}  // namespace

std::optional<TextPlan> View::text_plan() {
  if (settings().evaluate.text.bytes == 0 || !leads_job()) return {};
  const Memory weights = memory_.replica.parameters;
  const auto arena =
      Arena::create(space_.new_arena({joined_.self().value}), weights.size_bytes + kArenaWords, job_.place().memory());
  space_.map(arena);
  arenas_.push_back(arena->id());
  const Memory copy = arena->allocate(weights.size_bytes);
  text_thread_ = std::make_unique<IoThreads>("text", 1);
  return TextPlan{.from = weights, .copy = copy, .work = *text_thread_, .generate = [this, copy](Step step) {
                    return generate_text(step, copy);
                  }};
}

/// Called on the thread for texts. It does not delay a stop or the end of the run by more than a byte, nor any rank by
/// more than half of what an exchange may wait.
std::string View::generate_text(Step step, const Memory& weights) const {
  const TextSettings& wanted = settings().evaluate.text;
  const Deadline deadline = Deadline::after(settings().faults.exchange / 2);
  const std::uint64_t count = joined_.layout.count_elements();
  Decoder decoder{joined_.graph, joined_.layout, {space_.address_of<const float>(weights), count}};
  return printable(troupe::generate_text(decoder, wanted, sub_key(sub_key(joined_.plan.seed, kTexts), step.value),
                                         [&] { return !over_ && !stop_asked_ && !deadline.passed(); }));
}

}  // namespace troupe
