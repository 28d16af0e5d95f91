// Trains the model of an app.toml on OpenCL. Arguments: app.toml, then settings such as train.epochs=1. With RANK,
// WORLD_SIZE, ... in the environment it is one rank of several.
#include <iostream>

#include "apps/session/session.hpp"
#include "opencl_device.hpp"

using namespace troupe;

struct Console final : SessionListener {
  void started(const Plan& plan, const std::string& device, const DataPlace&) override {
    std::cout << plan.ranks.size() << " ranks, this one on " << device << std::endl;
  }
  void epoch(const EpochReport& epoch) override {
    std::cout << "epoch " << epoch.epoch << ": loss " << epoch.loss << ", test accuracy "
              << epoch.test_accuracy.value_or(0) << std::endl;
  }
};

int main(int argc, char** argv) try {
  if (argc < 2) return std::cerr << "usage: " << argv[0] << " app.toml [key=value ...]\n", 2;
  auto blocking = Blocking::on_thread("main");
  Console console;
  SessionOptions options{.configuration = read_configuration(argv[1], {argv + 2, argv + argc})};
  options.place = launch_place_from_environment();
  options.make_device = [](const DeviceContext& context) {
    return opencl::make_opencl_device(context.space, context.wait_deadline);
  };
  options.listener = &console;
  const RunResult result = Session::start(blocking, std::move(options))->run(blocking);
  if (result.total.samples > 0)  // only rank 0 knows the totals
    std::cout << static_cast<double>(result.total.samples) / result.total.train_s << " samples/s" << std::endl;
  if (!result.status.ok()) std::cerr << result.status.text() << std::endl;
  return exit_code(result.status.code());
} catch (const Error& error) {
  std::cerr << error.what() << std::endl;
  return exit_code(error.code());
}
