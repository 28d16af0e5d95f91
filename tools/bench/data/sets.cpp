#include "tools/bench/data/sets.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/data/augment.hpp"
#include "runtime/data/byte_images.hpp"
#include "runtime/data/encoded_images.hpp"
#include "tools/bench/data/jpeg.hpp"

namespace troupe::bench {
namespace {

/// Encoded images in memory, so that the disk is not measured.
class MemoryFiles final : public EncodedFiles {
 public:
  void add(std::string name, std::vector<std::uint8_t> bytes) {
    size_bytes_ += bytes.size();
    images_.push_back({std::move(name), std::move(bytes)});
  }
  std::uint64_t count() const noexcept override { return images_.size(); }
  std::string name(std::uint64_t image) const override { return images_.at(image).name; }
  std::string read(std::uint64_t image, std::vector<std::uint8_t>& to) const override {
    to = images_.at(image).bytes;
    return {};
  }
  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }

 private:
  struct Image {
    std::string name;
    std::vector<std::uint8_t> bytes;
  };
  std::vector<Image> images_;
  std::uint64_t size_bytes_ = 0;
};

/// Waves with noise, which compress about as well as a photograph: some 75 KB at quality 90.
std::vector<std::uint8_t> draw_photograph(std::uint32_t height, std::uint32_t width, std::uint64_t number) {
  std::vector<std::uint8_t> pixels;
  for (std::uint32_t y = 0; y < height; ++y) {
    for (std::uint32_t x = 0; x < width; ++x) {
      const double noise = 12 * random_normal(number, std::uint64_t{y} * width + x);
      for (int c = 0; c < 3; ++c)
        pixels.push_back(static_cast<std::uint8_t>(std::clamp(
            127 + 60 * std::sin(0.03 * x + c + static_cast<double>(number)) * std::cos(0.05 * y) + noise, 0.0, 255.0)));
    }
  }
  return pixels;
}

std::unique_ptr<MemoryFiles> drawn_photographs(std::uint32_t count) {
  constexpr std::uint32_t kHeight = 375, kWidth = 500;
  constexpr int kQuality = 90;
  auto files = std::make_unique<MemoryFiles>();
  for (std::uint32_t i = 0; i < count; ++i)
    files->add(text("drawn ", i), encode_jpeg(draw_photograph(kHeight, kWidth, i), kHeight, kWidth, kQuality));
  return files;
}

std::unique_ptr<MemoryFiles> photographs_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator{folder})
    if (entry.path().extension() == ".jpg") paths.push_back(entry.path().string());
  TROUPE_CHECK(!paths.empty(), Code::invalid, folder, ": holds no .jpg file");
  std::ranges::sort(paths);
  PathFiles on_disk;
  for (const std::string& path : paths) on_disk.add(path);
  auto files = std::make_unique<MemoryFiles>();
  for (std::uint64_t i = 0; i < on_disk.count(); ++i) {
    std::vector<std::uint8_t> bytes;
    const std::string fault = on_disk.read(i, bytes);
    TROUPE_CHECK(fault.empty(), Code::invalid, paths[i], ": ", fault);
    files->add(paths[i], std::move(bytes));
  }
  return files;
}

std::unique_ptr<Source> photographs(const DataCase& what, const std::vector<std::string>& augment) {
  constexpr std::uint32_t kPhotographs = 64;
  auto files = what.folder.empty() ? drawn_photographs(kPhotographs) : photographs_in(what.folder);
  EncodedImageSet set{.labels = std::vector<std::int32_t>(files->count()), .classes = 2};
  set.files = std::move(files);
  return std::make_unique<EncodedImages>(std::move(set), EncodedImageOptions{parse_augmentation(augment)});
}

}  // namespace

std::unique_ptr<Source> random_images(const RandomImages& what, const std::vector<std::string>& augment) {
  ByteImageSet set{.height = what.side, .width = what.side, .channels = what.channels, .classes = what.classes};
  set.pixels.resize(std::size_t{what.count} * what.side * what.side * what.channels);
  for (std::size_t i = 0; i < set.pixels.size(); ++i) set.pixels[i] = static_cast<std::uint8_t>(mix(i));
  for (std::uint32_t i = 0; i < what.count; ++i) set.labels.push_back(static_cast<std::uint8_t>(i % 10));
  return std::make_unique<ByteImages>(std::move(set), parse_augmentation(augment), true);
}

MeasuredSet make_measured_set(const DataCase& what) {
  const auto chosen = [&](std::vector<std::string> usual) { return what.augment.empty() ? usual : what.augment; };
  MeasuredSet set;
  if (what.what == "mnist") {
    set.name = text("idx ", what.threads, " workers");
    set.augment = chosen({"normalize:0.1307,0.3081"});
    set.source = random_images({.count = 60'000, .side = 28, .channels = 1, .classes = 10}, set.augment);
  } else if (what.what == "jpeg") {
    set.name = text("jpeg 500x375 -> 224 crop+flip+norm, ", what.threads, " workers");
    set.augment = chosen({"random_crop:224", "flip", "normalize:0.485,0.456,0.406,0.229,0.224,0.225"});
    set.source = photographs(what, set.augment);
  } else {
    set.name = text("cifar ", what.threads, " workers");
    set.augment = chosen({"crop:4", "flip", "normalize:0.4914,0.4822,0.4465,0.247,0.2435,0.2616"});
    set.source = random_images({.count = 50'000, .side = 32, .channels = 3, .classes = 10}, set.augment);
  }
  return set;
}

}  // namespace troupe::bench
