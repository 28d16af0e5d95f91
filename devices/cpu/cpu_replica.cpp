#include "devices/cpu/cpu_replica.hpp"

#include "devices/cpu/cpu_stream.hpp"

namespace troupe::cpu {
namespace {

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
  check(memory.parameters, count * sizeof(float), "parameters");
  check(memory.gradients, count * sizeof(float), "gradients");
  ProgramMemory found{space.address_of<float>(memory.parameters), nullptr, space.address_of<float>(memory.gradients)};
  if (graph.dtype() == DType::bf16) {
    check(memory.half, count * sizeof(std::uint16_t), "bf16 weights");
    found.half = space.address_of<std::uint16_t>(memory.half);
  }
  return found;
}

const BatchLayout& checked(const Graph& graph, const BatchLayout& batch) {
  TROUPE_CHECK(batch.rows > 0 && batch.features == graph.input().count_elements() && batch.dtype == graph.dtype(),
               Code::invalid, "graph ", graph.name(), " takes rows of ", graph.input().count_elements(), ' ',
               name_of(graph.dtype()), ", the batch has ", batch.rows, " rows of ", batch.features, ' ',
               name_of(batch.dtype));
  return batch;
}

}  // namespace

CpuReplica::CpuReplica(AddressSpace& space, const Graph& graph, const Layout& layout, const BatchLayout& batch,
                       const std::vector<Bucket>& buckets, const ReplicaMemory& memory, std::uint32_t threads)
    : space_(space),
      batch_(checked(graph, batch)),
      buckets_(buckets),
      program_(graph, layout, batch, buckets, cpu::resolve(space, graph, layout, memory), threads) {}

RunProgram CpuReplica::resolve(Memory batch, Memory sums, ProgramPart part) {
  TROUPE_CHECK(batch.size_bytes == batch_.size_bytes() && sums.size_bytes == sizeof(StepSums), Code::invalid,
               "a batch of ", batch.size_bytes, " bytes with sums of ", sums.size_bytes,
               " was given, this replica takes ", batch_.size_bytes(), " and ", sizeof(StepSums));
  return {&program_, part, 0, space_.address(batch), space_.address_of<StepSums>(sums)};
}

void CpuReplica::step(Stream& stream, Memory batch, Memory sums, BucketSink& sink) {
  CpuStream& queue = own(stream);
  RunProgram work = resolve(batch, sums, ProgramPart::forward_and_loss);
  queue.run(work);
  work.part = ProgramPart::backward;
  for (const Bucket& bucket : buckets_) {
    queue.run(work);
    sink.ready(bucket, stream);
    ++work.segment;
  }
}

void CpuReplica::evaluate(Stream& stream, Memory batch, Memory sums) {
  own(stream).run(resolve(batch, sums, ProgramPart::evaluate));
}

void CpuReplica::products(Stream& stream, Memory batch, Memory sums) {
  own(stream).run(resolve(batch, sums, ProgramPart::products));
}

}  // namespace troupe::cpu
