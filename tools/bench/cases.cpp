#include "tools/bench/cases.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/data/text_windows.hpp"
#include "tools/bench/data/sets.hpp"

namespace troupe::bench {
namespace {

/// The same source for training and test set, made in each process that reads it.
template <std::unique_ptr<Source> (*make)()>
OwnData drawn() {
  const auto one = make();
  OwnData data{.description = "samples drawn for the measurement", .facts = {}, .read = [] {
                 return DataSet{.train = make(), .test = make(), .origin = "drawn"};
               }};
  data.facts = {.fields = one->fields(),
                .train_samples = one->count_samples(),
                .test_samples = one->count_samples(),
                .size_bytes = 2 * one->size_bytes()};
  return data;
}

std::unique_ptr<Source> digits() {
  return random_images({.count = 6000, .side = 28, .channels = 1, .classes = 10}, {"normalize:0.1307,0.3081"});
}
std::unique_ptr<Source> small_images() {
  return random_images({.count = 6000, .side = 32, .channels = 3, .classes = 10},
                       {"normalize:0.4914,0.4822,0.4465,0.247,0.2435,0.2616"});
}
std::unique_ptr<Source> large_images() {
  return random_images({.count = 64, .side = 224, .channels = 3, .classes = 1000},
                       {"normalize:0.485,0.456,0.406,0.229,0.224,0.225"});
}
std::unique_ptr<Source> bytes() {
  constexpr std::uint32_t kLength = 256;
  auto text = std::make_shared<std::vector<std::uint8_t>>(std::size_t{512} * kLength);
  for (std::size_t i = 0; i < text->size(); ++i) (*text)[i] = static_cast<std::uint8_t>(mix(i));
  return std::make_unique<TextWindows>(text, *text, kLength, true);
}

constexpr std::string_view kMlp = R"(optimizer.rule = "adam")";
constexpr std::string_view kLenet = R"(model.name = "lenet"
optimizer = {rule = "sgd", rate = 0.05})";
constexpr std::string_view kConvnet = R"(model.name = "convnet"
optimizer = {rule = "momentum", rate = 0.0015})";
constexpr std::string_view kResnet20 = R"(model = {name = "resnet", depth = 20}
optimizer = {rule = "momentum", rate = 0.01})";
constexpr std::string_view kResnet50 = R"(model = {name = "resnet", depth = 50}
optimizer = {rule = "momentum", rate = 0.01})";
constexpr std::string_view kGpt = R"(model.name = "gpt"
optimizer = {rule = "adamw", rate = 0.001})";

constexpr Pace kQuick{.warm_steps = 25, .window_steps = 5};
constexpr Pace kSteady{.warm_steps = 8, .window_steps = 2};
constexpr Pace kSlow{.warm_steps = 2, .window_steps = 1};
constexpr std::array kNetworks{
    Network{.name = "mlp", .settings = kMlp, .batch = 100, .pace = kQuick, .draw = drawn<digits>},
    Network{.name = "lenet", .settings = kLenet, .batch = 64, .pace = kQuick, .draw = drawn<digits>},
    Network{.name = "cifar", .settings = kConvnet, .batch = 64, .pace = kSteady, .draw = drawn<small_images>},
    Network{.name = "resnet20", .settings = kResnet20, .batch = 64, .pace = kSteady, .draw = drawn<small_images>},
    Network{.name = "resnet50", .settings = kResnet50, .batch = 4, .pace = kSlow, .draw = drawn<large_images>},
    Network{.name = "gpt", .settings = kGpt, .batch = 8, .pace = kSlow, .draw = drawn<bytes>},
};

}  // namespace

const Network& network_of(std::string_view name) {
  const auto* const found = std::ranges::find(kNetworks, name, &Network::name);
  TROUPE_CHECK(found != kNetworks.end(), Code::invalid, "there is no case ", name);
  return *found;
}

std::vector<std::string> names_of_networks() {
  std::vector<std::string> names;
  for (const Network& network : kNetworks) names.emplace_back(network.name);
  return names;
}

}  // namespace troupe::bench
