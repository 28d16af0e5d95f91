#include <cmath>

#include "devices/reference/layers/layers.hpp"

namespace troupe::reference {
namespace {

enum : std::size_t { kScale, kShift, kRunningMean, kRunningVariance };

/// The statistics of one channel of a batch.
struct Channel {
  double mean = 0, variance = 0;  // divided by the count, not by one less
};

std::vector<Channel> channels_of(const Tensor& input) {
  std::vector<Channel> found(input.shape.extents.back());
  const std::size_t channels = found.size();
  const auto count = static_cast<double>(input.values.size() / channels);
  for (std::size_t i = 0; i < input.values.size(); ++i) found[i % channels].mean += input.values[i] / count;
  for (std::size_t i = 0; i < input.values.size(); ++i)
    found[i % channels].variance += std::pow(input.values[i] - found[i % channels].mean, 2) / count;
  return found;
}

}  // namespace

void forward(const BatchNorm& norm, const LayerWork& work) {
  const auto& x = work.inputs[0]->values;
  std::vector<Channel> channels = channels_of(*work.inputs[0]);
  for (std::size_t c = 0; !work.training && c < channels.size(); ++c)
    channels[c] = {work.parameters[kRunningMean].values[c], work.parameters[kRunningVariance].values[c]};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels.size();
    const double normal = (x[i] - channels[c].mean) / std::sqrt(channels[c].variance + norm.epsilon);
    work.output->values[i] = work.parameters[kScale].values[c] * normal + work.parameters[kShift].values[c];
  }
}

/// With n the normalized input and mean() over the channel: dx = scale / deviation (dy - mean(dy) - n mean(dy n)).
/// Source: Ioffe, Szegedy 2015, section 3, with terms combined.
void backward(const BatchNorm& norm, const LayerWork& work) {
  const auto& x = work.inputs[0]->values;
  const auto& dy = work.output->gradients;
  const std::vector<Channel> channels = channels_of(*work.inputs[0]);
  const std::size_t width = channels.size();
  const auto count = static_cast<double>(x.size() / width);
  const auto normal = [&](std::size_t i) {
    return (x[i] - channels[i % width].mean) / std::sqrt(channels[i % width].variance + norm.epsilon);
  };
  std::vector<double> sum(width), sum_normal(width);
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum[i % width] += dy[i];
    sum_normal[i % width] += dy[i] * normal(i);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % width;
    const double factor = work.parameters[kScale].values[c] / std::sqrt(channels[c].variance + norm.epsilon);
    work.inputs[0]->gradients[i] += factor * (dy[i] - sum[c] / count - normal(i) * sum_normal[c] / count);
  }
  const auto samples = static_cast<double>(*work.samples);
  for (std::size_t c = 0; c < width; ++c) {
    work.parameters[kScale].gradients[c] += sum_normal[c];
    work.parameters[kShift].gradients[c] += sum[c];
    const double unbiased = count > 1 ? count / (count - 1) : 1;
    work.parameters[kRunningMean].gradients[c] -= samples * channels[c].mean;
    work.parameters[kRunningVariance].gradients[c] -= samples * unbiased * channels[c].variance;
  }
}

}  // namespace troupe::reference
