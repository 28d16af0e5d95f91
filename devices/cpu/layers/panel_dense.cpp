#include "devices/cpu/layers/panel_dense.hpp"

#include <algorithm>
#include <iterator>

#include "devices/cpu/parallel.hpp"

namespace troupe::cpu {
namespace {

using dnnl::memory;

template <class T>
T* memory_of(const memory& of) {
  return of ? static_cast<T*>(of.get_data_handle()) : nullptr;
}

std::size_t groups_of(std::size_t count, std::size_t each) { return (count + each - 1) / each; }

}  // namespace

/// Divided by vectors of columns, and where these are fewer than threads also by rows.
struct PanelParts {
  const PanelKernels* kernels;
  PanelProduct of;  // all of it
  std::size_t threads, room_words;
  std::size_t terms_at_once;  // the sums of more are added to f32 results

  static constexpr std::size_t kLeastRows = 16;  // of a part

  std::size_t column_parts() const { return std::min(threads, groups_of(of.end_column, kernels->lanes)); }
  std::size_t row_parts() const {
    return std::clamp<std::size_t>(of.end_row / kLeastRows, 1, std::max<std::size_t>(1, threads / column_parts()));
  }

  /// `on`: without its room, of which each part has one in `room`.
  void multiply(const PanelOperands& on, std::uint32_t* room) const {
    const std::size_t parts = column_parts() * row_parts();
    for_each_in_parallel(parts, parts, [&](std::size_t index, std::size_t) {
      PanelProduct part = of;
      const std::size_t column = index % column_parts(), row = index / column_parts();
      part.first_column = first_column(column);
      part.end_column = std::min(of.end_column, first_column(column + 1));
      part.first_row = of.end_row * row / row_parts();
      part.end_row = of.end_row * (row + 1) / row_parts();
      PanelOperands with_room = on;
      with_room.room = room + index * room_words;
      for (std::size_t term = 0; term < of.end_term; term += terms_at_once) {
        part.first_term = term;
        part.end_term = std::min(of.end_term, term + terms_at_once);
        part.adds = term > 0;
        const bool is_last = part.end_term == of.end_term;
        part.relu = of.relu && is_last;
        with_room.bias = is_last ? on.bias : nullptr;
        kernels->multiply(part, with_room);
      }
    });
  }

 private:
  std::size_t first_column(std::size_t part) const {
    return groups_of(of.end_column, kernels->lanes) * part / column_parts() * kernels->lanes;
  }
};

namespace {

/// Sums are computed as [units, rows]: to bring the input into columns takes less than to bring weights there, unless
/// rows leave many lanes empty.
struct PanelForward {
  PanelParts parts;
  memory input, weights, bias, output, sums, room;
  PanelOutputs outputs;

  void operator()(const Kernels&) const {
    parts.multiply({memory_of<void>(weights), memory_of<void>(input), memory_of<float>(sums), nullptr, nullptr},
                   memory_of<std::uint32_t>(room));
    PanelOutputs all = outputs;
    all.sums = memory_of<float>(sums);
    all.bias = memory_of<float>(bias);
    if (is_f32(output))
      all.f32 = memory_of<float>(output);
    else
      all.bf16 = memory_of<std::uint16_t>(output);
    const std::size_t each = parts.kernels->lanes, count = groups_of(outputs.units, each);
    const std::size_t threads = std::min(parts.threads, count);
    for_each_in_parallel(threads, threads, [&](std::size_t part, std::size_t) {
      PanelOutputs some = all;
      some.first_unit = count * part / threads * each;
      some.end_unit = std::min(outputs.units, count * (part + 1) / threads * each);
      parts.kernels->finish(some);
    });
  }
};

/// A product that is f32, or is rounded at once or from its sums.
struct PanelRows {
  PanelParts parts;
  std::size_t elements;                   // of the result
  memory a, b, bias, result, sums, room;  // sums: empty if they are not rounded or are rounded at once

  void operator()(const Kernels& kernels) const {
    PanelOperands on{memory_of<void>(a),    memory_of<void>(b), memory_of<float>(sums), nullptr, nullptr,
                     memory_of<float>(bias)};
    auto* const bf16 = memory_of<std::uint16_t>(result);
    if (is_f32(result))
      on.f32 = memory_of<float>(result);
    else if (!sums)
      on.bf16 = bf16;
    parts.multiply(on, memory_of<std::uint32_t>(room));
    if (sums) kernels.round(bf16, on.f32, elements);
  }
};

struct PanelToWeights {
  PanelParts parts;
  std::size_t rows, units;
  memory input, gradient, weights, bias, pairs, room;  // pairs: empty for f32

  void operator()(const Kernels&) const {
    const PanelKernels& kernels = *parts.kernels;
    if (pairs) kernels.pair_rows(memory_of<std::uint16_t>(gradient), rows, units, memory_of<std::uint32_t>(pairs));
    if (bias) kernels.add_rows(memory_of<void>(gradient), rows, units, memory_of<float>(bias));
    parts.multiply({memory_of<void>(pairs ? pairs : gradient), memory_of<void>(input), memory_of<float>(weights),
                    nullptr, nullptr},
                   memory_of<std::uint32_t>(room));
  }
};

// The rule of PanelPasses, read off measurements on a Zen 4 with AVX-512 and with AVX2 alone. Where it says no, oneDNN
// or DenseKernels are as fast.
constexpr std::size_t kMostPanelRows = 255;  // more pay for copies of all operands, as oneDNN makes them
constexpr double kLeastFilledByRows = 0.75;  // of the forward pass's lanes, with rows
/// To transpose the weights and have units in the lanes costs a tenth, and pays where rows fill less than so much of
/// the vectors, and units more.
constexpr double kFilledByRows = 0.9, kFilledByUnits = 0.95;
/// At once: panels shall stay in the second-level cache. With fewer, what is fetched of the other matrix ends too soon.
constexpr std::size_t kMostPanelTerms = 1024;
/// Of whole columns, of which the next ones are fetched in time (panels.inc).
constexpr std::size_t kMostTermsOfColumns = 2048;
constexpr std::size_t kFewRows = 8, kFewUnits = 16;
/// With few units, the vectors of longer sums than this are added up faster than operands are transposed.
constexpr std::size_t kVectorsOfShortSums = 4;
constexpr std::size_t kFewInputsF32 = 64;  // with few units, oneDNN's products of f32 are as fast with more
/// Of few rows, at once: weights are used so seldom that they are best read in their order.
constexpr std::size_t kTermsOfFewRows = 32;

double filled_part(std::size_t count, std::size_t each) {
  return static_cast<double>(count) / static_cast<double>(groups_of(count, each) * each);
}

/// The same, where a last vector that is alone counts twice: it has too few sums to hide the latency of an addition.
double filled_part(std::size_t count, const PanelKernels& kernels) {
  const std::size_t vectors = groups_of(count, kernels.lanes), lonely = vectors % kernels.vectors == 1 ? 1 : 0;
  return static_cast<double>(count) / static_cast<double>((vectors + lonely) * kernels.lanes);
}

}  // namespace

PanelPasses::PanelPasses(ProgramBuilder& builder, const DenseShape& of)
    : builder_(builder), of_(of), threads_(usable_threads()) {
  const bool bf16 = builder.computed() == ProgramBuilder::Type::bf16;
  const auto usable = usable_panel_kernels(bf16);
  if (usable.empty() || (bf16 && has_amx_instructions())) return;
  kernels_ = usable.back();
  if (of.rows > kMostPanelRows) return;
  const std::size_t elements = kernels_->terms_of_word;
  const bool in_blocks = of.in_blocks.channels > 0, few_units = of.units <= kFewUnits;
  const bool short_sums = of.inputs <= kVectorsOfShortSums * kernels_->lanes * elements;
  forward_ = (!few_units || short_sums) && of.inputs % elements == 0 &&
             filled_part(of.rows, kernels_->lanes) >= kLeastFilledByRows;
  forward_by_units_ = !in_blocks && !few_units && filled_part(of.rows, *kernels_) < kFilledByRows &&
                      filled_part(of.units, *kernels_) >= kFilledByUnits;
  to_weights_ = in_blocks || of.rows <= kFewRows || (few_units && (bf16 || of.inputs <= kFewInputsF32));
  to_input_ = to_weights_ && of.units % elements == 0 && (of.rows <= kFewRows || of.units <= kMostPanelTerms);
}

memory PanelPasses::words(std::size_t count) const {
  return builder_.places().take(builder_.matrix(1, count, ProgramBuilder::Type::s32));
}

PanelParts PanelPasses::parts(const PanelProduct& of, std::size_t terms_at_once) const {
  return {kernels_, of, threads_, PanelKernels::room_words(terms_at_once), terms_at_once};
}

memory PanelPasses::room_of(const PanelParts& parts) const { return words(parts.room_words * threads_); }

void PanelPasses::add_rows(Calls& calls, const PanelParts& parts, const memory& a, const memory& b, const memory& bias,
                           const memory& result) const {
  const std::size_t elements = parts.of.end_row * parts.of.end_column;
  const bool rounds_at_once = is_f32(result) || parts.terms_at_once == parts.of.end_term;
  const memory sums = rounds_at_once ? memory{} : words(elements), room = room_of(parts);
  calls.emplace_back(OwnWork{{a, b, bias, result, sums, room},
                             PanelRows{parts, elements, a, b, bias, result, sums, room},
                             /*is_product=*/true});
}

void PanelPasses::forward(Calls& calls, const memory& input, const memory& weights, const memory& bias,
                          const memory& output) const {
  if (forward_by_units_) return forward_of_rows(calls, input, weights, bias, output);
  const std::size_t to_unit = groups_of(of_.rows, kernels_->lanes) * kernels_->lanes;
  const PanelParts all = parts({.end_row = of_.units,
                                .end_column = of_.rows,
                                .end_term = of_.inputs,
                                .a_row = of_.inputs / kernels_->terms_of_word,
                                .a_term = 1,
                                .b_row = of_.inputs,
                                .to_row = to_unit,
                                .b_is_transposed = true,
                                .b_order = of_.in_blocks},
                               kMostPanelTerms);
  const memory sums = words(of_.units * to_unit), room = room_of(all);
  calls.emplace_back(
      OwnWork{{input, weights, bias, output, sums, room},
              PanelForward{all, input, weights, bias, output, sums, room,
                           PanelOutputs{.rows = of_.rows, .units = of_.units, .to_unit = to_unit, .relu = of_.relu}},
              /*is_product=*/true});
}

void PanelPasses::to_input(Calls& calls, const memory& gradient, const memory& weights,
                           const memory& input_gradient) const {
  const PanelParts all = parts({.end_row = of_.rows,
                                .end_column = of_.inputs,
                                .end_term = of_.units,
                                .a_row = of_.units / kernels_->terms_of_word,
                                .a_term = 1,
                                .b_row = of_.inputs,
                                .to_row = of_.inputs,
                                .to_order = of_.in_blocks},
                               std::min(of_.units, of_.rows <= kFewRows ? kTermsOfFewRows : kMostPanelTerms));
  add_rows(calls, all, gradient, weights, {}, input_gradient);
}

void PanelPasses::forward_of_rows(Calls& calls, const memory& input, const memory& weights, const memory& bias,
                                  const memory& output) const {
  const PanelParts all = parts({.end_row = of_.rows,
                                .end_column = of_.units,
                                .end_term = of_.inputs,
                                .a_row = of_.inputs / kernels_->terms_of_word,
                                .a_term = 1,
                                .b_row = of_.inputs,
                                .to_row = of_.units,
                                .b_is_transposed = true,
                                .relu = of_.relu},
                               of_.inputs <= kMostTermsOfColumns ? of_.inputs : kMostPanelTerms);
  add_rows(calls, all, input, weights, bias, output);
}

void PanelPasses::to_weights(Calls& calls, const memory& input, const memory& gradient, const memory& weights,
                             const memory& bias) const {
  const PanelParts all = parts({.end_row = of_.units,
                                .end_column = of_.inputs,
                                .end_term = of_.rows,
                                .a_row = 1,
                                .a_term = of_.units,
                                .b_row = of_.inputs,
                                .to_row = of_.inputs,
                                .b_order = of_.in_blocks},
                               of_.rows);
  const memory room = room_of(all);
  const memory paired = kernels_->pair_rows != nullptr ? words(groups_of(of_.rows, 2) * of_.units) : memory{};
  calls.emplace_back(OwnWork{{input, gradient, weights, bias, paired, room},
                             PanelToWeights{all, of_.rows, of_.units, input, gradient, weights, bias, paired, room},
                             /*is_product=*/true});
}

}  // namespace troupe::cpu
