// A model of the app's own: softmax regression on the pixels, with a hand-written step. The session reads the data,
// exchanges gradients, updates, evaluates and saves. Arguments: app.toml, then settings such as train.epochs=1.
#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <numeric>

#include "apps/session/session.hpp"

using namespace troupe;

constexpr std::size_t kPixels = 784, kClasses = 10;
template <bool kLearns>
StepSums regress(const BatchView& batch, const std::vector<SessionTensor>& tensors) {
  const SessionTensor &weights = tensors[0], &bias = tensors[1];
  for (const SessionTensor& tensor : tensors)
    if (kLearns) std::ranges::fill(tensor.gradients, 0.0f);
  const auto images = batch.values<float>(kImage);
  const auto labels = batch.values<std::int32_t>(kLabel);
  if (images.size() != batch.rows() * kPixels) fail(Code::invalid, "the images do not have 784 pixels");
  StepSums sums;
  for (std::size_t row = 0; row < batch.rows(); ++row) {
    if (labels[row] < 0) continue;
    const auto label = static_cast<std::size_t>(labels[row]);
    const float* x = &images[row * kPixels];
    std::array<float, kClasses> p;
    for (std::size_t c = 0; c < kClasses; ++c)
      p[c] = std::inner_product(x, x + kPixels, &weights.parameters[c * kPixels], bias.parameters[c]);
    sums.correct += label == static_cast<std::size_t>(std::ranges::max_element(p) - p.begin());
    for (const float largest = std::ranges::max(p); float& each : p) each = std::exp(each - largest);
    const float total = std::accumulate(p.begin(), p.end(), 0.0f);
    sums.loss -= std::log(p.at(label) / total);
    ++sums.samples;
    for (std::size_t c = 0; kLearns && c < kClasses; ++c) {
      const float error = p[c] / total - (c == label ? 1.0f : 0.0f);
      bias.gradients[c] += error;
      for (std::size_t i = 0; i < kPixels; ++i) weights.gradients[c * kPixels + i] += error * x[i];
    }
  }
  return sums;
}

int main(int argc, char** argv) try {
  if (argc < 2) return std::cerr << "usage: " << argv[0] << " app.toml [key=value ...]\n", 2;
  auto blocking = Blocking::on_thread("main");
  SessionOptions options{.configuration = read_configuration(argv[1], {argv + 2, argv + argc})};
  options.place = launch_place_from_environment();
  options.model = {
      "regression", {{"weight", {kClasses, kPixels}}, {"bias", {kClasses}}}, regress<true>, regress<false>};
  const RunResult result = Session::start(blocking, std::move(options))->run(blocking);
  if (!result.status.ok()) std::cerr << result.status.text() << std::endl;
  if (!result.epochs.empty() && result.epochs.back().test_accuracy)
    std::cout << "test accuracy " << *result.epochs.back().test_accuracy << std::endl;
  return exit_code(result.status.code());
} catch (const Error& error) {
  std::cerr << error.what() << std::endl;
  return exit_code(error.code());
}
