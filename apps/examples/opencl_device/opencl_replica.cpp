#include "opencl_replica.hpp"

#include <algorithm>
#include <variant>

namespace opencl {
namespace {

constexpr std::uint64_t kRowLossBytes = 16;  // RowLoss in kernels/loss.cl

void check_fits(const Graph& graph, const Layout& layout, const BatchLayout& batch, const ReplicaMemory& memory) {
  const std::vector<Field>& fields = graph.fields();
  const bool image_and_label = fields.size() == 2 && fields[0].dtype != DType::i32 && fields[1].dtype == DType::i32 &&
                               fields[1].shape.extents.empty();
  TROUPE_CHECK(image_and_label, Code::unsupported, "graph ", graph.name(),
               ": the OpenCL device has models of an image and a label alone");
  TROUPE_CHECK(graph.dtype() == DType::f32, Code::unsupported, "graph ", graph.name(),
               ": the OpenCL device computes in f32, not ", name_of(graph.dtype()), ": set model.dtype = \"f32\"");
  const auto* const loss = std::get_if<SoftmaxCrossEntropy>(&graph.layers().back().operation);
  TROUPE_CHECK(loss != nullptr && *loss == SoftmaxCrossEntropy{}, Code::unsupported, "graph ", graph.name(),
               ": the OpenCL device has a plain softmax_cross_entropy alone, without attributes");
  batch.check_fits(graph);
  const std::uint64_t size_bytes = layout.count_elements() * sizeof(float);
  TROUPE_CHECK(memory.parameters.size_bytes == size_bytes && memory.gradients.size_bytes == size_bytes, Code::invalid,
               "graph ", graph.name(), ": parameters and gradients must have ", layout.count_elements(), " elements");
}

}  // namespace

OpenClReplica::OpenClReplica(const Context& context, const AddressSpace& space, const Graph& graph,
                             const Layout& layout, const BatchLayout& batch, const std::vector<Bucket>& buckets,
                             const ReplicaMemory& memory)
    : space_(space), batch_(batch), buckets_(buckets), classes_(graph.count_classes()) {
  check_fits(graph, layout, batch, memory);
  (void)space.address(memory.parameters), (void)space.address(memory.gradients);
  for (const Bucket& bucket : buckets) bucket_layers_.push_back(first_layer(graph, layout, bucket));
  row_losses_ = context.make_buffer(batch.rows() * kRowLossBytes);
  std::size_t parameter = 0;
  auto in = static_cast<cl_uint>(image().row_elements());
  const auto part = [&](const Memory& whole, const Layout::Entry& entry) {
    return slice(whole, entry.first * sizeof(float), entry.count * sizeof(float));
  };
  for (std::size_t l = 0; l + 1 < graph.layers().size(); ++l) {
    TROUPE_CHECK(l == 0 || graph.inputs_of(l).front() == graph.output_tensor(l - 1), Code::unsupported, "layer ",
                 graph.layers()[l].name, ": the OpenCL device has chains of layers alone");
    LayerPart made;
    const auto* const dense = std::get_if<Dense>(&graph.layers()[l].operation);
    made.dense = dense != nullptr && dense->flatten && dense->bias;
    TROUPE_CHECK(made.dense || std::holds_alternative<Relu>(graph.layers()[l].operation), Code::unsupported, "layer ",
                 graph.layers()[l].name,
                 ": the OpenCL device has dense layers of all inputs, with a bias, and ReLU alone");
    made.in = in;
    made.out = in = static_cast<cl_uint>(graph.output_of(l).count_elements());
    if (made.dense) {
      const Layout::Entry &weight = layout.entries()[parameter], &bias = layout.entries()[parameter + 1];
      made.weight = part(memory.parameters, weight), made.bias = part(memory.parameters, bias);
      made.weight_gradient = part(memory.gradients, weight), made.bias_gradient = part(memory.gradients, bias);
      parameter += 2;
    }
    made.output = context.make_buffer(sizeof(float) * batch.rows() * made.out);
    made.output_gradient = context.make_buffer(sizeof(float) * batch.rows() * made.out);
    layers_.push_back(std::move(made));
  }
}

OpenClStream& OpenClReplica::own(Stream& stream) const {
  auto* const found = dynamic_cast<OpenClStream*>(&stream);
  TROUPE_CHECK(found != nullptr, Code::invalid, "an OpenCL replica was given another device's stream");
  return *found;
}

Place OpenClReplica::input(OpenClStream& stream, const Rows& rows, std::size_t layer) const {
  if (layer > 0) return {layers_[layer - 1].output.get(), 0};
  const std::uint64_t elements = std::max<std::uint64_t>(rows.count, 1) * image().row_elements();
  return stream.use(slice(rows.batch, image().offset, elements * sizeof(float)));
}

void OpenClReplica::step(Stream& stream, Memory batch, std::uint32_t rows, Memory sums, BucketSink& sink) {
  OpenClStream& queue = own(stream);
  const Rows taken = checked(batch, rows, sums);
  for (const Bucket& bucket : buckets_) sink.acquire(bucket, stream);
  queue.unless_ended([&] {
    forward(queue, taken);
    loss(queue, taken, sums, true);
  });
  std::size_t told = 0;
  for (std::size_t l = layers_.size(); l-- > 0;) {
    queue.unless_ended([&] { backward(queue, taken, l); });
    while (layers_[l].dense && told < buckets_.size() && bucket_layers_[told] >= l)
      sink.ready(buckets_[told++], stream);
  }
}

void OpenClReplica::evaluate(Stream& stream, Memory batch, std::uint32_t rows, Memory sums) {
  OpenClStream& queue = own(stream);
  const Rows taken = checked(batch, rows, sums);
  queue.unless_ended([&] {
    forward(queue, taken);
    loss(queue, taken, sums, false);
  });
}

OpenClReplica::Rows OpenClReplica::checked(const Memory& batch, std::uint32_t rows, const Memory& sums) const {
  TROUPE_CHECK(batch.size_bytes == batch_.size_bytes() && sums.size_bytes == sizeof(StepSums), Code::invalid,
               "a batch of ", batch.size_bytes, " bytes and sums of ", sums.size_bytes,
               " were given, this replica takes ", batch_.size_bytes(), " and ", sizeof(StepSums));
  TROUPE_CHECK(rows <= batch_.rows(), Code::invalid, rows, " rows of a batch with room for ", batch_.rows());
  (void)space_.address(batch), (void)space_.address(sums);  // throw if they are not mapped here
  return {batch, rows};
}

void OpenClReplica::forward(OpenClStream& stream, const Rows& rows) {
  if (rows.count == 0) return;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const LayerPart& layer = layers_[l];
    const Place x = input(stream, rows, l), y{layer.output.get(), 0};
    if (layer.dense) {
      stream.run(Kernel::dense, {pieces(layer.out, 4), pieces(rows.count, 4)}, y, x, stream.use(layer.weight),
                 stream.use(layer.bias), rows.count, layer.out, layer.in);
    } else {
      const cl_ulong count = cl_ulong{rows.count} * layer.out;
      stream.run(Kernel::relu, {pieces(count, kChunkElements), 1}, y, x, count);
    }
  }
}

void OpenClReplica::loss(OpenClStream& stream, const Rows& rows, const Memory& sums, bool learns) {
  const Place logits{layers_.back().output.get(), 0}, gradient{layers_.back().output_gradient.get(), 0};
  const Place found{row_losses_.get(), 0};
  if (rows.count > 0) {
    const Place labels = stream.use(slice(rows.batch, label().offset, rows.count * sizeof(std::int32_t)));
    stream.run(Kernel::loss_rows, {pieces(rows.count, 8), 1}, found, logits, labels, gradient, rows.count, classes_,
               cl_uint{learns}, cl_ulong{stream.sequence()});
  }
  stream.run(Kernel::loss_sums, {1, 1}, stream.use(sums), found, rows.count, cl_uint{!learns});
}

/// The gradient to the layer's input comes first, since the layer's weights must not be read any more when its own
/// gradients are ready. Those are sums over the rows: zero without rows.
void OpenClReplica::backward(OpenClStream& stream, const Rows& rows, std::size_t l) {
  const LayerPart& layer = layers_[l];
  const Place dy{layer.output_gradient.get(), 0};
  if (l > 0 && rows.count > 0) {
    const Place dx{layers_[l - 1].output_gradient.get(), 0};
    if (layer.dense) {
      stream.run(Kernel::product, {pieces(layer.in, 16), pieces(rows.count, 4)}, dx, dy, layer.out, cl_uint{1},
                 stream.use(layer.weight), rows.count, layer.out, layer.in);
    } else {
      const cl_ulong count = cl_ulong{rows.count} * layer.out;
      stream.run(Kernel::relu_gradient, {pieces(count, kChunkElements), 1}, dx, dy, input(stream, rows, l), count);
    }
  }
  if (!layer.dense) return;
  stream.run(Kernel::product, {pieces(layer.in, 16), pieces(layer.out, 4)}, stream.use(layer.weight_gradient), dy,
             cl_uint{1}, layer.out, input(stream, rows, l), layer.out, rows.count, layer.in);
  stream.run(Kernel::bias_gradient, {pieces(layer.out, 64), 1}, stream.use(layer.bias_gradient), dy, rows.count,
             layer.out);
}

}  // namespace opencl
