#include "runtime/data/augment.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>

#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/base/words.hpp"

namespace troupe {
namespace {

using Numbers = std::span<const double>;

constexpr std::uint32_t kMostSide = 8192;  // pixels
constexpr double kDefaultCenter = 0.875;   // 224 of 256
constexpr double kDefaultLeastArea = 0.08;
constexpr std::size_t kMostNumbers = 8;  // mean and deviation of four channels

bool is_whole(double x, double least, double most) { return x >= least && x <= most && x == std::floor(x); }
std::uint32_t whole(double x) { return static_cast<std::uint32_t>(x); }

/// A phrase about wrong numbers; empty if they are valid. If it is not empty, nothing was changed.
using Wrong = std::string;

Wrong take_size(Augmentation& to, Fit fit, Numbers sides) {
  for (const double side : sides)
    if (!is_whole(side, 1, kMostSide)) return text("takes sides from 1 to ", kMostSide, " pixels");
  to.fit = fit;
  to.height = whole(sides.front());
  to.width = whole(sides.back());
  return {};
}

Wrong take_resize(Augmentation& to, Numbers numbers) { return take_size(to, Fit::resize, numbers); }

Wrong take_center_crop(Augmentation& to, Numbers numbers) {
  const double part = numbers.size() > 1 ? numbers[1] : kDefaultCenter;
  if (!(part > 0 && part <= 1)) return "takes a part of the shorter side above 0 and at most 1";
  to.part = part;
  return take_size(to, Fit::center_crop, numbers.first(1));
}

Wrong take_random_crop(Augmentation& to, Numbers numbers) {
  const double least = numbers.size() > 1 ? numbers[1] : kDefaultLeastArea;
  if (!(least > 0 && least <= 1)) return "takes a least part of the area above 0 and at most 1";
  to.part = least;
  return take_size(to, Fit::random_crop, numbers.first(1));
}

Wrong take_crop(Augmentation& to, Numbers numbers) {
  if (!is_whole(numbers[0], 1, kMostSide)) return text("takes from 1 to ", kMostSide, " pixels");
  to.padding = whole(numbers[0]);
  return {};
}

Wrong take_flip(Augmentation& to, Numbers numbers) {
  const double probability = numbers.empty() ? 0.5 : numbers[0];
  if (!(probability > 0 && probability <= 1)) return "takes a probability above 0 and at most 1";
  to.flip = probability;
  return {};
}

Wrong take_jitter(Augmentation& to, Numbers numbers) {
  for (const double strength : numbers)
    if (!(strength >= 0 && strength <= 1)) return "takes strengths from 0 to 1";
  to.brightness = numbers[0];
  to.contrast = numbers.size() > 1 ? numbers[1] : 0;
  to.saturation = numbers.size() > 2 ? numbers[2] : 0;
  return {};
}

Wrong take_normalize(Augmentation& to, Numbers numbers) {
  if (numbers.size() % 2 != 0) return "takes as many means as deviations";
  const std::size_t channels = numbers.size() / 2;
  for (const double mean : numbers.first(channels))
    if (!(mean >= 0 && mean <= 1)) return "takes means from 0 to 1, of value / 255";
  for (const double deviation : numbers.subspan(channels))
    if (!(deviation >= 1e-6 && deviation <= 1)) return "takes deviations above 0 and at most 1, of value / 255";
  to.mean.assign(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(channels));
  to.deviation.assign(numbers.begin() + static_cast<std::ptrdiff_t>(channels), numbers.end());
  return {};
}

Wrong take_cutout(Augmentation& to, Numbers numbers) {
  if (!is_whole(numbers[0], 1, kMostSide)) return text("takes a side from 1 to ", kMostSide, " pixels");
  to.cutout = whole(numbers[0]);
  return {};
}

struct Row {
  AugmentOperation operation;
  std::size_t least_numbers = 0;
  std::size_t most_numbers = 0;
  Wrong (*take)(Augmentation&, Numbers) = nullptr;
  bool fits = false;  // resizes images: at most one such operation is allowed
};

/// In the order in which they are applied.
constexpr std::array kRows{
    Row{{"resize", "resize:32", "The whole image is resized to SIDE x SIDE or HEIGHT,WIDTH pixels, antialiased."},
        1,
        2,
        take_resize,
        true},
    Row{{"center_crop", "center_crop:224",
         "The middle square of the image, whose side is PART (0.875) of the shorter side, is resized to SIDE x SIDE: "
         "center_crop:SIDE,PART."},
        1,
        2,
        take_center_crop,
        true},
    Row{{"random_crop", "random_crop:224",
         "A window at a random position, with LEAST (0.08) to 1 of the image's area and an aspect ratio from 3:4 to "
         "4:3, is resized to SIDE x SIDE: random_crop:SIDE,LEAST. Samples of the test set are cropped as by "
         "center_crop:SIDE. Source: "
         "Szegedy et al. 2015 (Going deeper with convolutions), section 6."},
        1,
        2,
        take_random_crop,
        true},
    Row{{"crop", "crop:4",
         "The image is padded with PIXELS black pixels on each side, and a window of its own size is cut out at a "
         "random position."},
        1,
        1,
        take_crop},
    Row{{"flip", "flip", "The image is mirrored left to right with probability P (0.5): flip:P."}, 0, 1, take_flip},
    Row{{"jitter", "jitter:0.4,0.4,0.4",
         "Brightness, contrast and saturation are multiplied by factors drawn from 1 - STRENGTH to 1 + STRENGTH, in "
         "this order; values are cut at black and white. What is left out is 0."},
        1,
        3,
        take_jitter},
    Row{{"normalize", "normalize:0.1307,0.3081",
         "MEAN is subtracted from value / 255, and the difference is divided by DEVIATION. One of each for all "
         "channels, or the means of all channels and then their deviations."},
        2,
        kMostNumbers,
        take_normalize},
    Row{{"cutout", "cutout:8",
         "A square of SIDE x SIDE pixels around a random pixel becomes 0, which is the mean after normalize. Source: "
         "DeVries, Taylor 2017 (Improved regularization of convolutional neural networks with cutout), section 3."},
        1,
        1,
        take_cutout},
};

std::vector<std::string_view> names() {
  std::vector<std::string_view> all;
  for (const Row& row : kRows) all.push_back(row.operation.name);
  return all;
}

/// "crop:4", split into its parts.
struct Written {
  const Row* row = nullptr;
  std::vector<double> numbers;
  Wrong wrong;
};

Written read_operation(std::string_view written) {
  const std::size_t colon = written.find(':');
  const std::string_view name = written.substr(0, colon);
  const auto* const row = std::ranges::find(kRows, name, [](const Row& one) { return one.operation.name; });
  if (row == kRows.end()) return {.wrong = text("is not an operation; there are ", joined(names()))};
  Written out{.row = row};
  const auto wants = [&] { return text("is not written as in \"", row->operation.example, '"'); };
  std::string_view rest = colon == std::string_view::npos ? std::string_view{} : written.substr(colon + 1);
  if (colon != std::string_view::npos && rest.empty()) return {row, {}, wants()};
  while (!rest.empty()) {
    double number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc{} || !std::isfinite(number)) return {row, {}, wants()};
    out.numbers.push_back(number);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (rest.empty()) break;
    if (rest.front() != ',' || rest.size() == 1) return {row, {}, wants()};
    rest.remove_prefix(1);
  }
  if (out.numbers.size() < row->least_numbers || out.numbers.size() > row->most_numbers)
    return {row, {}, text("has ", out.numbers.size(), " numbers; write it as in \"", row->operation.example, '"')};
  return out;
}

/// Adds one operation; returns what is wrong with it, and then changes nothing.
Wrong add(Augmentation& to, std::string_view written) {
  const Written one = read_operation(written);
  return one.wrong.empty() ? one.row->take(to, one.numbers) : one.wrong;
}

/// The random numbers for one sample and one operation.
class Draws {
 public:
  Draws(std::uint64_t seed, const Sample& sample, std::uint64_t operation)
      : key_(sub_key(sub_key(sub_key(sub_key(seed, kAugment), sample.epoch), sample.index), operation)) {}
  double unit() { return random_unit(key_, next_++); }
  double between(double low, double high) { return low + (high - low) * unit(); }
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_below(key_, next_++, bound)); }

 private:
  static constexpr std::uint64_t kAugment = 0x61756766;  // different from the order of samples, which has the same seed
  std::uint64_t key_;
  std::uint64_t next_ = 0;
};

/// Their numbers affect what a seed produces: add new ones at the end.
enum Operation : std::uint64_t { kWindow, kShift, kFlip, kColors, kCutout };

PixelWindow whole_image(std::uint32_t height, std::uint32_t width) {
  return {0, 0, static_cast<double>(height), static_cast<double>(width)};
}

PixelWindow center_window(double part, std::uint32_t height, std::uint32_t width) {
  const double side = std::max(1.0, std::round(part * std::min(height, width)));
  return {std::floor((height - side) / 2), std::floor((width - side) / 2), side, side};
}

/// Source: Szegedy et al. 2015, section 6, with ten attempts and then the largest central window of an allowed shape.
PixelWindow random_window(Draws draws, double least_area, std::uint32_t height, std::uint32_t width) {
  constexpr int kTries = 10;
  constexpr double kNarrowest = 3.0 / 4, kWidest = 4.0 / 3;
  for (int i = 0; i < kTries; ++i) {
    const double area = draws.between(least_area, 1) * height * width;
    const double shape = std::exp(draws.between(std::log(kNarrowest), std::log(kWidest)));
    const double w = std::round(std::sqrt(area * shape)), h = std::round(std::sqrt(area / shape));
    const double down = draws.unit(), right = draws.unit();
    if (w < 1 || h < 1 || w > width || h > height) continue;
    return {std::floor(down * (height - h + 1)), std::floor(right * (width - w + 1)), h, w};
  }
  const double h = std::min<double>(height, std::round(width / kNarrowest));
  const double w = std::min<double>(width, std::round(h * kWidest));
  return {std::floor((height - h) / 2), std::floor((width - w) / 2), h, w};
}

}  // namespace

std::span<const AugmentOperation> augment_operations() {
  static const auto kOperations = [] {
    std::array<AugmentOperation, kRows.size()> all{};
    std::ranges::transform(kRows, all.begin(), &Row::operation);
    return all;
  }();
  return kOperations;
}

std::string find_augment_fault(std::string_view written) {
  Augmentation scratch;
  return add(scratch, written);
}

std::string find_augment_fault(std::span<const std::string> written) {
  const Row* fit = nullptr;
  std::vector<const Row*> seen;
  for (const std::string& one : written) {
    const Row* const row = read_operation(one).row;
    if (row == nullptr) continue;
    if (std::ranges::find(seen, row) != seen.end()) return text("has ", row->operation.name, " twice");
    seen.push_back(row);
    if (!row->fits) continue;
    if (fit != nullptr)
      return text("has ", fit->operation.name, " and ", row->operation.name,
                  ", which both resize images; leave one of them out");
    fit = row;
  }
  return {};
}

Augmentation parse_augmentation(std::span<const std::string> written) {
  Augmentation augmentation;
  for (const std::string& one : written) {
    const Wrong wrong = add(augmentation, one);
    TROUPE_CHECK(wrong.empty(), Code::invalid, "data.augment: \"", one, "\" ", wrong);
  }
  const std::string wrong = find_augment_fault(written);
  TROUPE_CHECK(wrong.empty(), Code::invalid, "data.augment ", wrong);
  return augmentation;
}

Shape Augmentation::shape_of(const Shape& shape) const {
  TROUPE_CHECK(shape.extents.size() == 3, Code::invalid, "data.augment: an image has three extents");
  Shape out = shape;
  if (fit != Fit::none) {
    out.extents[0] = height;
    out.extents[1] = width;
  }
  const auto channels = static_cast<std::size_t>(shape.extents[2]);
  TROUPE_CHECK(mean.size() <= 1 || mean.size() == channels, Code::invalid, "data.augment: normalize has ", mean.size(),
               " means, the images have ", channels, channels == 1 ? " channel" : " channels",
               "; give one for all channels or one for each");
  TROUPE_CHECK(padding < static_cast<std::uint32_t>(std::min(out.extents[0], out.extents[1])), Code::invalid,
               "data.augment: crop pads by ", padding, " pixels, the images are ", out.extents[0], " x ",
               out.extents[1], "; pad by less than that");
  return out;
}

DrawnAugmentation plain_augmentation(const Augmentation& augmentation, std::uint32_t height, std::uint32_t width) {
  DrawnAugmentation drawn;
  switch (augmentation.fit) {
    case Fit::none:
    case Fit::resize: drawn.window = whole_image(height, width); break;
    case Fit::center_crop: drawn.window = center_window(augmentation.part, height, width); break;
    case Fit::random_crop: drawn.window = center_window(kDefaultCenter, height, width); break;
  }
  return drawn;
}

DrawnAugmentation draw_augmentation(const Augmentation& augmentation, std::uint64_t seed, const Sample& sample,
                                    std::uint32_t height, std::uint32_t width) {
  DrawnAugmentation drawn = plain_augmentation(augmentation, height, width);
  if (augmentation.fit == Fit::random_crop)
    drawn.window = random_window({seed, sample, kWindow}, augmentation.part, height, width);
  if (augmentation.padding > 0) {
    Draws draws(seed, sample, kShift);
    const auto padding = static_cast<std::int32_t>(augmentation.padding);
    drawn.down = static_cast<std::int32_t>(draws.below(2 * augmentation.padding + 1)) - padding;
    drawn.right = static_cast<std::int32_t>(draws.below(2 * augmentation.padding + 1)) - padding;
  }
  if (augmentation.flip > 0) drawn.flipped = Draws(seed, sample, kFlip).unit() < augmentation.flip;
  if (augmentation.changes_colors()) {
    Draws draws(seed, sample, kColors);
    const auto factor = [&](double strength) { return static_cast<float>(draws.between(1 - strength, 1 + strength)); };
    drawn.brightness = factor(augmentation.brightness);
    drawn.contrast = factor(augmentation.contrast);
    drawn.saturation = factor(augmentation.saturation);
  }
  if (augmentation.cutout > 0) {
    Draws draws(seed, sample, kCutout);
    const bool fitted = augmentation.fit != Fit::none;
    drawn.cut_row = static_cast<std::int32_t>(draws.below(fitted ? augmentation.height : height));
    drawn.cut_column = static_cast<std::int32_t>(draws.below(fitted ? augmentation.width : width));
  }
  return drawn;
}

}  // namespace troupe
