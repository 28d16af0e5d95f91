#include "tools/bench/data/sets.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/data/augment.hpp"
#include "runtime/data/byte_images.hpp"

namespace troupe::bench {
namespace {

/// Images of random bytes: how long they take does not depend on what they show.
std::unique_ptr<Source> random_images(std::uint32_t count, std::uint32_t side, std::uint32_t channels,
                                      const std::vector<std::string>& augment) {
  ByteImageSet set{.height = side, .width = side, .channels = channels, .classes = 10};
  set.pixels.resize(std::size_t{count} * side * side * channels);
  for (std::size_t i = 0; i < set.pixels.size(); ++i) set.pixels[i] = static_cast<std::uint8_t>(mix(i));
  for (std::uint32_t i = 0; i < count; ++i) set.labels.push_back(static_cast<std::uint8_t>(i % 10));
  return std::make_unique<ByteImages>(std::move(set), parse_augmentation(augment), true);
}

}  // namespace

MeasuredSet make_measured_set(const DataCase& what) {
  const auto chosen = [&](std::vector<std::string> usual) { return what.augment.empty() ? usual : what.augment; };
  MeasuredSet set;
  if (what.what == "mnist") {
    set.name = text("idx ", what.threads, " workers");
    set.augment = chosen({"normalize:0.1307,0.3081"});
    set.source = random_images(60'000, 28, 1, set.augment);
  } else {
    set.name = text("cifar ", what.threads, " workers");
    set.augment = chosen({"crop:4", "flip", "normalize:0.4914,0.4822,0.4465,0.247,0.2435,0.2616"});
    set.source = random_images(50'000, 32, 3, set.augment);
  }
  return set;
}

}  // namespace troupe::bench
