// Data and a model of the app's own for the session's device: points of the plane with two labels each, and a network
// with branches. Arguments: settings such as data.batch=32. Start one process, or several ranks as in
// own_gradients.cpp.
#include <cmath>
#include <iostream>

#include "apps/session/session.hpp"
#include "runtime/base/random.hpp"

using namespace troupe;

const std::vector<Field> kFields{
    {"point", {{2}}}, {"inside", {}, DType::i32, 2}, {"label", {}, DType::i32, 4}};  // in the circle? which quadrant?

struct Points final : Source {
  Points(std::uint64_t count_, std::uint64_t key_) : count(count_), key(key_) {}
  std::uint64_t count_samples() const noexcept override { return count; }
  std::uint64_t size_bytes() const noexcept override { return 0; }
  const std::vector<Field>& fields() const noexcept override { return kFields; }
  void fill(const FillRequest& request, IoThreads& threads, std::shared_ptr<FillDone> done) const override {
    fill_on(threads, request, std::move(done), [this](const FillRequest& what) {
      auto* point = reinterpret_cast<float*>(what.slot + what.batch->entry("point").offset);
      auto* inside = reinterpret_cast<std::int32_t*>(what.slot + what.batch->entry("inside").offset);
      auto* label = reinterpret_cast<std::int32_t*>(what.slot + what.batch->entry("label").offset);
      for (const Sample& sample : what.samples) {
        const auto x = static_cast<float>(random_normal(key, 2 * sample.index));
        const auto y = static_cast<float>(random_normal(key, 2 * sample.index + 1));
        *point++ = x, *point++ = y;
        *inside++ = std::hypot(x, y) < 1 ? 1 : 0;
        *label++ = (x < 0 ? 1 : 0) + (y < 0 ? 2 : 0);
      }
    });
  }
  const std::uint64_t count, key;
};

Graph branching(const Settings&, const std::vector<Field>& fields) {
  return {"branching",
          fields,
          DType::f32,
          {{"stem", Dense{32}},
           {"r1", Relu{}},
           {"around", Dense{32}},
           {"r2", Relu{}},
           {"sum", Add{}, {"r1", "r2"}},
           {"circle", Dense{2}, {"sum"}},
           {"circle loss", SoftmaxCrossEntropy{0.5}, {"circle", "inside"}},
           {"quadrant", Dense{4}, {"sum"}},
           {"loss", SoftmaxCrossEntropy{}}}};
}

int main(int argc, char** argv) try {
  auto blocking = Blocking::on_thread("main");
  constexpr const char* kSettings = "train = { epochs = 5 }\ncheckpoint = { every_steps = 0 }";
  SessionOptions options{.configuration = parse_configuration(kSettings, "own_graph", {argv + 1, argv + argc})};
  options.place = launch_place_from_environment();
  options.graph = branching;
  options.own_data =
      OwnData{"points of the plane", {kFields, 20'000, 2'000}, [] {
                return DataSet{std::make_unique<Points>(20'000, 1), std::make_unique<Points>(2'000, 2), "drawn"};
              }};
  const RunResult result = Session::start(blocking, std::move(options))->run(blocking);
  if (!result.status.ok()) std::cerr << result.status.text() << std::endl;
  if (!result.epochs.empty() && result.epochs.back().test_accuracy)
    std::cout << "test accuracy " << *result.epochs.back().test_accuracy << std::endl;
  return exit_code(result.status.code());
} catch (const Error& error) {
  std::cerr << error.what() << std::endl;
  return exit_code(error.code());
}
