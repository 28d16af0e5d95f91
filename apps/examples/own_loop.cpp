// An app that owns the training loop; the session's device computes. Arguments: app.toml, then settings such as
// train.steps=100. With RANK, WORLD_SIZE, ... in the environment it is one rank of several.
#include <iostream>

#include "apps/session/openmp_polls.hpp"
#include "apps/session/session.hpp"

using namespace troupe;

int train(const std::string& file, const std::vector<std::string>& settings) {
  auto blocking = Blocking::on_thread("main");
  SessionOptions options{.configuration = read_configuration(file, settings)};
  options.place = launch_place_from_environment();
  const bool leads = !options.place || options.place->rank == 0;
  const auto session = Session::start(blocking, std::move(options));

  std::uint64_t steps = 0;
  while (session->next(blocking)) {
    const auto sums = session->step(blocking);
    if (!sums) break;
    if (++steps % 100 == 0 && leads && sums->samples > 0)
      std::cout << "step " << steps << ": loss " << sums->loss / static_cast<double>(sums->samples) << std::endl;
  }

  const RunResult result = session->finish(blocking);
  if (!result.status.ok()) std::cerr << result.status.text() << std::endl;
  if (leads && steps == 0 && result.total.steps != 0)
    std::cout << "nothing to train: all " << result.total.steps << " steps were done before" << std::endl;
  if (leads && !result.epochs.empty() && result.epochs.back().test_accuracy)
    std::cout << "test accuracy " << *result.epochs.back().test_accuracy << std::endl;
  return exit_code(result.status.code());
}

int main(int argc, char** argv) {
  restart_with_short_polls({argv, argv + argc});  // OpenMP reads its settings before main()
  if (argc < 2) return std::cerr << "usage: " << argv[0] << " app.toml [key=value ...]\n", 2;
  try {
    return train(argv[1], {argv + 2, argv + argc});
  } catch (const Error& error) {
    std::cerr << error.what() << std::endl;
    return exit_code(error.code());
  }
}
