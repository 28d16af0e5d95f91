// One rank of a job through the session library, for tests that compare runs: rank 0 writes each step's mean loss and
// the final parameters to a file. Arguments: the file, then settings as in --set. The place in the job is in the
// environment, and so are the data (TROUPE_DATA, or XDG_CACHE_HOME with data.source=generated). PROBE_DEVICE=far: the
// device is a fake one with memory of its own; =near: one in the host's memory.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "apps/session/session.hpp"
#include "devices/fake/fake_device.hpp"

namespace {

using namespace troupe;

class LossLog final : public SessionListener {
 public:
  void step(Step, const StepSums& total) override { losses.push_back(total.loss / static_cast<double>(total.samples)); }
  void note(const std::string& text) override { std::printf("%s\n", text.c_str()); }
  std::vector<double> losses;
};

MakeDevice fake_device(bool far) {
  return [far](const DeviceContext& context) {
    return std::make_unique<FakeDevice>(
        context.space, FakeOptions{.simulated_memory = far, .computes_graph = true, .runs_itself = true});
  };
}

int run(const std::string& file, std::vector<std::string> overrides) {
  Blocking blocking = Blocking::on_thread("main");
  LossLog log;
  overrides.insert(overrides.begin(), "checkpoint.every_steps=0");
  SessionOptions options{.configuration = parse_configuration("", "probe", overrides)};
  options.place = launch_place_from_environment();
  options.listener = &log;
  options.every_step = true;
  const char* device = std::getenv("PROBE_DEVICE");
  if (device != nullptr) options.make_device = fake_device(std::strcmp(device, "far") == 0);
  const bool writes = !options.place || options.place->rank == 0;
  const auto session = Session::start(blocking, std::move(options));
  const RunResult result = session->run(blocking);
  if (!result.status.ok()) {
    std::fprintf(stderr, "%s\n", std::string{result.status.text()}.c_str());
    return exit_code(result.status.code());
  }
  if (!writes) return 0;
  const std::vector<float> parameters = session->parameters();
  std::ofstream out{file, std::ios::binary};
  const std::uint64_t steps = log.losses.size();
  out.write(reinterpret_cast<const char*>(&steps), sizeof steps);
  out.write(reinterpret_cast<const char*>(log.losses.data()), static_cast<std::streamsize>(steps * sizeof(double)));
  out.write(reinterpret_cast<const char*>(parameters.data()),
            static_cast<std::streamsize>(parameters.size() * sizeof(float)));
  return out.good() ? 0 : 1;
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
