#include "devices/reference/reference_replica.hpp"

#include <algorithm>
#include <utility>

#include "devices/reference/reference_model.hpp"
#include "runtime/model/dropout.hpp"
#include "runtime/model/f16.hpp"

namespace troupe {
namespace {

using reference::FieldValues;
using reference::Model;
using reference::Result;

class ReferenceReplica final : public Replica {
 public:
  ReferenceReplica(ReplicaContext context, const Graph& graph, const Layout& layout, const BatchLayout& batch,
                   const std::vector<Bucket>& buckets, const ReplicaMemory& memory)
      : context_(std::move(context)),
        model_(graph, layout),
        count_(layout.count_elements()),
        dtype_(graph.dtype()),
        batch_(batch),
        buckets_(buckets),
        memory_(memory) {
    batch_.check_fits(graph);
    const std::uint64_t bf16_bytes =
        has_16_bits(graph.dtype()) ? count_ * sizeof(std::uint16_t) : memory.half.size_bytes;
    TROUPE_CHECK(memory.parameters.size_bytes == count_ * sizeof(float) &&
                     memory.gradients.size_bytes == count_ * sizeof(float) && memory.half.size_bytes == bf16_bytes,
                 Code::invalid, "graph ", graph.name(), ": parameters, gradients and weights in 16 bits must have ",
                 count_, " elements");
    TROUPE_CHECK(memory.gather == nullptr || gathered_bytes(graph) == 0, Code::unsupported, "graph ", graph.name(),
                 ": this device gathers nothing of other ranks, which its synchronized batch norms need");
    for (const Parameter& parameter : graph.parameters()) weights_.push_back(parameter.extents.size() > 1);
    entries_ = layout.entries();
  }

  void step(Stream& stream, Memory batch, std::uint32_t rows, Memory sums, BucketSink& sink) override {
    for (const Bucket& bucket : buckets_) sink.acquire(bucket, stream);
    ReplicaCall call = call_on(batch, rows, sums, 1);
    call.run = [this](const std::byte* from, std::uint32_t count, StepSums* to) {
      result_ = run(from, count, true);
      to->loss = result_.loss;
      to->correct = result_.correct;
      to->samples = result_.samples;
    };
    context_.call(stream, call);
    for (const Bucket& bucket : buckets_) {
      ++call.piece;
      call.run = [this, bucket](const std::byte*, std::uint32_t, StepSums*) {
        auto* gradients = at<float>(memory_.gradients);
        const std::uint64_t first = bucket.first_in_layout();
        for (std::uint64_t i = first; i < first + bucket.count; ++i) {
          gradients[i] = static_cast<float>(result_.gradients[i]);
        }
      };
      context_.call(stream, call);
      sink.ready(bucket, stream);
    }
  }

  void evaluate(Stream& stream, Memory batch, std::uint32_t rows, Memory sums) override {
    ReplicaCall call = call_on(batch, rows, sums, 0);
    call.run = [this](const std::byte* from, std::uint32_t count, StepSums* to) {
      const Result result = run(from, count, false);
      to->loss += result.loss;
      to->correct += result.correct;
      to->samples += result.samples;
    };
    context_.call(stream, call);
  }

 private:
  ReplicaCall call_on(const Memory& batch, std::uint32_t rows, const Memory& sums, std::uint64_t piece) const {
    return {piece, this, first_row(batch, rows), rows, at<StepSums>(sums), {}};
  }

  const std::byte* first_row(const Memory& batch, std::uint32_t rows) const {
    TROUPE_CHECK(rows <= batch_.rows(), Code::invalid, rows, " rows of a batch with room for ", batch_.rows());
    TROUPE_CHECK(batch.size_bytes == batch_.size_bytes(), Code::invalid, "a batch of ", batch.size_bytes,
                 " bytes was given, this replica takes ", batch_.size_bytes());
    return context_.address(batch);
  }

  template <class T>
  T* at(const Memory& memory) const {
    return reinterpret_cast<T*>(context_.address(memory));
  }

  Result run(const std::byte* batch, std::uint32_t count_rows, bool with_gradients) const {
    std::vector<double> parameters(count_);
    const auto* values = at<const float>(memory_.parameters);
    std::copy_n(values, count_, parameters.begin());
    if (has_16_bits(dtype_)) {
      const auto* half = at<const std::uint16_t>(memory_.half);
      for (std::size_t p = 0; p < entries_.size(); ++p) {
        if (!weights_[p]) continue;  // biases are read as f32
        for (std::uint64_t i = entries_[p].first; i < entries_[p].first + entries_[p].count; ++i)
          parameters[i] = dtype_ == DType::f16 ? from_f16(half[i]) : from_bf16(half[i]);
      }
    }
    std::vector<FieldValues> fields;
    for (const BatchLayout::Entry& entry : batch_.entries()) {
      const bool has_values = with_gradients || entry.field.name != kSampleKey;
      fields.push_back(has_values ? values_of(entry, batch + entry.offset, count_rows) : FieldValues{});
    }
    return model_.run(parameters, fields, count_rows, with_gradients);
  }

  static FieldValues values_of(const BatchLayout::Entry& entry, const std::byte* first, std::uint32_t count_rows) {
    const std::uint64_t count = count_rows * entry.row_elements();
    FieldValues found;
    switch (entry.field.dtype) {
      case DType::i32:
        found.labels.resize(count);
        std::copy_n(reinterpret_cast<const std::int32_t*>(first), count, found.labels.begin());
        break;
      case DType::f32:
        found.numbers.resize(count);
        std::copy_n(reinterpret_cast<const float*>(first), count, found.numbers.begin());
        break;
      case DType::bf16:
        found.numbers.resize(count);
        std::transform(reinterpret_cast<const std::uint16_t*>(first),
                       reinterpret_cast<const std::uint16_t*>(first) + count, found.numbers.begin(), from_bf16);
        break;
      case DType::f16:
        found.numbers.resize(count);
        std::transform(reinterpret_cast<const std::uint16_t*>(first),
                       reinterpret_cast<const std::uint16_t*>(first) + count, found.numbers.begin(), from_f16);
        break;
    }
    return found;
  }

  const ReplicaContext context_;
  const Model model_;
  const std::uint64_t count_;
  const DType dtype_;
  const BatchLayout batch_;
  const std::vector<Bucket> buckets_;
  const ReplicaMemory memory_;
  std::vector<bool> weights_;  // whether parameter p is a weight
  std::vector<Layout::Entry> entries_;
  Result result_;  // of the present step
};

}  // namespace

std::unique_ptr<Replica> make_reference_replica(ReplicaContext context, const Graph& graph, const Layout& layout,
                                                const BatchLayout& batch, const std::vector<Bucket>& buckets,
                                                const ReplicaMemory& memory) {
  return std::make_unique<ReferenceReplica>(std::move(context), graph, layout, batch, buckets, memory);
}

}  // namespace troupe
