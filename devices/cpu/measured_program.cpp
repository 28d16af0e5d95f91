#include "devices/cpu/measured_program.hpp"

#include <algorithm>
#include <chrono>

#include "runtime/base/clock.hpp"
#include "runtime/base/random.hpp"

namespace troupe::cpu {

DrawnBatch::DrawnBatch(const Graph& graph, std::uint32_t rows)
    : layout_(graph),
      batch_(rows, graph.fields()),
      parameters_(layout_.count_elements()),
      gradients_(layout_.count_elements()),
      bf16_(graph.dtype() == DType::bf16 ? layout_.count_elements() : 0),
      bytes_(batch_.size_bytes()) {
  fill_initial(graph, layout_, 1, parameters_.all());
  if (!bf16_.all().empty()) std::ranges::transform(parameters_.all(), bf16_.data(), to_bf16);
  for (const BatchLayout::Entry& entry : batch_.entries()) fill(entry);
}

ProgramMemory DrawnBatch::memory() const noexcept {
  return {parameters_.data(), bf16_.all().empty() ? nullptr : bf16_.data(), gradients_.data()};
}

void DrawnBatch::fill(const BatchLayout::Entry& entry) {
  const std::uint64_t count = batch_.rows() * entry.row_elements();
  std::byte* const to = bytes_.data() + entry.offset;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t drawn = mix(i);
    if (entry.field.dtype == DType::i32) {
      const std::uint64_t classes = std::max<std::uint64_t>(entry.field.classes, 1);
      reinterpret_cast<std::int32_t*>(to)[i] = static_cast<std::int32_t>(drawn % classes);
    } else {
      const float number = static_cast<float>(drawn % 2001) / 1000 - 1;
      convert_elements(to + i * size_bytes(entry.field.dtype), entry.field.dtype,
                       reinterpret_cast<const std::byte*>(&number), DType::f32, 1);
    }
  }
}

MeasuredProgram::MeasuredProgram(const Graph& graph, const DrawnBatch& batch, const ProgramOptions& options)
    : batch_(batch),
      program_(graph, batch.layout(), batch.batch(), batch.batch().rows(),
               make_buckets(GroupId{}, graph, batch.layout(), 0), batch.memory(), options) {}

bool MeasuredProgram::step(double limit_s) {
  const auto begun = Clock::now();
  const auto in_time = [&] { return std::chrono::duration<double>(Clock::now() - begun).count() <= limit_s; };
  const std::uint32_t rows = batch_.batch().rows();
  RunProgram work{.programs = nullptr,
                  .part = ProgramPart::forward,
                  .segment = 0,
                  .batch = batch_.bytes(),
                  .sums = &sums_,
                  .rows = rows,
                  .computed = rows};
  for (; in_time() && work.segment + 1 < program_.forward().size(); ++work.segment) program_.run(work);
  if (!in_time()) return false;
  work.part = ProgramPart::forward_and_loss;
  program_.run(work);
  work.part = ProgramPart::backward;
  for (work.segment = 0; in_time() && work.segment < program_.backward().size(); ++work.segment) program_.run(work);
  return in_time();
}

}  // namespace troupe::cpu
