// Uses only the exchange: the app has its own samples and its own arithmetic (it finds y = 3 x - 1 from noisy points),
// and the session adds up gradients over all ranks and updates. Start one process, or several with RANK, WORLD_SIZE,
// MASTER_ADDR, MASTER_PORT and TROUPE_SECRET_FILE in the environment.
#include <iostream>
#include <random>

#include "apps/session/session.hpp"

using namespace troupe;

constexpr const char* kSettings = R"(
optimizer = { rule = "sgd", rate = 0.1 }
data = { batch = 64 }
train = { steps = 200 }
checkpoint = { every_steps = 0 })";

int fit() {
  auto blocking = Blocking::on_thread("main");
  SessionOptions options{.configuration = parse_configuration(kSettings, "own_gradients", {})};
  options.place = launch_place_from_environment();
  options.model = OwnModel{.name = "line", .parameters = {{"slope", {1}}, {"offset", {1}}}};
  options.own_samples = 10'000;
  std::mt19937 random{options.place ? options.place->rank : 0};
  const auto session = Session::start(blocking, std::move(options));

  std::normal_distribution<float> normal;
  const SessionTensor &slope = session->tensors()[0], &offset = session->tensors()[1];
  for (;;) {
    StepSums sums;
    float to_slope = 0, to_offset = 0;
    for (int i = 0; i < 64; ++i) {
      const float x = normal(random), y = 3 * x - 1 + 0.1f * normal(random);
      const float error = slope.parameters[0] * x + offset.parameters[0] - y;
      to_slope += error * x;
      to_offset += error;
      sums.loss += 0.5 * error * error;
      ++sums.samples;
    }
    slope.gradients[0] = to_slope;
    offset.gradients[0] = to_offset;
    session->report("slope", slope.parameters[0]);  // a value for run/log
    if (!session->exchange(blocking, sums)) break;
  }
  const RunResult result = session->finish(blocking);
  if (!result.status.ok()) std::cerr << result.status.text() << std::endl;
  std::cout << "y = " << slope.parameters[0] << " x + " << offset.parameters[0] << std::endl;
  return exit_code(result.status.code());
}

int main() {
  try {
    return fit();
  } catch (const Error& error) {
    std::cerr << error.what() << std::endl;
    return exit_code(error.code());
  }
}
