#include "runtime/data/digits.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <numbers>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/data/detail/digit_strokes.hpp"

namespace troupe {
namespace {

using detail::Knot;
using detail::Stroke;
using detail::Style;

// How much handwriting varies: tuned until the images look handwritten, and a linear classifier (0.91) and the MLP
// 784-1000-1000-10 (0.98) do about as well as on MNIST (0.92, 0.98).
constexpr double kKnotJitter = 0.026;  // of a digit's height
constexpr double kBend = 0.072;        // of a digit's height: standard deviation of the elastic field
constexpr double kHaste = 0.32;        // standard deviation, between samples, of the log of both
constexpr double kTurn = 0.16;         // radians
constexpr double kSlant = 0.32;        // horizontal shear
constexpr double kMeanSlant = 0.10;
constexpr double kStretch = 0.22;    // log of width against height
constexpr double kBox = 20;          // pixels, like MNIST's
constexpr double kPen = 1.10;        // radius in pixels
constexpr double kPenSpread = 0.30;  // of its log
constexpr double kPressure = 0.16;   // of the radius along a stroke
constexpr double kGrain = 0.05;      // of the ink
constexpr int kPiecesPerKnot = 7;
constexpr int kGrid = 2;  // control points of the elastic field a side

/// The random numbers of one sample, in order.
class Dice {
 public:
  explicit Dice(std::uint64_t key) : key_(key), normal_key_(sub_key(key, 1)) {}
  double unit() { return random_unit(key_, next_++); }
  double between(double low, double high) { return low + (high - low) * unit(); }
  /// N(0, 1), clipped at 2.5 so that every sample stays readable.
  double normal() { return std::clamp(random_normal(normal_key_, next_++), -2.5, 2.5); }

 private:
  std::uint64_t key_;
  std::uint64_t normal_key_;  // a normal number takes two counters; with the same key they would repeat numbers of
                              // unit()
  std::uint64_t next_ = 0;
};

struct Vec {
  double x = 0;
  double y = 0;
};

/// A point that the pen passes.
struct Touch {
  Vec at;
  double radius = 0;
  bool starts = false;  // the pen was put down here
};

const Style& choose_style(Dice& dice, std::uint32_t digit) {
  const auto& styles = detail::styles_of(digit);
  double total = 0;
  for (const Style& style : styles) total += style.weight;
  double left = dice.between(0, total);
  for (const Style& style : styles) {
    left -= style.weight;
    if (left < 0) return style;
  }
  return styles.back();
}

/// The point at `t` in [0, 1] between b and c of a curve through a, b, c, d. Source: Catmull, Rom 1974.
Vec spline(Vec a, Vec b, Vec c, Vec d, double t) {
  const auto one = [t](double p, double q, double r, double s) {
    return q + 0.5 * t * (r - p + t * (2 * p - 5 * q + 4 * r - s + t * (3 * (q - r) + s - p)));
  };
  return {one(a.x, b.x, c.x, d.x), one(a.y, b.y, c.y, d.y)};
}

/// A smooth random field of shifts over the unit square: uniform cubic B-splines over a grid of random vectors.
class ElasticField {
 public:
  ElasticField(Dice& dice, double haste) {
    const double bend = kBend * haste * kRestore;
    for (Vec& shift : grid_) shift = {bend * dice.normal(), bend * dice.normal()};
  }
  Vec at(Vec p) const {
    const Weights wx{p.x}, wy{p.y};
    Vec sum;
    for (int j = 0; j < 4; ++j) {
      for (int i = 0; i < 4; ++i) {
        const Vec& shift = grid_[static_cast<std::size_t>((wy.first + j) * kSide + wx.first + i)];
        const double weight = wx.of[i] * wy.of[j];
        sum.x += weight * shift.x;
        sum.y += weight * shift.y;
      }
    }
    return sum;
  }

 private:
  static constexpr int kSide = kGrid + 3;
  static constexpr double kRestore = 2;  // smoothing halves the deviation
  struct Weights {
    explicit Weights(double place) {
      const double scaled = std::clamp(place, 0.0, 1.0) * kGrid;
      first = std::min(static_cast<int>(scaled), kGrid - 1);
      const double t = scaled - first, u = 1 - t;
      of = {u * u * u / 6, (3 * t * t * t - 6 * t * t + 4) / 6, (3 * u * u * u - 6 * u * u + 4) / 6, t * t * t / 6};
    }
    int first = 0;
    std::array<double, 4> of{};
  };
  std::array<Vec, kSide * kSide> grid_{};
};

/// Follows one stroke: jitters its knots and cuts the curve through them into short pieces.
void trace(const Stroke& stroke, Dice& dice, double haste, std::vector<Touch>& touches) {
  std::vector<Vec> knots;
  const double jitter = kKnotJitter * haste;
  for (const Knot& knot : stroke) knots.push_back({knot.x + jitter * dice.normal(), knot.y + jitter * dice.normal()});
  const double phase = dice.between(0, 2 * std::numbers::pi), waves = dice.between(2, 6),
               depth = kPressure * dice.normal();
  const auto press = [&](double along) { return 1 + depth * std::sin(phase + waves * along); };
  const std::size_t last = knots.size() - 1;
  touches.push_back({knots[0], press(0), true});
  for (std::size_t k = 0; k < last; ++k) {
    // At an end or a corner the curve begins straight: the missing neighbour is the mirrored one.
    const Vec b = knots[k], c = knots[k + 1];
    const Vec a = k == 0 || stroke[k].corner ? Vec{2 * b.x - c.x, 2 * b.y - c.y} : knots[k - 1];
    const Vec d = k + 1 == last || stroke[k + 1].corner ? Vec{2 * c.x - b.x, 2 * c.y - b.y} : knots[k + 2];
    for (int piece = 1; piece <= kPiecesPerKnot; ++piece) {
      const double t = static_cast<double>(piece) / kPiecesPerKnot;
      touches.push_back(
          {spline(a, b, c, d, t), press((static_cast<double>(k) + t) / static_cast<double>(last)), false});
    }
  }
}

/// Bends, rotates, slants and stretches the whole digit.
void deform(std::vector<Touch>& touches, Dice& dice, double haste) {
  const ElasticField field{dice, haste};
  const double turn = kTurn * dice.normal(), slant = kMeanSlant + kSlant * dice.normal(),
               stretch = std::exp(kStretch * dice.normal());
  for (Touch& touch : touches) {
    const Vec shift = field.at(touch.at);
    const double y = touch.at.y + shift.y - 0.5;
    const double x = (touch.at.x + shift.x - 0.5) * stretch - slant * y;
    touch.at = {std::cos(turn) * x - std::sin(turn) * y, std::sin(turn) * x + std::cos(turn) * y};
  }
}

/// Scales the digit, including the pen's width, into MNIST's box, and moves its center of mass to the middle of the
/// image.
void fit(std::vector<Touch>& touches, Dice& dice) {
  const double pen = kPen * std::exp(kPenSpread * dice.normal());
  Vec low{1e9, 1e9}, high{-1e9, -1e9};
  for (Touch& touch : touches) {
    touch.radius *= pen;
    low = {std::min(low.x, touch.at.x), std::min(low.y, touch.at.y)};
    high = {std::max(high.x, touch.at.x), std::max(high.y, touch.at.y)};
  }
  const double scale = (kBox * dice.between(0.92, 1.0) - 2 * pen) / std::max({high.x - low.x, high.y - low.y, 0.1});
  Vec centre;
  double mass = 1e-9;
  for (std::size_t i = 0; i < touches.size(); ++i) {
    touches[i].at = {touches[i].at.x * scale, touches[i].at.y * scale};
    if (touches[i].starts) continue;
    const Vec from = touches[i - 1].at, to = touches[i].at;
    const double weight = std::hypot(to.x - from.x, to.y - from.y) * touches[i].radius;
    centre = {centre.x + weight * (from.x + to.x) / 2, centre.y + weight * (from.y + to.y) / 2};
    mass += weight;
  }
  constexpr double kMiddle = (kDigitSide - 1) / 2.0;
  for (Touch& touch : touches)
    touch.at = {touch.at.x - centre.x / mass + kMiddle, touch.at.y - centre.y / mass + kMiddle};
}

using Distances = std::array<float, kDigitPixels>;

/// Lowers each pixel's distance to the ink's edge (negative inside) to that of the piece between two points.
void draw_piece(const Touch& from, const Touch& to, double reach, Distances& distances) {
  const double r = std::max(from.radius, to.radius) + reach;
  const auto first = [r](double a, double b) { return std::max(0, static_cast<int>(std::ceil(std::min(a, b) - r))); };
  const auto last = [r](double a, double b) {
    return std::min(static_cast<int>(kDigitSide) - 1, static_cast<int>(std::floor(std::max(a, b) + r)));
  };
  const double dx = to.at.x - from.at.x, dy = to.at.y - from.at.y, scale = 1 / std::max(dx * dx + dy * dy, 1e-9);
  const int first_x = first(from.at.x, to.at.x), last_x = last(from.at.x, to.at.x);
  const int last_y = last(from.at.y, to.at.y);
  for (int y = first(from.at.y, to.at.y); y <= last_y; ++y) {
    for (int x = first_x; x <= last_x; ++x) {
      const double px = x - from.at.x, py = y - from.at.y;
      const double t = std::clamp((px * dx + py * dy) * scale, 0.0, 1.0);
      const double ex = px - t * dx, ey = py - t * dy;
      const double distance = std::sqrt(ex * ex + ey * ey) - (from.radius + t * (to.radius - from.radius));
      float& pixel = distances[static_cast<std::size_t>(y) * kDigitSide + static_cast<std::size_t>(x)];
      pixel = std::min(pixel, static_cast<float>(distance));
    }
  }
}

/// Turns points into pixels with soft edges and a little grain.
void ink(const std::vector<Touch>& touches, Dice& dice, std::span<std::uint8_t, kDigitPixels> image) {
  const double softness = dice.between(0.5, 0.9), strength = dice.between(0.92, 1.08);
  Distances distances;
  distances.fill(1e9F);
  for (std::size_t i = 1; i < touches.size(); ++i) {
    if (!touches[i].starts) draw_piece(touches[i - 1], touches[i], softness, distances);
  }
  const std::uint64_t grain = static_cast<std::uint64_t>(dice.unit() * 0x1p53);
  for (std::size_t i = 0; i < kDigitPixels; ++i) {
    image[i] = 0;
    if (distances[i] >= softness) continue;
    const double noise = kGrain * (random_unit(grain, 2 * i) + random_unit(grain, 2 * i + 1) - 1);
    const double cover = std::clamp((softness - distances[i]) / (2 * softness), 0.0, 1.0) * (strength + noise);
    image[i] = static_cast<std::uint8_t>(std::clamp(255 * cover, 0.0, 255.0));
  }
}

/// Divides the drawing among threads.
class Drawing {
 public:
  Drawing(std::uint64_t seed, std::uint64_t first, std::span<std::uint8_t> images, std::span<std::uint8_t> labels)
      : seed_(seed), first_(first), images_(images), labels_(labels) {}

  /// Draws the next few samples that no thread has taken; false: all are taken.
  bool work() {
    const std::uint64_t begin = taken_.fetch_add(kChunk);
    if (begin >= labels_.size()) return false;
    const std::uint64_t end = std::min<std::uint64_t>(begin + kChunk, labels_.size());
    for (std::uint64_t i = begin; i < end; ++i) {
      labels_[i] = draw_digit(seed_, first_ + i, images_.subspan(i * kDigitPixels).first<kDigitPixels>());
    }
    done_.fetch_add(end - begin);
    return true;
  }
  void stop() noexcept { taken_.store(labels_.size()); }
  std::uint64_t done() const noexcept { return done_.load(); }

 private:
  static constexpr std::uint64_t kChunk = 256;
  std::uint64_t seed_;
  std::uint64_t first_;
  std::span<std::uint8_t> images_;
  std::span<std::uint8_t> labels_;
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<std::uint64_t> done_{0};
};

}  // namespace

std::uint8_t draw_digit(std::uint64_t seed, std::uint64_t index, std::span<std::uint8_t, kDigitPixels> image) {
  Dice dice{sub_key(seed, index)};
  const auto label = static_cast<std::uint32_t>(dice.unit() * 10);
  const double haste = std::exp(kHaste * dice.normal());
  std::vector<Touch> touches;
  for (const Stroke& stroke : choose_style(dice, label).strokes) trace(stroke, dice, haste, touches);
  deform(touches, dice, haste);
  fit(touches, dice);
  ink(touches, dice, image);
  return static_cast<std::uint8_t>(label);
}

void draw_digits(std::uint64_t seed, std::uint64_t first, std::span<std::uint8_t> images,
                 std::span<std::uint8_t> labels, std::uint32_t threads, const DataProgress& progress) {
  TROUPE_CHECK(images.size() == labels.size() * kDigitPixels, Code::invalid, "room for ", images.size(), " pixels, ",
               labels.size(), " digits need ", labels.size() * kDigitPixels);
  Drawing drawing{seed, first, images, labels};
  struct Stop {  // if progress throws, the other threads end early and are joined
    Drawing& drawing;
    ~Stop() { drawing.stop(); }
  };
  std::vector<std::jthread> others;
  const Stop stop{drawing};
  while (others.size() + 1 < threads) {
    try {
      others.emplace_back([&drawing] {
        while (drawing.work()) continue;
      });
    } catch (const std::system_error&) {
      break;  // no more threads can be started: the existing ones do it
    }
  }
  while (drawing.work()) {
    if (progress) progress(drawing.done(), labels.size(), "drawing digits");
  }
}

std::uint32_t count_allowed_cores() noexcept {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return std::max(1U, static_cast<std::uint32_t>(CPU_COUNT(&cores)));
}

}  // namespace troupe
