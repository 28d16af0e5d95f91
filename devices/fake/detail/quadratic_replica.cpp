#include "devices/fake/detail/quadratic_replica.hpp"

#include <algorithm>
#include <span>

namespace troupe::fake {

FakeStream& own(Stream& stream) {
  auto* found = dynamic_cast<FakeStream*>(&stream);
  TROUPE_CHECK(found != nullptr, Code::invalid, "a fake replica needs a fake stream");
  return *found;
}

namespace {

using reference::WordReader;

/// The first word of the forms of this replica's work.
constexpr std::uint64_t kWork = static_cast<std::uint64_t>(reference::PieceKind::replica) + 1;

class QuadraticReplica final : public Replica {
 public:
  QuadraticReplica(FakeDevice& device, const Layout& layout, const BatchLayout& batch, std::vector<Bucket> buckets,
                   const ReplicaMemory& memory)
      : device_(device), entries_(layout.entries()), batch_(batch), buckets_(std::move(buckets)) {
    const std::uint64_t count = layout.count_elements();
    const auto check = [&](const Memory& part, std::uint64_t bytes, const char* what) {
      TROUPE_CHECK(part.size_bytes == bytes, Code::invalid, what, " have ", part.size_bytes,
                   " bytes, the layout needs ", bytes);
    };
    check(memory.parameters, count * sizeof(float), "parameters");
    check(memory.gradients, count * sizeof(float), "gradients");
    parameters_ = device.address_of<const float>(memory.parameters);
    gradients_ = {device.address_of<float>(memory.gradients), count};
    if (memory.half.size_bytes == 0) return;
    check(memory.half, count * sizeof(std::uint16_t), "bf16 weights");
    bf16_ = device.address_of<const std::uint16_t>(memory.half);
  }

  void step(Stream& stream, Memory batch, std::uint32_t rows, Memory sums, BucketSink& sink) override {
    FakeStream& queue = own(stream);
    const std::byte* from = first_row(batch, rows);
    auto* to = device_.address_of<StepSums>(sums);
    for (const Bucket& bucket : buckets_) sink.acquire(bucket, stream);
    queue.run(Words{kWork, this, std::uint64_t{1}}, Words{from, rows, to}, [this](WordReader values) {
      read_targets(values);
      const StepSums found = measure();
      auto* const place = values.take<StepSums*>();
      place->loss = found.loss;
      place->correct = found.correct;
      place->samples = found.samples;
    });
    for (const Bucket& bucket : buckets_) {
      queue.run(Words{kWork, this, std::uint64_t{2}, bucket.index}, {},
                [this, bucket](WordReader) { write_gradients(bucket); });
      sink.ready(bucket, stream);
    }
  }

  void evaluate(Stream& stream, Memory batch, std::uint32_t rows, Memory sums) override {
    const std::byte* from = first_row(batch, rows);
    auto* to = device_.address_of<StepSums>(sums);
    own(stream).run(Words{kWork, this, std::uint64_t{0}}, Words{from, rows, to}, [this](WordReader values) {
      read_targets(values);
      const StepSums found = measure();
      auto* const place = values.take<StepSums*>();
      place->loss += found.loss;
      place->correct += found.correct;
      place->samples += found.samples;
    });
  }

 private:
  struct Target {
    float value;
    bool even;
  };

  const std::byte* first_row(const Memory& batch, std::uint32_t rows) const {
    TROUPE_CHECK(rows <= batch_.rows(), Code::invalid, rows, " rows of a batch with room for ", batch_.rows());
    TROUPE_CHECK(batch.size_bytes >= batch_.size_bytes(), Code::invalid, "a batch of ", batch.size_bytes,
                 " bytes, the layout needs ", batch_.size_bytes());
    return device_.address(batch);
  }

  /// The targets of the rows that count. Source of the hash: FNV-1a.
  void read_targets(WordReader& values) {
    const auto* const batch = values.take<const std::byte*>();
    const auto rows = values.take<std::uint32_t>();
    targets_.clear();
    const auto& fields = batch_.entries();
    const auto label = std::find_if(fields.begin(), fields.end(),
                                    [](const BatchLayout::Entry& entry) { return entry.field.dtype == DType::i32; });
    const auto* labels = reinterpret_cast<const std::int32_t*>(batch + label->offset);
    const BatchLayout::Entry& inputs = fields.front();
    const std::uint64_t row_bytes = inputs.row_bytes();
    for (std::uint32_t row = 0; row < rows; ++row) {
      if (labels[row] < 0) continue;
      std::uint64_t hash = 0xcbf29ce484222325ULL ^ static_cast<std::uint64_t>(labels[row]);
      for (const std::byte byte : std::span{batch + inputs.offset + row * row_bytes, row_bytes}) {
        hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3ULL;
      }
      targets_.push_back({static_cast<float>(hash % 2001) / 1000 - 1, hash % 2 == 0});
    }
  }

  float weight(std::uint64_t i) const { return bf16_ != nullptr ? from_bf16(bf16_[i]) : parameters_[i]; }

  StepSums measure() const {
    StepSums sums;
    for (const Target& target : targets_) {
      for (const Layout::Entry& entry : entries_) {
        for (std::uint64_t i = entry.first; i < entry.first + entry.count; ++i) {
          const double off = static_cast<double>(weight(i)) - target.value;
          sums.loss += off * off / 2;
        }
      }
      sums.correct += target.even ? 1 : 0;
      ++sums.samples;
    }
    return sums;
  }

  void write_gradients(const Bucket& bucket) {
    std::fill_n(gradients_.begin() + static_cast<std::ptrdiff_t>(bucket.first_in_layout()), bucket.count, 0.0f);
    for (const Layout::Entry& entry : entries_) {
      const std::uint64_t end = std::min(entry.first + entry.count, bucket.first_in_layout() + bucket.count);
      for (std::uint64_t i = std::max(entry.first, bucket.first_in_layout()); i < end; ++i) {
        for (const Target& target : targets_) gradients_[i] += weight(i) - target.value;
      }
    }
  }

  FakeDevice& device_;
  const std::vector<Layout::Entry> entries_;
  const BatchLayout batch_;
  const std::vector<Bucket> buckets_;
  const float* parameters_ = nullptr;
  const std::uint16_t* bf16_ = nullptr;
  std::span<float> gradients_;
  std::vector<Target> targets_;  // of the present batch
};

}  // namespace

std::unique_ptr<Replica> quadratic_replica(FakeDevice& device, const Layout& layout, const BatchLayout& batch,
                                           const std::vector<Bucket>& buckets, const ReplicaMemory& memory) {
  return std::make_unique<QuadraticReplica>(device, layout, batch, buckets, memory);
}

}  // namespace troupe::fake
