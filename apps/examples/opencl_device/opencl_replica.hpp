#pragma once

#include <vector>

#include "opencl_context.hpp"
#include "opencl_stream.hpp"
#include "runtime/compute/device.hpp"

namespace opencl {

/// A chain of dense layers and ReLUs in f32; its activations are in buffers of the device.
class OpenClReplica final : public Replica {
 public:
  OpenClReplica(const Context& context, const AddressSpace& space, const Graph& graph, const Layout& layout,
                const BatchLayout& batch, const std::vector<Bucket>& buckets, const ReplicaMemory& memory);
  void step(Stream& stream, Memory batch, std::uint32_t rows, Memory sums, BucketSink& sink) override;
  void evaluate(Stream& stream, Memory batch, std::uint32_t rows, Memory sums) override;

 private:
  struct LayerPart {
    bool dense = false;  // otherwise a ReLU
    cl_uint in = 0, out = 0;
    Memory weight, bias;                    // of dense layers
    Memory weight_gradient, bias_gradient;  // of dense layers
    OwnedBuffer output;                     // [rows, out]
    OwnedBuffer output_gradient;            // [rows, out]
  };
  OpenClStream& own(Stream& stream) const;
  /// The first rows of a batch.
  struct Rows {
    Memory batch;
    cl_uint count = 0;
  };
  Rows checked(const Memory& batch, std::uint32_t rows, const Memory& sums) const;
  const BatchLayout::Entry& image() const { return batch_.entries()[0]; }
  const BatchLayout::Entry& label() const { return batch_.entries()[1]; }
  Place input(OpenClStream& stream, const Rows& rows, std::size_t layer) const;
  void forward(OpenClStream& stream, const Rows& rows);
  void loss(OpenClStream& stream, const Rows& rows, const Memory& sums, bool learns);
  void backward(OpenClStream& stream, const Rows& rows, std::size_t layer);

  const AddressSpace& space_;
  const BatchLayout batch_;
  const std::vector<Bucket> buckets_;
  std::vector<std::uint32_t> bucket_layers_;  // the first layer of each bucket
  std::vector<LayerPart> layers_;             // without the loss
  OwnedBuffer row_losses_;
  cl_uint classes_;
};

}  // namespace opencl
