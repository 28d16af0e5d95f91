#include "devices/cpu/cpu_replica.hpp"

#include <algorithm>

#include "devices/cpu/cpu_stream.hpp"

namespace troupe::cpu {
namespace {

/// Evaluations compute multiples of this number of rows. The last batch of a test set can have any number of rows, and
/// each number of rows that is new needs a new program.
constexpr std::uint32_t kEvaluatedTogether = 8;

CpuStream& own(Stream& stream) {
  auto* found = dynamic_cast<CpuStream*>(&stream);
  TROUPE_CHECK(found != nullptr, Code::invalid, "a cpu replica was given another device's stream");
  return *found;
}

ProgramMemory resolve(AddressSpace& space, const Graph& graph, const Layout& layout, const ReplicaMemory& memory) {
  const std::uint64_t count = layout.count_elements();
  const auto check = [&](const Memory& part, std::uint64_t bytes, const char* what) {
    TROUPE_CHECK(part.size_bytes == bytes, Code::invalid, "graph ", graph.name(), ": its ", what, " take ", bytes,
                 " bytes, ", part.size_bytes, " were given");
  };
  TROUPE_CHECK(graph.dtype() != DType::f16, Code::unsupported, "graph ", graph.name(),
               ": a cpu device does not compute in f16; write model.dtype = \"bf16\" or \"f32\"");
  check(memory.parameters, count * sizeof(float), "parameters");
  check(memory.gradients, count * sizeof(float), "gradients");
  ProgramMemory found{space.address_of<float>(memory.parameters), nullptr, space.address_of<float>(memory.gradients)};
  if (graph.dtype() == DType::bf16) {
    check(memory.half, count * sizeof(std::uint16_t), "bf16 weights");
    found.half = space.address_of<std::uint16_t>(memory.half);
  }
  if (memory.gather == nullptr || memory.gather->ranks() == 1) return found;
  const std::uint64_t needed = gathered_bytes(graph);
  for (Rank rank{0}; rank.value < memory.gather->ranks(); ++rank.value) {
    const Memory part = memory.gather->part(rank);
    TROUPE_CHECK(part.size_bytes >= needed, Code::invalid, "graph ", graph.name(), ": its layers gather up to ", needed,
                 " bytes of each rank, there is room for ", part.size_bytes);
    found.gathered.parts.push_back(space.address_of<std::byte>(part));
  }
  found.gathered.rank = memory.gather->rank().value;
  return found;
}

const BatchLayout& checked(const Graph& graph, const BatchLayout& batch) {
  batch.check_fits(graph);
  return batch;
}

}  // namespace

CpuReplica::CpuReplica(AddressSpace& space, const Graph& graph, const Layout& layout, const BatchLayout& batch,
                       const std::vector<Bucket>& buckets, const ReplicaMemory& memory, const ProgramOptions& options)
    : space_(space),
      batch_(checked(graph, batch)),
      buckets_(buckets),
      gather_(memory.gather),
      programs_(graph, layout, batch, buckets, cpu::resolve(space, graph, layout, memory), options) {}

RunProgram CpuReplica::resolve(Memory batch, std::uint32_t rows, Memory sums, ProgramPart part) {
  TROUPE_CHECK(batch.size_bytes == batch_.size_bytes() && sums.size_bytes == sizeof(StepSums), Code::invalid,
               "a batch of ", batch.size_bytes, " bytes with sums of ", sums.size_bytes,
               " was given, this replica takes ", batch_.size_bytes(), " and ", sizeof(StepSums));
  TROUPE_CHECK(rows <= batch_.rows(), Code::invalid, rows, " rows of a batch with room for ", batch_.rows());
  return {.programs = &programs_,
          .part = part,
          .segment = 0,
          .batch = space_.address(batch),
          .sums = space_.address_of<StepSums>(sums),
          .rows = rows,
          .computed = rows == 0 ? batch_.rows() : rows};
}

void CpuReplica::step(Stream& stream, Memory batch, std::uint32_t rows, Memory sums, BucketSink& sink) {
  CpuStream& queue = own(stream);
  RunProgram work = resolve(batch, rows, sums, ProgramPart::no_rows);
  const StepProgram& program = programs_.full();
  const auto pieces = static_cast<std::uint32_t>(program.forward().size());
  for (std::uint32_t piece = 0; piece < pieces; ++piece) {
    for (const std::uint32_t b : program.first_read(piece)) sink.acquire(buckets_[b], stream);
    const bool last = piece + 1 == pieces;
    work.segment = piece;
    if (rows > 0) work.part = last ? ProgramPart::forward_and_loss : ProgramPart::forward;
    if (rows > 0 || last) queue.run(work);
    gather(stream, program.forward()[piece].gathered_bytes, rows);
  }
  work.segment = 0;
  work.part = ProgramPart::backward;
  std::uint32_t bucket = 0;
  for (const StepProgram::Piece& piece : program.backward()) {
    if (rows > 0) queue.run(work, bucket);
    ++work.segment;
    gather(stream, piece.gathered_bytes, rows);
    if (piece.gathered_bytes == 0) sink.ready(buckets_[bucket++], stream);
  }
}

/// A rank without rows contributes zeros.
void CpuReplica::gather(Stream& stream, std::uint64_t size_bytes, std::uint32_t rows) {
  if (size_bytes == 0) return;
  if (rows == 0) stream.clear(slice(gather_->part(gather_->rank()), 0, size_bytes));
  gather_->gather(stream, size_bytes);
}

void CpuReplica::evaluate(Stream& stream, Memory batch, std::uint32_t rows, Memory sums) {
  CpuStream& queue = own(stream);
  if (rows == 0) return;
  RunProgram work = resolve(batch, rows, sums, ProgramPart::evaluate);
  work.computed = std::min((rows + kEvaluatedTogether - 1) / kEvaluatedTogether * kEvaluatedTogether, batch_.rows());
  queue.run(work);
}

void CpuReplica::products(Stream& stream, Memory batch, Memory sums) {
  own(stream).run(resolve(batch, batch_.rows(), sums, ProgramPart::products));
}

}  // namespace troupe::cpu
