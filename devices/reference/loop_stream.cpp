#include "devices/reference/loop_stream.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "devices/reference/plain_loops.hpp"
#include "runtime/base/hash.hpp"

namespace troupe::reference {
namespace {

void check_size(const Memory& part, std::uint64_t size_bytes, const char* what) {
  TROUPE_CHECK(part.size_bytes == size_bytes, Code::invalid, what, " has ", part.size_bytes, " bytes where ",
               size_bytes, " are needed");
}

}  // namespace

std::function<bool(PassMoment, std::uint64_t)> LoopStream::pass_probe() {
  return [](PassMoment, std::uint64_t) { return true; };
}

void LoopStream::signal(Point point) {
  Timeline& line = space_.timeline(point.line);
  push({Words{PieceKind::signal, &line}, Words{point.value},
        [&line](WordReader values) { line.signal(values.take<std::uint64_t>()); }});
}

void LoopStream::copy(Memory to, Memory from) {
  check_size(from, to.size_bytes, "the source of a copy");
  std::byte* target = address(to);
  const std::byte* source = address(from);
  const std::uint64_t bytes = to.size_bytes;
  if (bytes == sizeof(StepSums)) {  // in a ring: another address in each step
    return push({Words{PieceKind::copy_sums}, Words{target, source}, [](WordReader values) {
                   auto* const place = values.take<std::byte*>();
                   std::memmove(place, values.take<const std::byte*>(), sizeof(StepSums));
                 }});
  }
  push({Words{PieceKind::copy, target, source, bytes}, {}, [=](WordReader) { std::memmove(target, source, bytes); }});
}

template <class T>
std::vector<const T*> LoopStream::resolve(std::span<const Memory> parts, std::uint64_t size_bytes) const {
  TROUPE_CHECK(!parts.empty(), Code::invalid, "a stream was given no parts to add up");
  std::vector<const T*> pointers;
  for (const Memory& part : parts) {
    check_size(part, size_bytes, "a part");
    pointers.push_back(address_of<const T>(part));
  }
  return pointers;
}

void LoopStream::sum_up(Memory total, std::span<const Memory> parts) {
  check_size(total, sizeof(StepSums), "a total");
  Words values{address_of<StepSums>(total)};
  for (const StepSums* part : resolve<StepSums>(parts, sizeof(StepSums))) values.put(part);
  push({Words{PieceKind::sum_up, parts.size()}, std::move(values), [count = parts.size()](WordReader given) {
          auto* const to = given.take<StepSums*>();
          StepSums sums;
          for (std::size_t i = 0; i < count; ++i) sums.add(*given.take<const StepSums*>());
          *to = sums;
        }});
}

void LoopStream::reduce(Memory to, std::span<const Memory> parts, const NormCheck& check) {
  TROUPE_CHECK(to.size_bytes % sizeof(float) == 0, Code::invalid, "a reduction over ", to.size_bytes,
               " bytes, which are not whole f32");
  auto* sum = address_of<float>(to);
  const std::uint64_t count = to.size_bytes / sizeof(float);
  const auto from = resolve<float>(parts, to.size_bytes);
  StepSums* found = nullptr;
  if (check.sums.size_bytes != 0) {
    check_size(check.sums, sizeof(StepSums), "the sums of a measured reduction");
    found = address_of<StepSums>(check.sums);
  }
  Words form{PieceKind::reduce, sum, count, check.first_element, check.ranks.data(), check.ranks.size(), check.squares};
  for (const float* part : from) form.put(part);
  push({std::move(form), Words{found},
        [=](WordReader values) { reference::reduce(sum, from, count, values.take<StepSums*>(), check); }});
}

void LoopStream::weighted_delta(Memory to, Memory anchor, Memory from, Memory sums) {
  TROUPE_CHECK(to.size_bytes % sizeof(float) == 0, Code::invalid, "weights of ", to.size_bytes,
               " bytes, which are not whole f32");
  check_size(anchor, to.size_bytes, "an anchor");
  check_size(from, to.size_bytes, "weights");
  check_size(sums, sizeof(StepSums), "the sums of weights");
  auto* target = address_of<float>(to);
  const auto* left = address_of<const float>(anchor);
  const auto* right = address_of<const float>(from);
  const std::uint64_t count = to.size_bytes / sizeof(float);
  push({Words{PieceKind::weighted_delta, target, left, right, count}, Words{address_of<const StepSums>(sums)},
        [=](WordReader values) {
          const auto samples = static_cast<float>(values.take<const StepSums*>()->samples);
          reference::weighted_delta(target, left, right, samples, count);
        }});
}

void LoopStream::clear(Memory memory) {
  auto* at = address_of<std::byte>(memory);
  const std::uint64_t bytes = memory.size_bytes;
  push({Words{PieceKind::clear, at, bytes}, {}, [=](WordReader) { std::fill_n(at, bytes, std::byte{}); }});
}

void LoopStream::convert(const NumberConversion& what) {
  const DType to_type = what.to_type, from_type = what.from_type;
  const std::uint64_t count = what.count();
  check_size(what.to, count * size_bytes(to_type), "the target of a conversion");
  std::byte* target = address(what.to);
  const std::byte* source = address(what.from);
  float* kept = nullptr;
  if (what.residual.size_bytes != 0) {
    check_size(what.residual, what.from.size_bytes, "the residual of a conversion");
    kept = address_of<float>(what.residual);
  }
  push({Words{PieceKind::convert, target, to_type, source, from_type, kept, what.adds, count},
        {},
        [=, adds = what.adds](WordReader) {
          if (adds)
            add_converted_elements(reinterpret_cast<float*>(target), source, from_type, count);
          else if (kept != nullptr)
            convert_elements_with_residual(target, to_type, reinterpret_cast<const float*>(source), kept, count);
          else
            convert_elements(target, to_type, source, from_type, count);
        }});
}

void LoopStream::digest(Memory to, Memory of) {
  const auto* bytes = address_of<const std::byte>(of);
  const std::uint64_t count = of.size_bytes;
  push({Words{PieceKind::digest, bytes, count}, Words{address_of<std::uint64_t>(to)}, [=](WordReader values) {
          *values.take<std::uint64_t*>() = xxh3({bytes, count});
        }});
}

UpdateAddresses LoopStream::addresses_of(const RuleStep& rule, const StripeMemory& stripe) const {
  return troupe::addresses_of(rule, stripe, [this](const Memory& memory, std::uint64_t size_bytes, const char* what) {
    check_size(memory, size_bytes, what);
    return address(memory);
  });
}

namespace {

/// Adds the addresses of an update to a form.
void put(Words& form, const UpdateAddresses& at) {
  form.put(at.count);
  form.put(at.parameters);
  form.put(at.half);
  for (float* const state : at.state) form.put(state);
  form.put(at.journal);
  form.put(at.first_element);
  form.put(at.no_decay.data());
  form.put(at.no_decay.size());
  form.put(at.scaled.data());
  form.put(at.scaled.size());
  form.put(at.squares);
}

}  // namespace

void LoopStream::add_update_squares(const RuleStep& rule, const StripeMemory& stripe, Memory sum, Memory total) {
  if (stripe.stripe.count == 0) return;
  check_size(sum, stripe.stripe.count * sizeof(float), "a sum of gradients");
  check_size(total, sizeof(StepSums), "a total");
  const UpdateAddresses at = addresses_of(rule, stripe);
  const auto* from = address_of<const float>(sum);
  Words form{PieceKind::add_update_squares, from};
  put(form, at);
  push({std::move(form), Words{rule, address_of<const StepSums>(total)}, [=](WordReader values) {
          const auto step = values.take<RuleStep>();
          reference::add_update_squares(step, at, from, *values.take<const StepSums*>());
        }});
}

void LoopStream::update(const RuleStep& rule, std::uint64_t number, const StripeMemory& stripe,
                        std::span<const Memory> contributions, Memory total) {
  const std::uint64_t count = stripe.stripe.count;
  if (count == 0) return;
  const UpdateAddresses at = addresses_of(rule, stripe);
  check_size(total, sizeof(StepSums), "a total");
  const auto from = resolve<float>(contributions, count * sizeof(float));
  Words form{PieceKind::update};
  put(form, at);
  for (const float* part : from) form.put(part);
  push({std::move(form), Words{rule, number, address_of<const StepSums>(total)}, [this, at, from](WordReader values) {
          const auto step = values.take<RuleStep>();
          const auto its_number = values.take<std::uint64_t>();
          if (!reference::update(step, its_number, at, from, *values.take<const StepSums*>(), pass_probe()))
            throw Died{};
        }});
}

}  // namespace troupe::reference
