#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "devices/cpu/image_layouts.hpp"
#include "devices/cpu/layers/layers.hpp"
#include "devices/cpu/parallel.hpp"
#include "runtime/compute/rank_gather.hpp"

namespace troupe::cpu {
namespace {

using dnnl::memory;

/// Where a tensor's channels are: in `planes` consecutive matrices [rows, width]. Each plane has the `width` channels
/// after those of the plane before; after the last channels follow the first again. Height by width by channels is one
/// plane; blocks have one plane for each image and block.
struct Planes {
  std::size_t planes = 1, rows = 0, width = 0, channels = 0;
};

/// The number of elements of a plane that are processed at a time: a second pass over them finds them in the
/// second-level cache, and they are few enough for sums in f32.
constexpr std::size_t kPieceElements = std::size_t{1} << 16;
constexpr std::size_t kPieceRows = 256;

/// One thread's scratch memory.
struct Worker {
  std::vector<float> values, others, sums, products;  // of a piece
  std::vector<Moments> moments;                       // of the channels in the pieces that it processed
  std::vector<GradientSums> gradients;                // likewise
};

/// All that both passes of the layer read and write. `mean` and `variance` are of the batch of all ranks, the variance
/// divided by n - 1. Sums of pieces are added in f64, in an order that depends only on
/// the number of threads.
struct NormPass : NormTensors {
  Planes shape;
  bool relu = false;
  float epsilon = 0;
  std::vector<std::byte*> parts;  // of all ranks
  std::size_t rank = 0;           // this rank's index in `parts`
  memory input, output, gradient;
  std::vector<float> deviations;                       // [channels]: 1 / sqrt(variance + epsilon)
  std::vector<float> factors, shifts, sums, products;  // [channels], operands of kernels
  double count = 0;                                    // the number of values in each channel, of all ranks
  std::vector<Worker> workers;

  std::vector<memory> memories() const {
    return {input, output, gradient, scale, shift, running_mean, running_variance, to_scale, to_shift, mean, variance};
  }

  std::size_t piece_rows() const noexcept {
    return std::clamp<std::size_t>(kPieceElements / shape.width, 1, std::min(kPieceRows, shape.rows));
  }

  void make_room(std::size_t threads) {
    const std::size_t piece = piece_rows() * shape.width;
    workers.resize(threads);
    for (Worker& worker : workers) {
      for (auto* room : {&worker.values, &worker.others})
        if (!is_f32(input)) room->resize(piece);
      for (auto* room : {&worker.sums, &worker.products}) room->resize(shape.width);
      worker.moments.resize(shape.channels);
      worker.gradients.resize(shape.channels);
    }
    for (auto* room : {&deviations, &factors, &shifts, &sums, &products}) room->resize(shape.channels);
  }

  /// Calls act(worker, first element, first channel, rows) for all pieces; each thread processes consecutive pieces.
  template <class Act>
  void for_pieces(Act&& act) {
    const std::size_t each = piece_rows(), of_plane = (shape.rows + each - 1) / each;
    const std::size_t all = shape.planes * of_plane, threads = workers.size();
    const auto run = [&](std::size_t thread) {
      for (std::size_t piece = thread * all / threads; piece < (thread + 1) * all / threads; ++piece) {
        const std::size_t plane = piece / of_plane, row = piece % of_plane * each;
        act(workers[thread], (plane * shape.rows + row) * shape.width, plane * shape.width % shape.channels,
            std::min(each, shape.rows - row));
      }
    };
    for_each_in_parallel(threads, threads, [&](std::size_t part, std::size_t) { run(part); });
  }

  /// `count` elements from `first` on in f32: in place, or converted into `room`.
  static const float* read(const Kernels& kernels, const memory& from, std::size_t first, std::size_t count,
                           std::vector<float>& room) {
    if (is_f32(from)) return data_of<const float>(from) + first;
    kernels.widen(room.data(), data_of<const std::uint16_t>(from) + first, count);
    return room.data();
  }
  /// Where a result in f32 is written: in `to`, or in `room`, from which write() copies it to `to`.
  static float* room_in(const memory& to, std::size_t first, std::vector<float>& room) {
    return is_f32(to) ? data_of<float>(to) + first : room.data();
  }
  static void write(const Kernels& kernels, const memory& to, std::size_t first, std::size_t count, const float* from) {
    if (!is_f32(to)) kernels.round(data_of<std::uint16_t>(to) + first, from, count);
  }

  void measure(const Kernels& kernels) {
    for (Worker& worker : workers) std::ranges::fill(worker.moments, Moments{});
    for_pieces([&](Worker& worker, std::size_t first, std::size_t channel, std::size_t rows) {
      const float* const x = read(kernels, input, first, rows * shape.width, worker.values);
      std::ranges::fill(worker.sums, 0.0F);
      kernels.column_sums(worker.sums.data(), x, rows, shape.width);
      for (float& sum : worker.sums) sum /= static_cast<float>(rows);
      std::ranges::fill(worker.products, 0.0F);
      kernels.column_squares(worker.products.data(), x, worker.sums.data(), rows, shape.width);
      for (std::size_t c = 0; c < shape.width; ++c)
        worker.moments[channel + c].add({static_cast<double>(rows), worker.sums[c], worker.products[c]});
    });
    const MomentsPart own = moments_in(parts[rank], shape.channels);
    for (std::size_t c = 0; c < shape.channels; ++c) {
      Moments all;
      for (const Worker& worker : workers) all.add(worker.moments[c]);
      *own.count = static_cast<std::uint64_t>(all.count);
      own.means[c] = static_cast<float>(all.mean);
      own.squares[c] = static_cast<float>(all.squares);
    }
  }

  void normalize(const Kernels& kernels) {
    for (std::size_t c = 0; c < shape.channels; ++c) {
      const Moments all = moments_of(parts, shape.channels, c);
      count = all.count;
      data_of<float>(mean)[c] = static_cast<float>(all.mean);
      data_of<float>(variance)[c] = static_cast<float>(all.unbiased_variance());
      deviations[c] = static_cast<float>(1 / std::sqrt(all.variance() + epsilon));
      factors[c] = data_of<const float>(scale)[c] * deviations[c];
    }
    put_out(kernels, data_of<const float>(mean));
  }

  /// Normalizes by the running statistics.
  void evaluate(const Kernels& kernels) {
    for (std::size_t c = 0; c < shape.channels; ++c)
      factors[c] = data_of<const float>(scale)[c] / std::sqrt(data_of<const float>(running_variance)[c] + epsilon);
    put_out(kernels, data_of<const float>(running_mean));
  }

  void put_out(const Kernels& kernels, const float* means) {
    for_pieces([&](Worker& worker, std::size_t first, std::size_t channel, std::size_t rows) {
      const std::size_t count_elements = rows * shape.width;
      const float* const x = read(kernels, input, first, count_elements, worker.values);
      float* const y = room_in(output, first, worker.others);
      kernels.scale_columns(y, x,
                            {means + channel, factors.data() + channel, data_of<const float>(shift) + channel, relu},
                            rows, shape.width);
      write(kernels, output, first, count_elements, y);
    });
  }

  void add_up_gradients(const Kernels& kernels) {
    for (Worker& worker : workers) std::ranges::fill(worker.gradients, GradientSums{});
    for_pieces([&](Worker& worker, std::size_t first, std::size_t channel, std::size_t rows) {
      const std::size_t count_elements = rows * shape.width;
      if (relu) mask(kernels, first, count_elements);
      const float* const x = read(kernels, input, first, count_elements, worker.values);
      const float* const dy = read(kernels, gradient, first, count_elements, worker.others);
      std::ranges::fill(worker.sums, 0.0F);
      std::ranges::fill(worker.products, 0.0F);
      kernels.column_products(worker.sums.data(), worker.products.data(), dy, x, data_of<const float>(mean) + channel,
                              rows, shape.width);
      for (std::size_t c = 0; c < shape.width; ++c) {
        worker.gradients[channel + c].sum += worker.sums[c];
        worker.gradients[channel + c].product += worker.products[c];
      }
    });
    const GradientSumsPart own = gradient_sums_in(parts[rank], shape.channels);
    for (std::size_t c = 0; c < shape.channels; ++c) {
      GradientSums all;
      for (const Worker& worker : workers) {
        all.sum += worker.gradients[c].sum;
        all.product += worker.gradients[c].product;
      }
      own.sums[c] = data_of<float>(to_shift)[c] = static_cast<float>(all.sum);
      own.products[c] = data_of<float>(to_scale)[c] = static_cast<float>(all.product * deviations[c]);
    }
  }

  /// Applies the slope of the ReLU after the layer.
  void mask(const Kernels& kernels, std::size_t first, std::size_t count_elements) const {
    if (is_f32(gradient))
      return kernels.mask_f32(data_of<float>(gradient) + first, data_of<const float>(output) + first, count_elements);
    kernels.mask_bf16(data_of<std::uint16_t>(gradient) + first, data_of<const std::uint16_t>(output) + first,
                      count_elements);
  }

  /// With n the normalized input and bars for means over the batch of all ranks: dx = scale / deviation (dy - mean(dy)
  /// - n mean(dy n)). Source: Ioffe, Szegedy 2015, section 3, with the terms collected.
  void backward_pass(const Kernels& kernels) {
    for (std::size_t c = 0; c < shape.channels; ++c) {
      const GradientSums all = gradient_sums_of(parts, shape.channels, c);
      sums[c] = static_cast<float>(all.sum / count);
      products[c] = static_cast<float>(all.product / count * deviations[c]);
    }
    for_pieces([&](Worker& worker, std::size_t first, std::size_t channel, std::size_t rows) {
      const std::size_t count_elements = rows * shape.width;
      const float* const x = read(kernels, input, first, count_elements, worker.values);
      float* const dx = room_in(gradient, first, worker.others);
      if (!is_f32(gradient)) (void)read(kernels, gradient, first, count_elements, worker.others);
      kernels.center_gradient(dx, x,
                              {data_of<const float>(mean) + channel, factors.data() + channel, sums.data() + channel,
                               products.data() + channel},
                              rows, shape.width);
      write(kernels, gradient, first, count_elements, dx);
    });
  }
};

/// oneDNN's primitives cannot be interrupted between the sums and their use, so the kernels are our own. Scale, shift
/// and statistics are always f32; the gradient to the input takes the place of the output's gradient.
class SynchronizedNormCalls final : public LayerCalls {
 public:
  SynchronizedNormCalls(ProgramBuilder& builder, const FusedLayer& fused_layer, const BatchNorm& norm)
      : builder_(builder), fused_layer_(fused_layer), pass_(std::make_shared<NormPass>()) {
    NormPass& pass = *pass_;
    pass.shape = planes();
    pass.relu = fused_layer.activation == Activation::relu;
    pass.epsilon = static_cast<float>(norm.epsilon);
    pass.parts = builder.gathered().parts;
    pass.rank = builder.gathered().rank;
    pass.input = builder.tensor(fused_layer.inputs.front()).value;
    pass.output = builder.tensor(fused_layer.output).value;
    static_cast<NormTensors&>(pass) = take_norm_tensors(builder, fused_layer, pass.shape.channels);
    builder.add_statistic({pass.mean, fused_layer.first_parameter + kRunningMean, 1});
    builder.add_statistic({pass.variance, fused_layer.first_parameter + kRunningVariance, 1});
    pass.make_room(usable_threads());
  }

  GatheredBytes gathered() const override {
    return {moments_bytes(pass_->shape.channels), gradient_sums_bytes(pass_->shape.channels)};
  }
  void before_forward(Calls& calls) override { add<&NormPass::measure>(calls); }
  void forward(Calls& calls) override { add<&NormPass::normalize>(calls); }
  bool has_evaluation() const override { return true; }
  void evaluation(Calls& calls) override { add<&NormPass::evaluate>(calls); }
  void before_backward(Calls& calls, Gradients& gradients) override {
    gradient_ = gradients.use(fused_layer_.output);
    pass_->gradient = gradient_.value;
    add<&NormPass::add_up_gradients>(calls);
  }
  void backward(Calls& calls, Gradients& gradients) override {
    gradient_.masked = false;
    if (!builder_.tensor(fused_layer_.inputs.front()).trained) return;
    add<&NormPass::backward_pass>(calls);
    gradients.contribute(calls, fused_layer_.inputs.front(), std::move(gradient_));
  }

 private:
  template <auto kDo>
  void add(Calls& calls) const {
    calls.emplace_back(OwnWork{pass_->memories(), [pass = pass_](const Kernels& kernels) { ((*pass).*kDo)(kernels); }});
  }

  Planes planes() const {
    const std::uint32_t input = fused_layer_.inputs.front();
    const std::size_t channels = fused_layer_.input_shape.extents.back();
    const std::size_t all = builder_.rows() * fused_layer_.input_shape.count_elements();
    if (!builder_.in_blocks(input)) return {1, all / channels, channels, channels};
    return {builder_.rows() * channels / kBlockChannels, all / builder_.rows() / channels, kBlockChannels, channels};
  }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const std::shared_ptr<NormPass> pass_;
  Gradients::Place gradient_;
};

}  // namespace

std::unique_ptr<LayerCalls> make_synchronized_norm(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                                   const BatchNorm& norm) {
  return std::make_unique<SynchronizedNormCalls>(builder, fused_layer, norm);
}

}  // namespace troupe::cpu
