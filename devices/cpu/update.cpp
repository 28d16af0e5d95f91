#include "devices/cpu/update.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/compute/rules/gradient_check.hpp"
#include "runtime/compute/rules/tensor_norms.hpp"

namespace troupe::cpu {
namespace {

constexpr std::uint64_t kBlock = UpdateJournal::kBlockElements;

/// to = parts[0] + parts[1] + ... over [first, first + count), for at least two parts. `to` may be one of the parts
/// only if there are exactly two.
void add_up(const Kernels& kernels, float* to, std::span<const float* const> parts, std::uint64_t first,
            std::uint64_t count) {
  kernels.add(to, parts[0] + first, parts[1] + first, count);
  for (const float* part : parts.subspan(2)) kernels.add(to, to, part + first, count);
}

}  // namespace

void reduce(const Kernels& kernels, float* to, std::span<const float* const> parts, std::uint64_t count) {
  if (parts.size() == 1) {
    if (parts[0] != to) std::memcpy(to, parts[0], count * sizeof(float));
    return;
  }
  if (parts.size() == 2) return add_up(kernels, to, parts, 0, count);
  // `to` may be one of the later parts, so all parts but the last are added in a buffer, a block at a time.
  alignas(64) std::array<float, kBlock> sums;
  for (std::uint64_t first = 0; first < count; first += kBlock) {
    const std::uint64_t block = std::min(kBlock, count - first);
    add_up(kernels, sums.data(), parts.first(parts.size() - 1), first, block);
    kernels.add(to + first, sums.data(), parts.back() + first, block);
  }
}

void add_update_squares(const Kernels& kernels, const RuleStep& rule, const UpdateAddresses& at, const float* sum,
                        const StepSums& total) {
  const float scale = gradient_scale(rule, total);
  if (scale == 0) return;
  add_tensor_squares(
      at, rule, [&](const RuleStep& here, std::uint64_t first, std::uint64_t count, double* weights, double* update) {
        const auto from = [&](float* array) { return array ? array + first : array; };
        kernels.measure({.rule = &here,
                         .scale = scale,
                         .first = sum + first,
                         .second = nullptr,
                         .p = at.parameters + first,
                         .s0 = from(at.state[0]),
                         .s1 = from(at.state[1]),
                         .average = nullptr,
                         .half = nullptr,
                         .count = count},
                        weights, update);
      });
}

void UpdateArithmetic::operator()(std::uint64_t first, std::uint64_t count, const UndoCopy& undo) const {
  // The update's loop adds up to two contributions. If there are more, all but the last are added before, a block at a
  // time, while the block is in the cache.
  alignas(64) std::array<float, kBlock> sums;
  const std::size_t parts = contributions_.size();
  for (const std::uint64_t end = first + count; first < end; first += kBlock) {
    UpdatePart part{.rule = &rule_, .scale = scale_, .first = contributions_[0] + first, .p = at_.parameters + first};
    part.count = std::min(kBlock, end - first);
    if (parts > 2) {
      add_up(kernels_, sums.data(), contributions_.first(parts - 1), first, part.count);
      part.first = sums.data();
    }
    if (parts > 1) part.second = contributions_[parts - 1] + first;
    if (at_.state[0]) part.s0 = at_.state[0] + first;
    if (at_.state[1]) part.s1 = at_.state[1] + first;
    if (rule_.average > 0) part.average = at_.state[state_slots(rule_.kind)] + first;
    if (at_.half) part.half = at_.half + first;
    run(part, first, end - first > kBlock ? UndoCopy{} : undo);
  }
}

/// One kernel call, or one for every piece with its own constants; the last of them makes the undo copy.
void UpdateArithmetic::run(const UpdatePart& part, std::uint64_t first, const UndoCopy& undo) const {
  if (at_.no_decay.empty() && at_.scaled.empty()) return kernels_.update(part, undo);
  for_each_piece(at_, rule_, first, part.count, [&](std::uint64_t begin, std::uint64_t count, const RuleStep& rule) {
    const std::uint64_t skip = begin - first;
    const auto moved = [&](auto* array) { return array ? array + skip : array; };
    kernels_.update({.rule = &rule,
                     .scale = part.scale,
                     .first = moved(part.first),
                     .second = moved(part.second),
                     .p = moved(part.p),
                     .s0 = moved(part.s0),
                     .s1 = moved(part.s1),
                     .average = moved(part.average),
                     .half = moved(part.half),
                     .count = count},
                    skip + count == part.count ? undo : UndoCopy{});
  });
}

}  // namespace troupe::cpu
