#include <algorithm>
#include <memory>
#include <vector>

#include "devices/cpu/image_layouts.hpp"
#include "devices/cpu/kernels/norms.hpp"
#include "devices/cpu/layers/layers.hpp"
#include "devices/cpu/parallel.hpp"

namespace troupe::cpu {
namespace {

using dnnl::memory;

template <class T>
T* address(const memory& of) {
  return static_cast<T*>(of.get_data_handle());
}

/// What both passes read and write. The tensor is divided into pieces: some rows of one of `planes` matrices
/// [rows, width] that lie one after the other (one matrix, or for images in blocks of channels one for each image and
/// block). The sums of pieces are added in their order and in f64, so that they do not depend on the number of threads.
template <class Element>
struct NormOfBatch : NormTensors {
  const NormKernels<Element>* kernels = nullptr;
  const NormSumKernels* sum_kernels = nullptr;
  std::size_t planes = 1, rows = 0, width = 0, channels = 0, threads = 1;
  bool relu = false;   // in the forward pass
  bool masks = false;  // in the backward pass, which computes again where the ReLU cut off
  double epsilon = 0;
  memory input, output, gradient;
  memory other;                       // is added before the ReLU; empty: nothing
  memory input_gradient;              // empty: nobody needs it; may be `gradient`
  memory of_pieces;                   // f32 [2, sum_rows(), channels]
  std::vector<float> factors;         // [channels]
  std::vector<double> first, second;  // [channels], sums of pieces
  std::vector<float> sums, products;  // [channels]

  static constexpr std::size_t kPieceBytes = 16384, kLeastRows = 128, kMostRows = 512;
  static constexpr std::size_t kBytesInPlace = 65536;  // that are written at a time
  /// An output from this size on is not in the second-level cache when the next layer reads it, and to write it past
  /// the caches saves to read what it replaces.
  static constexpr std::size_t kLeastStreamedBytes = std::size_t{2} << 20;
  std::size_t piece_rows() const noexcept {
    return std::min(rows, std::clamp(kPieceBytes / sizeof(Element) / width, kLeastRows, kMostRows));
  }
  std::size_t pieces_of_plane() const noexcept { return (rows + piece_rows() - 1) / piece_rows(); }
  std::size_t pieces() const noexcept { return planes * pieces_of_plane(); }
  double count() const noexcept { return static_cast<double>(planes * rows * width / channels); }

  struct Piece {
    std::size_t first, channel, rows;  // of the tensor: its first element and that one's channel
    std::size_t sums;                  // the first one of both kinds
  };
  Piece piece(std::size_t index) const noexcept {
    const std::size_t plane = index / pieces_of_plane(), of_plane = index % pieces_of_plane();
    const std::size_t row = of_plane * piece_rows(), channel = plane * width % channels;
    const std::size_t sum_row = plane * width / channels * pieces_of_plane() + of_plane;
    return {(plane * rows + row) * width, channel, std::min(piece_rows(), rows - row), sum_row * channels + channel};
  }
  /// The same rows of planes that have all channels together.
  std::size_t sum_rows() const noexcept { return pieces() * width / channels; }
  float* first_sums() const { return address<float>(of_pieces); }
  float* second_sums() const { return first_sums() + sum_rows() * channels; }
  /// Calls act(rows of the pieces, their first sums, their second sums), both [channels], in the order of pieces.
  template <class Act>
  void for_sums(Act&& act) const {
    for (std::size_t sum_row = 0; sum_row < sum_rows(); ++sum_row) {
      const std::size_t row = sum_row % pieces_of_plane() * piece_rows();
      act(std::min(piece_rows(), rows - row), first_sums() + sum_row * channels, second_sums() + sum_row * channels);
    }
  }
  NormColumns columns(const memory& means, std::size_t channel, bool with_relu) const {
    return {address<const float>(means) + channel, factors.data() + channel, address<const float>(shift) + channel,
            with_relu, planes * rows * width * sizeof(Element) >= kLeastStreamedBytes};
  }

  template <class Act>
  void for_pieces(Act&& act) const {
    for_each_in_parallel(threads, pieces(), [&](std::size_t index, std::size_t) { act(index); });
  }
  /// Calls act(first element, rows) for all rows of a piece, few wide rows at a time: the same columns of more rows
  /// compete for the same few places of the caches.
  template <class Act>
  void for_rows(const Piece& of, Act&& act) const {
    const std::size_t each = std::max<std::size_t>(1, kBytesInPlace / sizeof(Element) / width);
    for (std::size_t row = 0; row < of.rows; row += each) act(of.first + row * width, std::min(each, of.rows - row));
  }
  /// A second pass goes backward: it finds the last pieces of the first one in the second-level cache.
  template <class Act>
  void for_pieces_backward(Act&& act) const {
    for_pieces([&](std::size_t index) { act(pieces() - 1 - index); });
  }

  void make_room() {
    for (auto* room : {&factors, &sums, &products}) room->resize(channels);
    for (auto* room : {&first, &second}) room->resize(channels);
  }

  void scale_by(const memory& of_variance) {
    sum_kernels->scale(address<const float>(scale), address<const float>(of_variance), epsilon, channels,
                       factors.data());
  }

  void forward() {
    for_pieces([&](std::size_t index) {
      const Piece at = piece(index);
      kernels->moments(address<const Element>(input) + at.first, at.rows, width, first_sums() + at.sums,
                       second_sums() + at.sums);
    });
    add_up_moments();
    scale_by(variance);
    normalize(mean);
  }

  void add_up_moments() {
    std::ranges::fill(first, 0.0);
    std::ranges::fill(second, 0.0);
    for_sums([&](std::size_t count_rows, const float* means, const float*) {
      sum_kernels->add(means, static_cast<double>(count_rows), channels, first.data());
    });
    sum_kernels->multiply(first.data(), 1 / count(), channels, address<float>(mean));
    for_sums([&](std::size_t count_rows, const float* means, const float* squares) {
      sum_kernels->add_squares(squares, means, static_cast<double>(count_rows), first.data(), channels, second.data());
    });
    sum_kernels->multiply(second.data(), 1 / count(), channels, address<float>(variance));
  }

  void normalize(const memory& means) const {
    for_pieces_backward([&](std::size_t index) {
      const Piece at = piece(index);
      kernels->normalize(address<const Element>(input) + at.first,
                         other ? address<const Element>(other) + at.first : nullptr,
                         address<Element>(output) + at.first, columns(means, at.channel, relu), at.rows, width);
    });
  }

  void evaluate() {
    scale_by(running_variance);
    normalize(running_mean);
  }

  /// With n the normalized input and bars for means over the batch: dx = scale / deviation (dy - mean(dy) - n mean(dy
  /// n)). Source: Ioffe, Szegedy 2015, section 3, with the terms collected.
  void backward() {
    scale_by(variance);
    for_pieces([&](std::size_t index) {
      const Piece at = piece(index);
      kernels->gradient_sums(address<const Element>(input) + at.first, address<const Element>(gradient) + at.first,
                             columns(mean, at.channel, masks), at.rows, width, first_sums() + at.sums,
                             second_sums() + at.sums);
    });
    add_up_gradients();
    if (!input_gradient) return;
    for_pieces_backward([&](std::size_t index) {
      const Piece at = piece(index);
      for_rows(at, [&](std::size_t first, std::size_t some) {
        kernels->to_input(address<const Element>(input) + first, address<const Element>(gradient) + first,
                          address<Element>(input_gradient) + first, columns(mean, at.channel, masks),
                          sums.data() + at.channel, products.data() + at.channel, some, width);
      });
    });
  }

  void add_up_gradients() {
    std::ranges::fill(first, 0.0);
    std::ranges::fill(second, 0.0);
    for_sums([&](std::size_t, const float* of_pieces, const float* products_of_pieces) {
      sum_kernels->add(of_pieces, 1, channels, first.data());
      sum_kernels->add(products_of_pieces, 1, channels, second.data());
    });
    sum_kernels->finish_gradients({epsilon, count(), address<const float>(variance), first.data(), second.data(),
                                   address<float>(to_shift), address<float>(to_scale), sums.data(), products.data()},
                                  channels);
  }
};

/// Statistics are always f32. The gradient to the input takes the place of the output's gradient, unless that is also
/// the gradient to another tensor which was added.
template <class Element>
class OwnBatchNormCalls final : public LayerCalls {
 public:
  OwnBatchNormCalls(ProgramBuilder& builder, const FusedLayer& fused_layer, const BatchNorm& norm,
                    const NormKernelSet& kernels)
      : builder_(builder), fused_layer_(fused_layer), norm_(std::make_shared<NormOfBatch<Element>>()) {
    NormOfBatch<Element>& to = *norm_;
    to.kernels = &kernels.of<Element>();
    to.sum_kernels = &kernels.sums;
    set_shape();
    to.threads = usable_threads();
    to.relu = fused_layer.activation == Activation::relu;
    to.masks = to.relu && !fused_layer.adds;  // behind a sum, the gradient is 0 there already
    if (fused_layer.adds) to.other = builder.tensor(fused_layer.inputs[1]).value;
    to.epsilon = norm.epsilon;
    to.input = builder.tensor(fused_layer.inputs.front()).value;
    to.output = builder.tensor(fused_layer.output).value;
    static_cast<NormTensors&>(to) = take_norm_tensors(builder, fused_layer, to.channels);
    to.make_room();
    // The variance of the batch is divided by n, the one that is kept by n - 1.
    const double unbiased = to.count() > 1 ? to.count() / (to.count() - 1) : 1;
    builder.add_statistic({to.mean, fused_layer.first_parameter + kRunningMean, 1});
    builder.add_statistic({to.variance, fused_layer.first_parameter + kRunningVariance, static_cast<float>(unbiased)});
  }

  void forward(Calls& calls) override {
    const NormOfBatch<Element>& of = *norm_;
    add<&NormOfBatch<Element>::forward>(calls, "forward",
                                        {of.input, of.other, of.output, of.scale, of.shift, of.mean, of.variance});
  }
  bool has_evaluation() const override { return true; }
  void evaluation(Calls& calls) override {
    const NormOfBatch<Element>& of = *norm_;
    add<&NormOfBatch<Element>::evaluate>(
        calls, "evaluation", {of.input, of.other, of.output, of.scale, of.shift, of.running_mean, of.running_variance});
  }
  void backward(Calls& calls, Gradients& gradients) override {
    Gradients::Place gradient = gradients.use(fused_layer_.output);
    gradient.masked = false;
    NormOfBatch<Element>& of = *norm_;
    of.gradient = gradient.value;
    const bool goes_to_other = fused_layer_.adds && builder_.tensor(fused_layer_.inputs[1]).trained;
    const bool is_added = goes_to_other && gradients.has(fused_layer_.inputs[1]);
    if (is_added) gradients.add(calls, fused_layer_.inputs[1], gradient.value);
    const FlowTensor& input = builder_.tensor(fused_layer_.inputs.front());
    Gradients::Place to = goes_to_other && !is_added && input.trained ? gradients.take_place(input.width) : gradient;
    if (input.trained) of.input_gradient = to.value;
    add<&NormOfBatch<Element>::backward>(
        calls, "backward",
        {of.input, of.gradient, to.value, of.scale, of.shift, of.mean, of.variance, of.to_scale, of.to_shift});
    if (input.trained) gradients.contribute(calls, fused_layer_.inputs.front(), std::move(to));
    if (goes_to_other && !is_added) gradients.contribute(calls, fused_layer_.inputs[1], std::move(gradient));
  }

 private:
  void set_shape() {
    NormOfBatch<Element>& to = *norm_;
    const std::size_t all = builder_.rows() * fused_layer_.input_shape.count_elements();
    to.channels = to.width = fused_layer_.input_shape.extents.back();
    if (builder_.in_blocks(fused_layer_.inputs.front())) {
      to.width = kBlockChannels;
      to.planes = builder_.rows() * to.channels / kBlockChannels;
    }
    to.rows = all / to.planes / to.width;
  }

  /// `used`: also the sums of pieces, which no other call needs.
  template <auto kDo>
  void add(Calls& calls, const char* pass, std::vector<memory> used) {
    builder_.choose_own(fused_layer_, pass, norm_->kernels->name);
    norm_->of_pieces =
        builder_.places().take(builder_.matrix(2 * norm_->sum_rows(), norm_->channels, ProgramBuilder::Type::f32));
    used.push_back(norm_->of_pieces);
    calls.emplace_back(OwnWork{std::move(used), [norm = norm_, room = norm_->of_pieces](const Kernels&) {
                                 norm->of_pieces = room;
                                 ((*norm).*kDo)();
                               }});
  }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const std::shared_ptr<NormOfBatch<Element>> norm_;
};

template <class Element>
std::unique_ptr<LayerCalls> make(ProgramBuilder& builder, const FusedLayer& fused_layer, const BatchNorm& norm) {
  const auto usable = usable_norm_kernels();
  if (usable.empty()) return nullptr;
  return std::make_unique<OwnBatchNormCalls<Element>>(builder, fused_layer, norm, *usable.back());
}

}  // namespace

std::unique_ptr<LayerCalls> make_own_batch_norm(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                                const BatchNorm& norm) {
  if (builder.stored() == ProgramBuilder::Type::f32) return make<float>(builder, fused_layer, norm);
  return make<std::uint16_t>(builder, fused_layer, norm);
}

}  // namespace troupe::cpu
