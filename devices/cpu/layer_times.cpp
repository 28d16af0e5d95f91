#include "devices/cpu/layer_times.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>

#include "devices/cpu/best_primitives.hpp"
#include "devices/cpu/denormals.hpp"
#include "devices/cpu/step_program.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/random.hpp"
#include "runtime/model/layer_kinds.hpp"

namespace troupe {
namespace {

using cpu::StepProgram;

/// Work that is shorter is repeated for this time in each round, so that the clock and the scheduler disturb it less.
constexpr std::chrono::microseconds kRound{2000};

template <class Work>
double once(Work&& work) {
  const auto begun = Clock::now();
  work();
  return std::chrono::duration<double, std::micro>(Clock::now() - begun).count();
}

/// Something to measure; of the repetitions in a round, the fastest counts.
template <class Work>
double best_of_round(Work&& work) {
  const auto begun = Clock::now();
  double best = std::numeric_limits<double>::max();
  do best = std::min(best, once(work));
  while (Clock::now() - begun < kRound);
  return best;
}

/// Zeros in memory that is aligned to 64 bytes, like an arena's.
template <class T>
class AlignedZeros {
 public:
  explicit AlignedZeros(std::uint64_t count)
      : bytes_(count * sizeof(T) + kAlign),
        first_(reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(bytes_.data()) + kAlign - 1) / kAlign * kAlign)),
        count_(count) {}
  AlignedZeros(const AlignedZeros&) = delete;
  AlignedZeros& operator=(const AlignedZeros&) = delete;
  T* data() const noexcept { return first_; }
  std::span<T> all() const noexcept { return {first_, count_}; }

 private:
  static constexpr std::uintptr_t kAlign = 64;
  std::vector<std::byte> bytes_;
  T* first_;
  std::uint64_t count_;
};

/// A graph's program with its own parameters and batch.
class MeasuredProgram {
 public:
  MeasuredProgram(const Graph& graph, std::uint32_t rows, std::uint32_t threads)
      : layout_(graph),
        batch_(rows, graph.fields()),
        parameters_(layout_.count_elements()),
        gradients_(layout_.count_elements()),
        bf16_(graph.dtype() == DType::bf16 ? layout_.count_elements() : 0),
        bytes_(batch_.size_bytes()) {
    fill_initial(graph, layout_, 1, parameters_.all());
    const bool bf16 = graph.dtype() == DType::bf16;
    if (bf16) std::ranges::transform(parameters_.all(), bf16_.data(), to_bf16);
    for (const BatchLayout::Entry& entry : batch_.entries()) fill(entry);
    const cpu::ProgramMemory memory{parameters_.data(), bf16 ? bf16_.data() : nullptr, gradients_.data()};
    // Tensors share no memory, since a part that runs alone reads what a whole step has left in memory.
    const cpu::ProgramOptions options{.threads = threads, .shares = false};
    program_.emplace(graph, layout_, batch_, rows, make_buckets(GroupId{}, graph, layout_, 0), memory, options);
  }

  void step() {
    const std::uint32_t rows = batch_.rows();
    cpu::RunProgram work{.programs = nullptr,
                         .part = cpu::ProgramPart::forward,
                         .segment = 0,
                         .batch = bytes_.data(),
                         .sums = &sums_,
                         .rows = rows,
                         .computed = rows};
    for (; work.segment + 1 < program_->forward().size(); ++work.segment) program_->run(work);
    work.part = cpu::ProgramPart::forward_and_loss;
    program_->run(work);
    work.part = cpu::ProgramPart::backward;
    for (work.segment = 0; work.segment < program_->backward().size(); ++work.segment) program_->run(work);
  }
  const std::vector<StepProgram::Part>& parts() const { return program_->parts(); }
  void run(const StepProgram::Part& part) const { program_->run(part); }

 private:
  void fill(const BatchLayout::Entry& entry) {
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

  const Layout layout_;
  const BatchLayout batch_;
  const AlignedZeros<float> parameters_, gradients_;
  const AlignedZeros<std::uint16_t> bf16_;
  const AlignedZeros<std::byte> bytes_;
  StepSums sums_;
  std::optional<StepProgram> program_;
};

/// Operations of the products of a pass.
std::uint64_t flops_of(const Graph& graph, std::uint32_t rows, const StepProgram::Part& part) {
  const std::uint64_t forward = rows * graph.forward_flops(part.layer);
  if (!part.backward) return forward;
  return graph.is_trained(graph.inputs_of(part.layer).front()) ? 2 * forward : forward;
}

/// Measures the device and oneDNN's primitives alternately.
void measure_part(const MeasuredProgram& program, const StepProgram::Part& part,
                  const std::vector<std::vector<cpu::OfferedPrimitive>>& offers, const dnnl::stream& stream,
                  std::uint32_t rounds, LayerTime& to) {
  std::vector<std::vector<std::vector<double>>> offered(offers.size());
  for (std::size_t work = 0; work < offers.size(); ++work) offered[work].resize(offers[work].size());
  program.run(part);
  for (std::uint32_t round = 0; round < rounds; ++round) {
    to.us.push_back(best_of_round([&] { program.run(part); }));
    for (std::size_t work = 0; work < offers.size(); ++work)
      for (std::size_t i = 0; i < offers[work].size(); ++i)
        offered[work][i].push_back(best_of_round([&] { offers[work][i].primitive.execute(stream); }));
  }
  if (!offers.empty()) to.best_us.resize(rounds);
  for (std::size_t work = 0; work < offers.size(); ++work) {
    const auto fastest =
        std::ranges::min_element(offered[work], {}, [](const auto& us) { return *std::ranges::min_element(us); });
    for (std::uint32_t round = 0; round < rounds; ++round) to.best_us[round] += (*fastest)[round];
    to.best += text(to.best.empty() ? "" : " + ",
                    offers[work][static_cast<std::size_t>(fastest - offered[work].begin())].implementation);
  }
}

}  // namespace

StepTimes measure_layers(const Graph& graph, std::uint32_t rows, std::uint32_t threads, std::uint32_t rounds) {
  cpu::limit_onednn();
  cpu::flush_denormals();
  const cpu::ThreadsInScope run_on{threads};
  MeasuredProgram program{graph, rows, threads};
  const dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  const dnnl::stream stream{engine};
  StepTimes times;
  program.step();
  for (std::uint32_t round = 0; round < rounds; ++round) times.us.push_back(once([&] { program.step(); }));
  for (const StepProgram::Part& part : program.parts()) {
    const troupe::Layer& layer = graph.layers()[part.layer];
    LayerTime& to = times.layers.emplace_back();
    to.layer = layer.name;
    to.kind = kind_of(layer.operation).name;
    to.backward = part.backward;
    to.flops = flops_of(graph, rows, part);
    measure_part(program, part, cpu::offered_primitives(graph, rows, part, engine, stream), stream, rounds, to);
  }
  return times;
}

}  // namespace troupe
