#include "devices/reference/reference_device.hpp"

#include "devices/reference/reference_model.hpp"
#include "devices/reference/reference_stream.hpp"

namespace troupe {
namespace {

using reference::Model;
using reference::ReferenceStream;
using reference::Result;

ReferenceStream& own(Stream& stream) {
  auto* found = dynamic_cast<ReferenceStream*>(&stream);
  TROUPE_CHECK(found != nullptr, Code::invalid, "a reference replica was given another device's stream");
  return *found;
}

class ReferenceReplica final : public Replica {
 public:
  ReferenceReplica(AddressSpace& space, const Graph& graph, const Layout& layout, const BatchLayout& batch,
                   const std::vector<Bucket>& buckets, const ReplicaMemory& memory)
      : space_(space),
        model_(graph, layout),
        count_(layout.count_elements()),
        batch_(batch),
        buckets_(buckets),
        memory_(memory) {
    TROUPE_CHECK(batch.rows > 0 && batch.features == graph.input().count_elements() && batch.dtype == graph.dtype(),
                 Code::invalid, "graph ", graph.name(), " takes rows of ", graph.input().count_elements(), ' ',
                 name_of(graph.dtype()), ", the batch has ", batch.rows, " rows of ", batch.features, ' ',
                 name_of(batch.dtype));
    const std::uint64_t half_bytes =
        graph.dtype() == DType::bf16 ? count_ * sizeof(std::uint16_t) : memory.bf16.size_bytes;
    TROUPE_CHECK(memory.parameters.size_bytes == count_ * sizeof(float) &&
                     memory.gradients.size_bytes == count_ * sizeof(float) && memory.bf16.size_bytes == half_bytes,
                 Code::invalid, "graph ", graph.name(), ": parameters, gradients and bf16 weights must have ", count_,
                 " elements");
    for (const Parameter& parameter : graph.parameters()) weights_.push_back(parameter.extents.size() > 1);
    entries_ = layout.entries();
  }

  void step(Stream& stream, Memory batch, std::uint32_t rows, Memory sums, BucketSink& sink) override {
    auto* to = space_.address_of<StepSums>(sums);
    for (const Bucket& bucket : buckets_) sink.acquire(bucket, stream);
    own(stream).call([this, from = first_row(batch, rows), rows, to] {
      result_ = run(from, rows, true);
      to->loss = result_.loss;
      to->correct = result_.correct;
      to->samples = result_.samples;
    });
    for (const Bucket& bucket : buckets_) {
      own(stream).call([this, bucket] {
        auto* gradients = space_.address_of<float>(memory_.gradients);
        const std::uint64_t first = bucket.first_in_layout();
        for (std::uint64_t i = first; i < first + bucket.count; ++i) {
          gradients[i] = static_cast<float>(result_.gradients[i]);
        }
      });
      sink.ready(bucket, stream);
    }
  }

  void evaluate(Stream& stream, Memory batch, std::uint32_t rows, Memory sums) override {
    auto* to = space_.address_of<StepSums>(sums);
    own(stream).call([this, from = first_row(batch, rows), rows, to] {
      const Result result = run(from, rows, false);
      to->loss += result.loss;
      to->correct += result.correct;
      to->samples += result.samples;
    });
  }

 private:
  const std::byte* first_row(const Memory& batch, std::uint32_t rows) const {
    TROUPE_CHECK(rows <= batch_.rows, Code::invalid, rows, " rows of a batch with room for ", batch_.rows);
    TROUPE_CHECK(batch.size_bytes == batch_.size_bytes(), Code::invalid, "a batch of ", batch.size_bytes,
                 " bytes was given, this replica takes ", batch_.size_bytes());
    return space_.address(batch);
  }

  Result run(const std::byte* batch, std::uint32_t count_rows, bool with_gradients) const {
    std::vector<double> parameters(count_), inputs(count_rows * batch_.features);
    const auto* values = space_.address_of<const float>(memory_.parameters);
    std::copy_n(values, count_, parameters.begin());
    if (batch_.dtype == DType::bf16) {
      const auto* half = space_.address_of<const std::uint16_t>(memory_.bf16);
      for (std::size_t p = 0; p < entries_.size(); ++p) {
        if (!weights_[p]) continue;  // biases are read in f32
        for (std::uint64_t i = entries_[p].first; i < entries_[p].first + entries_[p].count; ++i)
          parameters[i] = from_bf16(half[i]);
      }
      const auto* rows = reinterpret_cast<const std::uint16_t*>(batch + batch_.inputs_offset());
      for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = from_bf16(rows[i]);
    } else {
      std::copy_n(reinterpret_cast<const float*>(batch + batch_.inputs_offset()), inputs.size(), inputs.begin());
    }
    const auto* labels = reinterpret_cast<const std::int32_t*>(batch + batch_.labels_offset());
    return model_.run(parameters, inputs, {labels, count_rows}, with_gradients);
  }

  AddressSpace& space_;
  const Model model_;
  const std::uint64_t count_;
  const BatchLayout batch_;
  const std::vector<Bucket> buckets_;
  const ReplicaMemory memory_;
  std::vector<bool> weights_;  // whether parameter p is a weight
  std::vector<Layout::Entry> entries_;
  Result result_;  // of the step in work
};

class ReferenceDevice final : public Device {
 public:
  ReferenceDevice(AddressSpace& space, std::chrono::milliseconds wait_deadline)
      : space_(space), wait_deadline_(wait_deadline) {}
  const DeviceTraits& traits() const override { return traits_; }
  std::unique_ptr<Stream> stream() override { return std::make_unique<ReferenceStream>(space_, wait_deadline_); }
  std::unique_ptr<Replica> compile(const Graph& graph, const Layout& layout, const BatchLayout& batch,
                                   const std::vector<Bucket>& buckets, const ReplicaMemory& memory) override {
    return std::make_unique<ReferenceReplica>(space_, graph, layout, batch, buckets, memory);
  }

 private:
  AddressSpace& space_;
  const std::chrono::milliseconds wait_deadline_;
  const DeviceTraits traits_{"reference", "plain loops in f64 on one thread", 1, false};
};

}  // namespace

std::unique_ptr<Device> make_reference_device(AddressSpace& space, std::chrono::milliseconds wait_deadline) {
  TROUPE_CHECK(wait_deadline.count() > 0, Code::invalid, "a reference device's waits need a deadline above 0, not ",
               wait_deadline.count(), " ms");
  return std::make_unique<ReferenceDevice>(space, wait_deadline);
}

}  // namespace troupe
