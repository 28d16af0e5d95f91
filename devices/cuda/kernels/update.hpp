#pragma once

#include "devices/cuda/kernels/points.hpp"
#include "devices/cuda/kernels/sums.hpp"
#include "runtime/compute/rules/rule.hpp"
#include "runtime/compute/rules/tensor_norms.hpp"

// The optimizer's pass over a stripe, and what is measured before it.
namespace troupe::cuda {

struct UpdateValues {
  RuleStep rule{};
  std::uint64_t number = 0;
  const StepSums* total = nullptr;
};

/// Ranges of elements that come with the arguments, for lists that stay on the GPU.
struct WriteRangesArgs {
  static constexpr std::uint32_t kMost = 240;

  const StreamState* stream;
  Layout::Entry* to;
  std::uint64_t count;
  Layout::Entry ranges[kMost];
};

TROUPE_KERNEL_BODY void write_ranges(const Block& block, const WriteRangesArgs& args) {
  Layout::Entry* const to = block.at(args.to);
  block.for_each_here(args.count, [&](std::uint64_t i) { to[i] = args.ranges[i]; });
}

struct UpdateArgs {
  const StreamState* stream;
  StreamReport* report;
  float* parameters;
  std::uint16_t* half;           // null: no copy in 16 bits
  float* state[kMaxStateSlots];  // null beyond what the rule keeps, the average included
  float* average;                // the last of `state`; null: the rule keeps none
  UpdateJournal* journal;        // null: the pass is not restartable
  std::uint64_t count;
  std::uint64_t first_element;
  const Layout::Entry* no_decay;
  std::uint64_t count_no_decay;
  const Layout::Entry* scaled;
  std::uint64_t count_scaled;
  const TensorSquares* squares;
  const LossScaleState* loss_scale;  // null: nothing was left out
  Stored copy_type;                  // of `half`
  std::uint32_t reserved;
  std::uint64_t count_parts;
  const float* parts[kMaxParts];
  Given<UpdateValues> given;
};

/// The constants of this update, which is a later one than its state knows if updates were left out.
TROUPE_KERNEL_BODY RuleStep rule_of(const Block& block, const UpdateValues& values, const LossScaleState* scale) {
  return scale == nullptr ? values.rule : without_left_out(values.rule, block.at(scale)->now.left_out);
}

/// Where an element of a group stands in ranges that grow.
struct RangePlace {
  std::uint64_t index = 0;
  bool inside = false;
  std::uint64_t end = 0;  // the first element behind it for which that does not hold
};

TROUPE_KERNEL_BODY RangePlace place_in(const Layout::Entry* ranges, std::uint64_t count, std::uint64_t element) {
  std::uint64_t low = 0, high = count;
  while (low < high) {
    const std::uint64_t middle = (low + high) / 2;
    if (ranges[middle].first + ranges[middle].count <= element)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == count) return {low, false, ~std::uint64_t{0}};
  const bool inside = ranges[low].first <= element;
  return {low, inside, inside ? ranges[low].first + ranges[low].count : ranges[low].first};
}

/// What a pass works on, where this kernel finds it.
struct PassMemory {
  float* parameters;
  std::uint16_t* half;
  float* state[kMaxStateSlots];
  float* average;
  const Layout::Entry* no_decay;
  const Layout::Entry* scaled;
  const TensorSquares* squares;
};

TROUPE_KERNEL_BODY PassMemory memory_of(const Block& block, const UpdateArgs& args) {
  static_assert(kMaxStateSlots == 3);
  return {block.at(args.parameters),
          block.at(args.half),
          {block.at(args.state[0]), block.at(args.state[1]), block.at(args.state[2])},
          block.at(args.average),
          block.at(args.no_decay),
          block.at(args.scaled),
          block.at(args.squares)};
}

/// What differs between elements of the group: in [begin, end) it is the same.
struct PieceRule {
  float rate = 0;
  float decay = 0;
  std::uint64_t begin = 1;
  std::uint64_t end = 0;
};

template <RuleKind kKind>
TROUPE_KERNEL_BODY PieceRule piece_at(const UpdateArgs& args, const PassMemory& memory, const RuleStep& rule,
                                      std::uint64_t element) {
  const RangePlace undecayed = place_in(memory.no_decay, args.count_no_decay, element);
  PieceRule piece{rule.rate, undecayed.inside ? 0 : rule.decay, element, undecayed.end};
  if constexpr (needs_tensor_norms(kKind)) {
    const RangePlace tensor = place_in(memory.scaled, args.count_scaled, element);
    RuleStep own = rule;
    own.decay = piece.decay;
    if (tensor.inside) piece.rate *= trust_ratio(own, memory.squares[tensor.index]);
    if (tensor.end < piece.end) piece.end = tensor.end;
  }
  return piece;
}

/// The elements from `i` on, a multiple of kCount from where packs begin, which lie in one piece.
template <RuleKind kKind, unsigned kCount>
TROUPE_KERNEL_BODY void update_at(Width<kCount> width, const Block& block, const UpdateArgs& args,
                                  const PassMemory& memory, const RuleStep& rule, const PieceRule& piece, float scale,
                                  std::uint64_t i) {
  constexpr std::size_t kStates = state_slots(kKind);
  const auto at = [i](auto* array) { return array + i; };
  const auto sums = bring(width, at(block.at(args.parts[0])), Stored::f32, 0);
  const auto parameters = bring(width, at(memory.parameters), Stored::f32, 0);
  StoredNumbers<kCount> states[2]{};
  if constexpr (kStates > 0) states[0] = bring(width, at(memory.state[0]), Stored::f32, 0);
  if constexpr (kStates > 1) states[1] = bring(width, at(memory.state[1]), Stored::f32, 0);
  Numbers<kCount> sum = widened(sums, Stored::f32), p = widened(parameters, Stored::f32);
  Numbers<kCount> s0 = widened(states[0], Stored::f32), s1 = widened(states[1], Stored::f32);
  for (std::uint64_t part = 1; part < args.count_parts; ++part) {
    const Numbers<kCount> more = load(width, at(block.at(args.parts[part])), Stored::f32, 0);
    for (unsigned k = 0; k < kCount; ++k) sum.of[k] += more.of[k];
  }
  RuleStep own = rule;
  own.rate = piece.rate, own.decay = piece.decay;
  for (unsigned k = 0; k < kCount; ++k) update_element<kKind>(own, scale, sum.of[k], p.of[k], s0.of[k], s1.of[k]);
  store(width, at(memory.parameters), Stored::f32, 0, p);
  if constexpr (kStates > 0) store(width, at(memory.state[0]), Stored::f32, 0, s0);
  if constexpr (kStates > 1) store(width, at(memory.state[1]), Stored::f32, 0, s1);
  if (memory.half) store(width, at(memory.half), args.copy_type == Stored::f16 ? Stored::f16 : Stored::bf16, 0, p);
  if (memory.average == nullptr) return;
  Numbers<kCount> average = load(width, at(memory.average), Stored::f32, 0);
  for (unsigned k = 0; k < kCount; ++k) average_element(own, p.of[k], average.of[k]);
  store(width, at(memory.average), Stored::f32, 0, average);
}

/// How many elements lie before the first pack of all arrays; kPack: their packs begin in different places, as those
/// of stripes that other ranks have laid out may.
TROUPE_KERNEL_BODY unsigned elements_before_packs(const Block& block, const UpdateArgs& args,
                                                  const PassMemory& memory) {
  const auto before = [](const void* at, std::uint64_t size_bytes) {
    return static_cast<unsigned>((kPack - reinterpret_cast<std::uintptr_t>(at) / size_bytes % kPack) % kPack);
  };
  const unsigned found = before(memory.parameters, sizeof(float));
  bool same = memory.half == nullptr || before(memory.half, sizeof(std::uint16_t)) == found;
  for (const float* const state : memory.state)
    same = same && (state == nullptr || before(state, sizeof *state) == found);
  for (std::uint64_t part = 0; part < args.count_parts; ++part)
    same = same && before(block.at(args.parts[part]), sizeof(float)) == found;
  return same ? found : kPack;
}

/// Packs by packs, but for those that begin before the first element, end behind the last one, or lie in two pieces.
template <RuleKind kKind>
TROUPE_KERNEL_BODY void update_all(const Block& block, const UpdateArgs& args, const RuleStep& rule, float scale) {
  const PassMemory memory = memory_of(block, args);
  const unsigned before = elements_before_packs(block, args, memory);
  const unsigned lead = before % kPack == 0 ? 0 : kPack - before;  // elements that the first pack lacks
  PieceRule piece;
  block.for_each((args.count + lead + kPack - 1) / kPack, [&](std::uint64_t pack) {
    const std::uint64_t first = pack == 0 ? 0 : pack * kPack - lead;
    const std::uint64_t end = (pack + 1) * kPack - lead < args.count ? (pack + 1) * kPack - lead : args.count;
    const auto find = [&](std::uint64_t i) {
      const std::uint64_t element = args.first_element + i;
      if (element < piece.begin || element >= piece.end) piece = piece_at<kKind>(args, memory, rule, element);
    };
    find(first);
    if (before < kPack && end - first == kPack && args.first_element + end <= piece.end)
      return update_at<kKind>(Width<kPack>{}, block, args, memory, rule, piece, scale, first);
    for (std::uint64_t i = first; i < end; ++i) {
      find(i);
      update_at<kKind>(Width<1>{}, block, args, memory, rule, piece, scale, i);
    }
  });
}

inline constexpr std::uint64_t kJournalBits = 24;  // as in detail::kProgressBits

/// Copies journal block `b` of all arrays to its undo block, or back.
TROUPE_KERNEL_BODY void copy_undo(const Block& block, const UpdateArgs& args, const PassMemory& memory, std::uint64_t b,
                                  bool back) {
  constexpr std::uint64_t kElements = UpdateJournal::kBlockElements;
  const std::uint64_t first = b * kElements;
  if (first >= args.count) return;
  const std::uint64_t count = args.count - first < kElements ? args.count - first : kElements;
  float* const arrays[1 + kMaxStateSlots] = {memory.parameters, memory.state[0], memory.state[1], memory.state[2]};
  std::uint64_t kept = 0;
  for (float* const array : arrays) kept += array ? 1 : 0;
  float* undo = reinterpret_cast<float*>(block.at(args.journal) + 1) + (b % 2) * kElements * kept;
  for (float* const array : arrays) {
    if (!array) continue;
    block.for_each_here(count, [&](std::uint64_t i) {
      if (back)
        array[first + i] = undo[i];
      else
        undo[i] = array[first + i];
    });
    undo += kElements;
  }
}

/// run_update_pass by one block of threads; its invariants are those there. A barrier stands wherever another thread
/// must have done its part before the next word is written.
template <RuleKind kKind>
TROUPE_KERNEL_BODY void update_restartably(const Block& block, const UpdateArgs& args, const RuleStep& rule,
                                           float scale, std::uint64_t number) {
  constexpr std::uint64_t kElements = UpdateJournal::kBlockElements;
  const PassMemory memory = memory_of(block, args);
  std::uint64_t* const progress = &block.at(args.journal)->progress;
  const std::uint64_t blocks = (args.count + kElements - 1) / kElements;
  const std::uint64_t seen = *progress;
  const bool begun = seen >> kJournalBits == number;
  std::uint64_t at = begun ? (seen & ((1U << kJournalBits) - 1)) - 1 : 0;
  block.barrier();
  copy_undo(block, args, memory, at, begun);
  for (; at < blocks; ++at) {
    block.barrier();
    block.once([&] { Block::release(progress, number << kJournalBits | (at + 1)); });
    block.barrier();
    copy_undo(block, args, memory, at + 1, false);
    const std::uint64_t first = at * kElements;
    PieceRule piece;
    block.for_each_here(args.count - first < kElements ? args.count - first : kElements, [&](std::uint64_t i) {
      const std::uint64_t element = args.first_element + first + i;
      if (element < piece.begin || element >= piece.end) piece = piece_at<kKind>(args, memory, rule, element);
      update_at<kKind>(Width<1>{}, block, args, memory, rule, piece, scale, first + i);
    });
  }
  block.barrier();
  block.once([&] { Block::release(progress, number << kJournalBits | (blocks + 1)); });
}

/// Whether the journal tells of a later update, or of blocks that do not exist.
TROUPE_KERNEL_BODY bool is_foreign(const Block& block, const UpdateArgs& args, std::uint64_t number) {
  const std::uint64_t seen = block.at(args.journal)->progress;
  const std::uint64_t blocks = (args.count + UpdateJournal::kBlockElements - 1) / UpdateJournal::kBlockElements;
  if (seen >> kJournalBits != number) return seen >> kJournalBits > number;
  return (seen & ((1U << kJournalBits) - 1)) - 1 > blocks;
}

template <RuleKind kKind>
TROUPE_KERNEL_BODY void update_as(const Block& block, const UpdateArgs& args, const UpdateValues& values, float scale) {
  if (args.journal == nullptr)
    update_all<kKind>(block, args, values.rule, scale);
  else
    update_restartably<kKind>(block, args, values.rule, scale, values.number);
}

/// With a journal: one block.
TROUPE_KERNEL_BODY void update(const Block& block, const UpdateArgs& args) {
  UpdateValues values = block.values(args.given);
  const float scale = gradient_scale(values.rule, *block.at(values.total));
  if (scale == 0) return;
  values.rule = rule_of(block, values, args.loss_scale);
  if (args.journal != nullptr && is_foreign(block, args, values.number)) {
    block.once([&] {
      end_stream(block, const_cast<StreamState*>(args.stream), args.report, StreamFault::foreign_journal,
                 block.at(args.journal)->progress, values.number);
    });
    return;
  }
  switch (values.rule.kind) {
    case RuleKind::sgd: return update_as<RuleKind::sgd>(block, args, values, scale);
    case RuleKind::momentum: return update_as<RuleKind::momentum>(block, args, values, scale);
    case RuleKind::nesterov: return update_as<RuleKind::nesterov>(block, args, values, scale);
    case RuleKind::adam: return update_as<RuleKind::adam>(block, args, values, scale);
    case RuleKind::adamw: return update_as<RuleKind::adamw>(block, args, values, scale);
    case RuleKind::adagrad: return update_as<RuleKind::adagrad>(block, args, values, scale);
    case RuleKind::rmsprop: return update_as<RuleKind::rmsprop>(block, args, values, scale);
    case RuleKind::rmsprop_momentum: return update_as<RuleKind::rmsprop_momentum>(block, args, values, scale);
    case RuleKind::block: return update_as<RuleKind::block>(block, args, values, scale);
    case RuleKind::lars: return update_as<RuleKind::lars>(block, args, values, scale);
    case RuleKind::lamb: return update_as<RuleKind::lamb>(block, args, values, scale);
    case RuleKind::swap: return update_as<RuleKind::swap>(block, args, values, scale);
  }
}

struct AddUpdateSquaresArgs {
  const StreamState* stream;
  const float* sum;
  const float* parameters;
  const float* state[kMaxStateSlots];
  std::uint64_t count;
  std::uint64_t first_element;
  const Layout::Entry* no_decay;
  std::uint64_t count_no_decay;
  const Layout::Entry* scaled;
  std::uint64_t count_scaled;
  TensorSquares* squares;
  const LossScaleState* loss_scale;  // as in UpdateArgs
  SquareScratch* scratch;
  Given<UpdateValues> given;
};

/// How many blocks have the strands of a tensor, and how many tensors fit the scratch.
inline constexpr unsigned kTensorBlocks = kTensorStrands / kSquareGroups;
inline constexpr std::uint32_t kMostScaled = SquareScratch::kMostSums / (2 * kTensorBlocks);
static_assert(kMostScaled <= SquareScratch::kMostArrivals);

using TensorSquaresHere = SquareStrandsHere<2, kTensorBlocks>;

/// Adds the squares of a range of elements [first, first + count): of the weights, and of how `rule` moves them.
template <RuleKind kKind>
TROUPE_KERNEL_BODY void add_squares_of_range(const Block& block, const AddUpdateSquaresArgs& args, const RuleStep& rule,
                                             float scale, std::uint64_t first, std::uint64_t count,
                                             TensorSquaresHere& strands) {
  const float* const sum = block.at(args.sum) + first;
  const float* const p = block.at(args.parameters) + first;
  const float* const s0 = block.at(args.state[0]);
  const float* const s1 = block.at(args.state[1]);
  strands.add(count, [&](SquareSums<2>& sums, std::uint64_t i) {
    const auto weight = static_cast<double>(p[i]);
    const auto move = static_cast<double>(
        update_direction<kKind>(rule, scale, sum[i], p[i], s0 ? s0[first + i] : 0.0F, s1 ? s1[first + i] : 0.0F));
    sums.of[0] += weight * weight;
    sums.of[1] += move * move;
  });
}

/// kTensorBlocks blocks for each tensor, of which there are at most kMostScaled.
TROUPE_KERNEL_BODY void add_update_squares(const Block& block, const AddUpdateSquaresArgs& args) {
  UpdateValues values = block.values(args.given);
  const float scale = gradient_scale(values.rule, *block.at(values.total));
  if (scale == 0) return;
  values.rule = rule_of(block, values, args.loss_scale);
  const std::uint64_t stripe_end = args.first_element + args.count;
  const Layout::Entry* const no_decay = block.at(args.no_decay);
  const std::uint32_t tensor = block.index() / kTensorBlocks;
  const Layout::Entry range = block.at(args.scaled)[tensor];
  const std::uint64_t end = range.first + range.count < stripe_end ? range.first + range.count : stripe_end;
  TensorSquaresHere strands(block, block.index() % kTensorBlocks);
  std::uint64_t from = range.first > args.first_element ? range.first : args.first_element;
  while (from < end) {
    const RangePlace undecayed = place_in(no_decay, args.count_no_decay, from);
    const std::uint64_t until = undecayed.end < end ? undecayed.end : end, first = from - args.first_element;
    RuleStep rule = values.rule;
    if (undecayed.inside) rule.decay = 0;
    if (rule.kind == RuleKind::lamb)
      add_squares_of_range<RuleKind::lamb>(block, args, rule, scale, first, until - from, strands);
    else
      add_squares_of_range<RuleKind::lars>(block, args, rule, scale, first, until - from, strands);
    from = until;
  }
  SquareScratch* const scratch = block.at(args.scratch);
  strands.finish(scratch->sums + std::uint64_t{tensor} * 2 * kTensorBlocks, scratch->arrived + tensor, kTensorBlocks,
                 [&](const SquareSums<2>& all) {
                   TensorSquares& found = block.at(args.squares)[tensor];
                   found.weights += static_cast<float>(all.of[0]);
                   found.update += static_cast<float>(all.of[1]);
                 });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const WriteRangesArgs& args) {
  touched.writes(args.to, args.count * sizeof *args.to);
}
inline void declare(Accesses& touched, const UpdateArgs& args) {
  const std::uint64_t bytes = args.count * sizeof(float);
  const UpdateValues values = touched.values(args.given);
  touched.reads(values.total, sizeof(StepSums));
  if (args.count_parts == 0) return;
  for (std::uint64_t p = 0; p < args.count_parts; ++p) touched.reads(args.parts[p], bytes);
  touched.reads(args.no_decay, args.count_no_decay * sizeof(Layout::Entry));
  touched.reads(args.loss_scale, sizeof *args.loss_scale);
  touched.reads(args.scaled, args.count_scaled * sizeof(Layout::Entry));
  touched.reads(args.squares, args.count_scaled * sizeof(TensorSquares));
  touched.writes(args.parameters, bytes);
  touched.writes(args.half, args.count * sizeof(std::uint16_t));
  std::size_t slots = 0;
  for (float* const state : args.state) {
    touched.writes(state, bytes);
    slots += state != nullptr ? 1 : 0;
  }
  if (args.journal == nullptr) return;
  touched.writes(args.journal, journal_bytes(slots));
  declare_end(touched, args.stream, args.report);
}
inline void declare(Accesses& touched, const AddUpdateSquaresArgs& args) {
  const std::uint64_t bytes = args.count * sizeof(float);
  touched.reads(touched.values(args.given).total, sizeof(StepSums));
  touched.reads(args.sum, bytes);
  touched.reads(args.parameters, bytes);
  for (const float* const state : args.state) touched.reads(state, bytes);
  touched.reads(args.no_decay, args.count_no_decay * sizeof(Layout::Entry));
  touched.reads(args.loss_scale, sizeof *args.loss_scale);
  touched.reads(args.scaled, args.count_scaled * sizeof(Layout::Entry));
  touched.writes(args.squares, args.count_scaled * sizeof(TensorSquares));
  touched.writes(args.scratch, sizeof(SquareScratch));
}
#endif

}  // namespace troupe::cuda
