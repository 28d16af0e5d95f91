// One rank of a job of pull_model() whose third rank's gradient of "b" has a NaN in step 7, once. Says on stdout what
// it was told, which steps were left out, and how the run ended. Arguments: app.toml, then settings as in --set. The
// place in the job is in the environment.

#include <cstdio>
#include <memory>

#include "apps/session/session.hpp"
#include "runtime/model/layout.hpp"
#include "tests/cluster/pull_model.hpp"

namespace {

using namespace troupe;

class Told final : public SessionListener {
 public:
  void note(const std::string& text) override { std::printf("told: %s\n", text.c_str()); }
};

int run(const std::string& file, const std::vector<std::string>& overrides) {
  Blocking blocking = Blocking::on_thread("main");
  Told told;
  SessionOptions options{.configuration = read_configuration(file, overrides)};
  options.place = launch_place_from_environment();
  options.listener = &told;
  std::uint64_t trained = 0;
  const bool spoils = options.place && options.place->rank == 2;
  options.model = testing::pull_model([&](const std::vector<SessionTensor>&) { return trained++ == 7 && spoils; });
  const bool own_loop = options.configuration.settings.rule.skips_non_finite;
  const auto session = Session::start(blocking, std::move(options));
  // The second tensor begins where the layout puts it.
  std::uint64_t step = 0;
  while (own_loop && session->next(blocking)) {
    const auto sums = session->step(blocking);
    if (!sums) break;
    if (sums->bad_gradient != 0)
      std::printf("left out: step %llu: the gradient of %s, first at rank %llu\n",
                  static_cast<unsigned long long>(step),
                  bad_element(sums->bad_gradient) >= session->tensors()[0].parameters.size() ? "b" : "w",
                  static_cast<unsigned long long>(bad_rank(sums->bad_gradient)));
    ++step;
  }
  const RunResult result = own_loop ? session->finish(blocking) : session->run(blocking);
  if (!result.status.ok()) {
    std::printf("ended: %s\n", std::string{result.status.text()}.c_str());
    return exit_code(result.status.code());
  }
  std::printf("ended after step %llu\n", static_cast<unsigned long long>(result.total.steps));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argv[1], {argv + 2, argv + argc});
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return exit_code(error.code());
  }
}
