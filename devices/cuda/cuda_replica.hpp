#pragma once

#include <cstdint>
#include <vector>

#include "devices/cuda/cuda_stream.hpp"
#include "runtime/compute/device.hpp"

namespace troupe::cuda {

/// A replica of a graph that is one chain of dense layers, curves and flattenings up to a softmax cross entropy, by
/// kernels of ours. Sums are in f32 and in one order, so the same batch gives the same bits.
class CudaReplica final : public Replica {
 public:
  CudaReplica(DeviceState& device, const Graph& graph, const Layout& layout, const BatchLayout& batch,
              const std::vector<Bucket>& buckets, const ReplicaMemory& memory);

  void step(Stream& stream, Memory batch, std::uint32_t rows, Memory sums, BucketSink& sink) override;
  void evaluate(Stream& stream, Memory batch, std::uint32_t rows, Memory sums) override;

 private:
  /// A tensor of a batch, and the gradient to it.
  struct Tensor {
    std::byte* at = nullptr;
    std::byte* gradient = nullptr;  // null: none is computed
    std::uint64_t width = 0;        // elements of a row
    Stored type = Stored::f32;
  };
  /// A layer that computes something.
  struct Stage {
    std::uint32_t layer = 0;
    std::uint32_t input = 0, output = 0;  // tensors
    bool is_dense = false;                // else a curve
    Curve curve = Curve::relu;
    std::uint64_t inner = 0, units = 0;  // of a dense layer
    std::uint64_t weight = 0, bias = 0;  // elements of the layout
    bool has_bias = false;
    std::vector<std::uint32_t> buckets;  // that its parameters are in, and no stage before reads
  };
  /// A field of a batch that the graph reads.
  struct Field {
    std::uint32_t tensor = 0;
    std::uint64_t offset = 0, row_bytes = 0;
  };

  void read_fields(const Graph& graph);
  void read_layers(const Graph& graph, const Layout& layout);
  void add_dense(const Graph& graph, const Layout& layout, const Dense& dense, Stage& stage);
  void add_loss(const Graph& graph, std::uint32_t layer);
  void take_memory(const Graph& graph);
  void find_buckets(const Graph& graph, const Layout& layout);
  CudaStream& own(Stream& stream, const Memory& batch, std::uint32_t rows) const;
  void step_without_rows(CudaStream& stream, Memory sums, BucketSink& sink);
  void take_batch(CudaStream& stream, Memory batch, std::uint32_t rows);
  void forward(CudaStream& stream, const Stage& stage, std::uint32_t rows);
  void backward(CudaStream& stream, const Stage& stage, std::uint32_t rows);
  void loss(CudaStream& stream, std::uint32_t rows, Memory sums, bool trains);
  Matrix weights(const Stage& stage, std::uint64_t row_stride, std::uint64_t column_stride) const;

  DeviceState& device_;
  const BatchLayout batch_;
  const std::vector<Bucket> buckets_;
  const float* parameters_ = nullptr;
  const std::uint16_t* bf16_ = nullptr;  // null: the graph is f32
  float* gradients_ = nullptr;
  Stored type_ = Stored::f32;  // of activations
  std::vector<Tensor> tensors_;
  std::vector<std::uint32_t> same_;  // by tensor: the one whose memory it has
  std::vector<Field> fields_;
  std::vector<Stage> stages_;
  std::vector<std::uint32_t> last_layers_;  // by bucket: when the backward pass has come there, it is finished
  SoftmaxCrossEntropy loss_;
  std::uint32_t logits_ = 0, labels_ = 0;  // tensors
  std::uint32_t classes_ = 0;
  std::uint64_t rows_of_logits_ = 0;  // of one sample
  RowLoss* row_losses_ = nullptr;
  DeviceMemory memory_;
};

}  // namespace troupe::cuda
