#include "opencl_stream.hpp"

#include <algorithm>
#include <utility>

namespace opencl {
namespace {

constexpr std::array<const char*, kKernels> kNames{
    "copy",  "reduce",  "weighted_delta", "pack_bf16", "pack_bf16_with_residual", "unpack_bf16",   "add_bf16",
    "clear", "norm",    "blame",          "sum_up",    "add_update_squares",      "update_blocks", "update_pass",
    "dense", "product", "bias_gradient",  "relu",      "relu_gradient",           "loss_rows",     "loss_sums"};

/// The same as Rule in kernels/update.cl.
struct RuleArguments {
  cl_uint kind;
  cl_float rate, decay, momentum, beta1, one_minus_beta1, beta2, one_minus_beta2, first_scale, second_scale, epsilon,
      look_ahead, trust;
  cl_uint judged;
  cl_double clip_norm;
};

RuleArguments arguments_of(const RuleStep& r) {
  return {static_cast<cl_uint>(r.kind),
          r.rate,
          r.decay,
          r.momentum,
          r.beta1,
          r.one_minus_beta1,
          r.beta2,
          r.one_minus_beta2,
          r.first_scale,
          r.second_scale,
          r.epsilon,
          r.look_ahead,
          r.trust,
          r.judged ? cl_uint{1} : cl_uint{0},
          r.clip_norm};
}

}  // namespace

OpenClStream::OpenClStream(const Context& context, AddressSpace& space, WaitKeeper& waits)
    : context_(context),
      space_(space),
      waits_(waits),
      own_line_(space),
      line_(own_line_.line()),
      queue_(context.make_queue()),
      windows_(context, queue_.get(), space),
      progress_(queue_.get(), waits, line_) {
  for (std::size_t k = 0; k < kKernels; ++k) kernels_[k] = context.make_kernel(kNames[k]);
}

OpenClStream::~OpenClStream() { clFinish(queue_.get()); }

// ---- Waits and signals ----

void OpenClStream::wait(Point point) {
  if (point.value == 0) return;
  Timeline& line = space_.timeline(point.line);
  unless_ended([&] {
    windows_.give_back();
    if (line.value() >= point.value) return;
    const auto awaited = std::make_shared<AwaitedPoint>();
    awaited->line = &line;
    awaited->value = point.value;
    awaited->stream = &progress_;
    cl_int error = CL_SUCCESS;
    awaited->event.reset(clCreateUserEvent(context_.context(), &error));
    check(error, "clCreateUserEvent");
    progress_.then_arrive(awaited);
    const cl_event event = awaited->event.get();
    check(clEnqueueBarrierWithWaitList(queue_.get(), 1, &event, nullptr), "clEnqueueBarrierWithWaitList");
    waits_.watch(awaited);
  });
}

Point OpenClStream::mark() {
  const Point point{line_.id(), ++marks_};
  signal(point);
  return point;
}

void OpenClStream::signal(Point point) {
  Timeline& line = space_.timeline(point.line);
  unless_ended([&] {
    windows_.give_back();
    progress_.then_signal(line, point.value);
  });
}

// ---- Work ----

void OpenClStream::launch(cl_kernel kernel, std::array<std::size_t, 2> items) {
  constexpr std::array<std::size_t, 2> kGroup{1, 1};
  check(clEnqueueNDRangeKernel(queue_.get(), kernel, 2, nullptr, items.data(), kGroup.data(), 0, nullptr, nullptr),
        "clEnqueueNDRangeKernel");
}

void OpenClStream::check_size(const Memory& memory, std::uint64_t size_bytes) const {
  TROUPE_CHECK(memory.size_bytes == size_bytes, Code::invalid, "memory of ", memory.size_bytes,
               " bytes was given where ", size_bytes, " are needed");
  (void)space_.address(memory);  // throws if it is not mapped here
}

void OpenClStream::check_parts(std::span<const Memory> parts, std::uint64_t size_bytes) const {
  TROUPE_CHECK(!parts.empty(), Code::invalid, "a stream was given no parts to add up");
  for (const Memory& part : parts) check_size(part, size_bytes);
}

void OpenClStream::copy(Memory to, Memory from) {
  check_size(from, from.size_bytes);
  check_size(to, from.size_bytes);
  if (to == from || from.size_bytes == 0) return;
  TROUPE_CHECK(
      to.arena != from.arena || to.offset + to.size_bytes <= from.offset || from.offset + from.size_bytes <= to.offset,
      Code::invalid, "a copy of ", from.size_bytes, " bytes from ", from.offset, " to ", to.offset,
      " of one arena: they overlap");
  unless_ended([&] {
    run(Kernel::copy, {pieces(from.size_bytes, kChunkBytes), 1}, use(to), use(from), cl_ulong{from.size_bytes});
  });
}

Place OpenClStream::scratch(std::uint64_t size_bytes) {
  if (scratch_bytes_ < size_bytes) {
    scratch_ = context_.make_buffer(size_bytes);  // commands keep the previous one
    scratch_bytes_ = size_bytes;
  }
  return {scratch_.get(), 0};
}

template <class Add>
void OpenClStream::in_fours(Place to, std::span<const Memory> parts, std::uint64_t size_bytes, Add&& add) {
  std::array<Place, 4> four;
  std::size_t filled = 0;
  // `to` may be one of the parts, so nothing is written to it before all parts were read.
  const Place between = parts.size() > four.size() ? scratch(size_bytes) : Place{};
  for (std::size_t next = 0; next < parts.size();) {
    while (filled < four.size() && next < parts.size()) four[filled++] = use(parts[next++]);
    const auto count = static_cast<cl_uint>(filled);
    while (filled < four.size()) four[filled++] = four[0];  // not read
    add(next == parts.size() ? to : between, four, count);
    four[0] = between;
    filled = 1;
  }
}

void OpenClStream::sum_up(Memory total, std::span<const Memory> parts) {
  check_size(total, sizeof(StepSums));
  check_parts(parts, sizeof(StepSums));
  unless_ended([&] {
    in_fours(use(total), parts, sizeof(StepSums), [&](Place to, const std::array<Place, 4>& four, cl_uint count) {
      run(Kernel::sum_up, {1, 1}, to, four[0], four[1], four[2], four[3], count);
    });
  });
}

void OpenClStream::reduce(Memory to, std::span<const Memory> parts, const NormCheck& check) {
  TROUPE_CHECK(to.size_bytes % sizeof(float) == 0, Code::invalid, "a reduction over ", to.size_bytes,
               " bytes, which are not whole f32");
  check_size(to, to.size_bytes);
  check_parts(parts, to.size_bytes);
  if (check.sums.size_bytes != 0) check_size(check.sums, sizeof(StepSums));
  const cl_ulong count = to.size_bytes / sizeof(float);
  if (count == 0) return;
  unless_ended([&] {
    in_fours(use(to), parts, to.size_bytes, [&](Place target, const std::array<Place, 4>& four, cl_uint added) {
      run(Kernel::reduce, {pieces(count, kChunkElements), 1}, target, four[0], four[1], four[2], four[3], added, count);
    });
    if (check.sums.size_bytes != 0) report(to, parts, check);
  });
}

void OpenClStream::report(Memory to, std::span<const Memory> parts, const NormCheck& check) {
  const cl_ulong count = to.size_bytes / sizeof(float), first = check.first_element;
  const auto place = std::find(parts.begin(), parts.end(), to);
  const std::size_t taken = place == parts.end() ? parts.size() - 1 : static_cast<std::size_t>(place - parts.begin());
  const cl_ulong own = check.rank_of(taken);
  run(Kernel::norm, {1, 1}, use(to), use(check.sums), count, first, own, cl_uint{check.squares});
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const cl_ulong rank = check.rank_of(part);
    if (part != taken) run(Kernel::blame, {1, 1}, use(parts[part]), use(check.sums), count, first, own, rank);
  }
}

void OpenClStream::weighted_delta(Memory to, Memory anchor, Memory from, Memory sums) {
  for (const Memory& part : {to, anchor, from}) check_size(part, to.size_bytes);
  check_size(sums, sizeof(StepSums));
  const cl_ulong count = to.size_bytes / sizeof(float);
  unless_ended([&] {
    run(Kernel::weighted_delta, {pieces(count, kChunkElements), 1}, use(to), use(anchor), use(from), use(sums), count);
  });
}

void OpenClStream::convert(const NumberConversion& what) {
  const auto& [to, to_type, from, from_type, residual, adds] = what;
  const cl_ulong count = what.count();
  const bool keeps = residual.size_bytes != 0;
  TROUPE_CHECK(to_type != DType::i32 && from_type != DType::i32, Code::invalid, "numbers are converted, not labels");
  TROUPE_CHECK(!keeps || to_type == DType::bf16, Code::unsupported, "a residual is kept of bf16 alone");
  if (to_type == from_type) return adds ? reduce(to, std::array{to, from}, {}) : copy(to, from);
  check_size(from, count * size_bytes(from_type));
  check_size(to, count * size_bytes(to_type));
  if (keeps) check_size(residual, count * sizeof(float));
  const std::array<std::size_t, 2> items{pieces(count, kChunkElements), 1};
  unless_ended([&] {
    if (keeps) return run(Kernel::pack_bf16_with_residual, items, use(to), use(from), use(residual), count);
    const Kernel kernel = adds ? Kernel::add_bf16 : to_type == DType::bf16 ? Kernel::pack_bf16 : Kernel::unpack_bf16;
    run(kernel, items, use(to), use(from), count);
  });
}

void OpenClStream::clear(Memory memory) {
  check_size(memory, memory.size_bytes);
  unless_ended([&] {
    run(Kernel::clear, {pieces(memory.size_bytes, kChunkBytes), 1}, use(memory), cl_ulong{memory.size_bytes});
  });
}

void OpenClStream::check_stripe(const StripeMemory& stripe, std::size_t slots) const {
  const std::uint64_t count = stripe.stripe.count;
  check_size(stripe.parameters, count * sizeof(float));
  if (stripe.half.size_bytes != 0) check_size(stripe.half, count * size_bytes(DType::bf16));
  for (std::size_t s = 0; s < slots; ++s) check_size(stripe.state[s], count * sizeof(float));
  if (!stripe.scaled.empty()) check_size(stripe.squares, stripe.scaled.size() * sizeof(TensorSquares));
  if (stripe.journal.size_bytes == 0) return;
  check_size(stripe.journal, stripe.journal.size_bytes);
  TROUPE_CHECK(stripe.journal.size_bytes >= journal_bytes(slots), Code::invalid, "a stripe's journal has ",
               stripe.journal.size_bytes, " bytes, ", journal_bytes(slots), " are needed");
}

/// Runs a kernel on a stripe: `first` and `second` are the contributions, `parts` is their number; `more` follows the
/// rule.
template <class... More>
void OpenClStream::run_on(const StripeMemory& stripe, Kernel kernel, std::size_t items, const RuleStep& rule,
                          Memory total, const std::array<Place, 2>& sums, cl_uint parts, const More&... more) {
  const std::size_t slots = state_slots(rule.kind);
  const Place p = use(stripe.parameters);
  const bool image = stripe.half.size_bytes != 0;
  const Place s0 = slots > 0 ? use(stripe.state[0]) : p, s1 = slots > 1 ? use(stripe.state[1]) : p;
  const Place half = image ? use(stripe.half) : p;
  static_assert(sizeof(Layout::Entry) == 2 * sizeof(cl_ulong));  // first and count, as the kernels read them
  const auto ranges = [&](std::span<const Layout::Entry> all) {
    return all.empty() ? p : windows_.use(const_cast<Layout::Entry*>(all.data()), all.size_bytes());
  };
  const std::span<const Layout::Entry> scaled =
      needs_tensor_norms(rule.kind) ? stripe.scaled : std::span<const Layout::Entry>{};
  run(kernel, {items, 1}, use(total), sums[0], sums[1], p, s0, s1, half, parts, static_cast<cl_uint>(slots),
      cl_uint{image}, ranges(stripe.no_decay), static_cast<cl_uint>(stripe.no_decay.size()),
      cl_ulong{stripe.stripe.first}, ranges(scaled), scaled.empty() ? p : use(stripe.squares),
      static_cast<cl_uint>(scaled.size()), cl_ulong{stripe.stripe.count}, arguments_of(rule), more...);
}

void OpenClStream::add_update_squares(const RuleStep& rule, const StripeMemory& stripe, Memory sum, Memory total) {
  const cl_ulong count = stripe.stripe.count;
  if (count == 0 || stripe.scaled.empty()) return;
  check_stripe(stripe, state_slots(rule.kind));
  check_size(sum, count * sizeof(float));
  check_size(total, sizeof(StepSums));
  unless_ended([&] {
    const Place from = use(sum);
    run_on(stripe, Kernel::add_update_squares, stripe.scaled.size(), rule, total, {from, from}, 1);
  });
}

void OpenClStream::update(const RuleStep& rule, std::uint64_t number, const StripeMemory& stripe,
                          std::span<const Memory> contributions, Memory total) {
  const cl_ulong count = stripe.stripe.count;
  if (count == 0) return;
  TROUPE_CHECK(rule.average == 0, Code::unsupported,
               "this device keeps no average of the parameters; leave optimizer.ema_decay out");
  const std::size_t slots = state_slots(rule.kind), blocks = pieces(count, UpdateJournal::kBlockElements);
  check_stripe(stripe, slots);
  check_parts(contributions, count * sizeof(float));
  check_size(total, sizeof(StepSums));
  TROUPE_CHECK(number > 0 && number < (std::uint64_t{1} << 40) && blocks < (1U << 24) - 1, Code::invalid, "update ",
               number, " of ", blocks,
               " blocks does not fit the journal: numbers count from 1 to 2^40, blocks to 2^24");
  unless_ended([&] {
    std::array<Place, 2> sums{use(contributions[0]), use(contributions.back())};
    const cl_uint parts = contributions.size() > 1 ? 2 : 1;
    if (contributions.size() > 2) {  // the update itself adds the last one
      sums[0] = scratch(count * sizeof(float));
      in_fours(sums[0], contributions.first(contributions.size() - 1), count * sizeof(float),
               [&](Place to, const std::array<Place, 4>& four, cl_uint added) {
                 run(Kernel::reduce, {pieces(count, kChunkElements), 1}, to, four[0], four[1], four[2], four[3], added,
                     count);
               });
    }
    if (stripe.journal.size_bytes != 0) {
      run_on(stripe, Kernel::update_pass, 1, rule, total, sums, parts, use(stripe.journal), cl_ulong{number},
             cl_ulong{sequence()});
    } else {
      run_on(stripe, Kernel::update_blocks, blocks, rule, total, sums, parts);
    }
  });
}

}  // namespace opencl
