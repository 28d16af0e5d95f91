#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "devices/cuda/cuda_stream.hpp"
#include "devices/cuda/layers/layers.hpp"
#include "runtime/compute/device.hpp"

namespace troupe::cuda {

/// A replica of a graph, by kernels of ours and a library's products. Sums are in one order, so the same batch gives
/// the same bits. All layers' outputs are kept until the backward pass; a gradient has its memory from the first layer
/// that writes it to the one that reads it.
class CudaReplica final : public Replica {
 public:
  /// Throws Error{unsupported}, which names the layer, for what it does not compute.
  CudaReplica(DeviceState& device, const Graph& graph, const Layout& layout, const BatchLayout& batch,
              const std::vector<Bucket>& buckets, const ReplicaMemory& memory);

  void announce(Memory batch, Point valid_from) override;
  void step(Stream& stream, Memory batch, std::uint32_t rows, Memory sums, BucketSink& sink) override;
  void evaluate(Stream& stream, Memory batch, std::uint32_t rows, Memory sums) override;

 private:
  /// A layer of the graph.
  struct Stage {
    std::string name;
    Operation operation;
    LayerWork work;
    LayerRoom room;
    std::vector<std::uint32_t> read;  // tensors
    std::uint32_t written = 0;        // of a loss: none
    Stage* relu = nullptr;            // the only reader of this stage's output; null: that is no ReLU
    /// Of a ReLU with a fused gradient: the dense layer that reads it (fused_relu_gradients.hpp).
    Stage* after = nullptr;
    bool is_done = false;   // computed in this forward pass, together with the stage that it reads
    Stage* norm = nullptr;  // of a sum: the batch norm that is computed with it and the ReLU behind it; null: none
    /// Another stage computes it (fused_norms.hpp, curves_before_pools.hpp).
    bool is_fused_forward = false, is_fused_backward = false;
    bool is_loss = false;
    bool has_backward = false;           // its output depends on a parameter
    std::vector<std::uint32_t> buckets;  // those of its parameters that no earlier stage reads
    WeightOrders orders;                 // of weights in these buckets, when they are acquired
  };
  /// A field of a batch that the graph reads.
  struct Field {
    std::uint32_t tensor = 0;
    std::uint64_t offset = 0, row_bytes = 0;
    bool makes_f16 = false;  // of f32
  };
  /// A place in the GPU's memory for an announced batch.
  struct Upload {
    std::byte* at = nullptr;
    Memory batch;     // the announced batch that is in this place; empty: none
    Point there;      // from which it may be read
    Point free_from;  // from which it may be overwritten: its last reader is done
  };
  /// When a gradient is in use: from one turn to another, both included. Losses have the first turns, in their order;
  /// then the other layers have theirs, from the last one to the first.
  struct Use {
    std::uint32_t first = 0, last = 0;
    std::uint64_t bytes = 0, place = 0;
    bool is_used = false;
  };

  void read_tensors(const Graph& graph);
  void read_layers(const Graph& graph);
  void read_parameters(const Graph& graph, const Layout& layout, const ReplicaMemory& memory);
  void find_buckets(const Graph& graph, const Layout& layout);
  void find_losses();
  void find_relus(const Graph& graph);
  void find_norms(const Graph& graph);
  void find_rooms(const Graph& graph);
  void use_gradients(const Graph& graph, std::vector<Use>& uses) const;
  std::uint64_t place_gradients(std::vector<Use>& uses) const;
  void take_memory(const Graph& graph, const MathLibraries& libraries);
  void connect();
  void find_orders(const Graph& graph, const Layout& layout);
  void order_all_weights(CudaStream& stream) const;
  void bring_landed(CudaStream& stream, const Pass& pass);
  void prepare_stages();
  CudaStream& own(Stream& stream, const Memory& batch, std::uint32_t rows) const;
  MathLibraries libraries_for(const ReplicaMemory& memory) const;
  bool forward_with_mask(Stage& stage, const Pass& pass);
  void forward_of(Stage& stage, const Pass& pass);
  void join_weights_before(const Stage& stage, CudaStream& stream);
  static void backward_of(const Stage& stage, const Pass& pass);
  Pass pass_on(CudaStream& stream, std::uint32_t rows, Memory sums, bool trains);
  void step_without_rows(CudaStream& stream, Memory sums, BucketSink& sink);
  void take_batch(CudaStream& stream, const std::byte* batch, std::uint32_t rows);
  const std::byte* wait_for_announced(CudaStream& stream, const Memory& batch);

  DeviceState& device_;
  const BatchLayout batch_;
  const std::vector<Bucket> buckets_;
  float* gradients_ = nullptr;
  bool owns_gradients_ = false;
  Stored type_ = Stored::f32;  // of activations
  std::vector<Tensor> tensors_;
  std::vector<std::uint32_t> same_;            // by tensor: the one whose memory it has
  std::vector<std::uint32_t> same_gradients_;  // likewise for the gradient to it
  std::vector<bool> is_unwritten_;             // likewise: it has no memory
  std::vector<Field> fields_;
  std::vector<Stage> stages_;                   // by layer
  std::vector<std::uint32_t> last_layers_;      // by bucket: the layer whose backward pass completes it
  const LossScaleState* loss_scale_ = nullptr;  // null: the loss is not scaled
  std::uint64_t losses_of_row_ = 1;             // the most that a row has
  const std::int32_t* keys_ = nullptr;          // of samples; null: the graph drops nothing
  std::byte* scratch_ = nullptr;
  std::uint64_t* samples_ = nullptr;
  // Of the step that is being enqueued:
  WeightOrders landed_;
  const std::byte* read_aside_ = nullptr;  // the gradient that work aside is reading; null: none
  std::unique_ptr<Math> math_;
  DeviceMemory memory_;
  std::array<Upload, kMostAnnounced> uploads_;
  std::size_t next_upload_ = 0;
  std::unique_ptr<CudaStream> upload_stream_;  // last: its end waits for its copies
};

}  // namespace troupe::cuda
