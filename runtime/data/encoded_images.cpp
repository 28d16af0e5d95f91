#include "runtime/data/encoded_images.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/detail/read_at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/data/byte_images.hpp"
#include "runtime/data/detail/encoded_format.hpp"
#include "runtime/data/image_decoder.hpp"
#include "runtime/data/staged_files.hpp"
#include "runtime/data/watched_files.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t kMostFileBytes = std::uint64_t{256} << 20;
/// More at one rank mean that the images are gone, not that some are broken.
constexpr std::uint64_t kMostSkippedInARow = 1000;
constexpr std::uint64_t kMostNotes = 10;  // of files that are skipped; after that only their number is reported, now
                                          // and then

constexpr std::uint64_t kMostMeasured = 100;  // images, until one is found whose size is known

std::string errno_fault(const char* what) { return text(what, ": ", std::strerror(errno)); }

}  // namespace

void PathFiles::add(std::string_view path) {
  paths_ += path;
  ends_.push_back(paths_.size());
}

std::string PathFiles::name(std::uint64_t image) const {
  const std::uint64_t first = image == 0 ? 0 : ends_.at(image - 1);
  return paths_.substr(first, ends_.at(image) - first);
}

std::string PathFiles::read(std::uint64_t image, std::vector<std::uint8_t>& to) const {
  const std::string path = name(image);
  const Fd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // opening a pipe in its place must not wait
  if (!fd) return errno_fault("cannot be opened");
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return "is not a regular file";
  const auto size = static_cast<std::uint64_t>(facts.st_size);
  if (size > kMostFileBytes) return text("has ", size, " bytes, more than the ", kMostFileBytes, " that are taken");
  to.resize(size);
  const ssize_t got = read_at(fd, 0, std::as_writable_bytes(std::span{to}));
  if (got < 0) return errno_fault("cannot be read");
  return static_cast<std::uint64_t>(got) < size ? "became shorter while it was read" : std::string{};
}

/// The memory of a thread, reused from image to image of a batch.
struct EncodedImages::Workplace {
  std::vector<std::uint8_t> bytes;
  ImageDecoder decoder;
  ImageAugmenter::Scratch scratch;
};

EncodedImages::EncodedImages(EncodedImageSet set, EncodedImageOptions options)
    : set_(std::move(set)), options_(std::move(options)), augmenter_(options_.augmentation, 3, options_.training) {
  TROUPE_CHECK(set_.files->count() > 0, Code::invalid, "a set of images has none");
  const std::uint64_t told = set_.boxes ? set_.boxes->count() : set_.labels.size();
  TROUPE_CHECK(set_.files->count() == told, Code::invalid, set_.files->count(), " images, but ",
               set_.boxes ? "the boxes of " : "the labels of ", told);
  for (std::uint64_t i = 0; i < set_.labels.size(); ++i) {
    TROUPE_CHECK(set_.labels[i] >= 0 && static_cast<std::uint32_t>(set_.labels[i]) < set_.classes, Code::invalid,
                 set_.files->name(i), ": label ", set_.labels[i], " is not one of the training set's ", set_.classes,
                 " classes");
  }
  if (options_.patience > options_.patience.zero())
    set_.files = std::make_unique<WatchedFiles>(std::move(set_.files), options_.patience);
  if (options_.stage.stage != Stage::none)
    set_.files = std::make_unique<StagedFiles>(std::move(set_.files), options_.stage);
  fields_ = image_fields(measure_first(), set_.classes, options_.augmentation);
  if (!set_.boxes) return;
  fields_.pop_back();  // the label
  for (Field& field : set_.boxes->fields()) fields_.push_back(std::move(field));
}

/// The size of the first image, if it must be the size of all; where broken files are skipped, of the first that is not
/// broken.
Shape EncodedImages::measure_first() const {
  if (options_.augmentation.fit != Fit::none) return {{1, 1, 3}};
  Workplace first;
  const std::uint64_t tries = options_.broken == Broken::skip ? std::min(kMostMeasured, set_.files->count()) : 1;
  std::string faults;
  for (std::uint64_t image = 0; image < tries; ++image) {
    std::string fault = set_.files->read(image, first.bytes);
    if (fault.empty()) fault = first.decoder.open(first.bytes);
    if (fault.empty()) return {{first.decoder.height(), first.decoder.width(), 3}};
    if (faults.empty()) faults = std::move(fault);
  }
  fail(Code::invalid,
       text(set_.files->name(0), ": ", faults, "; it is the first image, which sets the size of all",
            tries > 1 ? text(", and the next ", tries - 1, " are broken, too") : std::string{},
            ": mend or remove it, or add an operation that brings images to a size to data.augment, such as "
            "resize:32"));
}

/// Decodes one sample into its row. Returns what is wrong with it; then the row may be partly written.
std::string EncodedImages::write_image(const FillRequest& request, std::size_t row, const BatchLayout::Entry& entry,
                                       Workplace& workplace) const {
  const Sample& sample = request.samples[row];
  if (set_.boxes)
    if (std::string fault = set_.boxes->fault_of(sample.index); !fault.empty()) return fault;
  if (std::string fault = set_.files->read(sample.index, workplace.bytes); !fault.empty()) return fault;
  ImageDecoder& decoder = workplace.decoder;
  if (std::string fault = decoder.open(workplace.bytes); !fault.empty()) return fault;
  if (set_.boxes) {
    std::string fault = set_.boxes->find_size_fault(sample.index, decoder.height(), decoder.width());
    if (!fault.empty()) return fault;
  }
  const std::vector<std::uint32_t>& wanted = entry.field.shape.extents;
  if (options_.augmentation.fit == Fit::none && (decoder.height() != wanted[0] || decoder.width() != wanted[1])) {
    return text("is ", decoder.height(), " x ", decoder.width(), " pixels large, the first image is ", wanted[0], " x ",
                wanted[1],
                ": add an operation that brings images to a size to data.augment, such as resize:", wanted[0]);
  }
  const DrawnAugmentation drawn = augmenter_.draw(request.seed, sample, decoder.height(), decoder.width());
  const bool planes = options_.augmentation.fit != Fit::none && decoder.has_planes();
  ImageDecoder::Decoded image = planes ? decoder.decode_planes(drawn.window, wanted[0], wanted[1])
                                       : decoder.decode(drawn.window, wanted[0], wanted[1]);
  if (!image.fault.empty()) return std::move(image.fault);
  DrawnAugmentation in_pixels = drawn;
  in_pixels.window = image.window;
  std::byte* const to = request.slot + entry.offset + row * entry.row_bytes();
  if (planes)
    augmenter_.write(image.planes, in_pixels, entry.field.dtype, to, workplace.scratch);
  else
    augmenter_.write(image.pixels, in_pixels, entry.field.dtype, to, workplace.scratch);
  return {};
}

void EncodedImages::take_broken(std::uint64_t image, const std::string& fault) const {
  const std::string what = text(set_.files->name(image), ": ", fault);
  TROUPE_CHECK(options_.broken == Broken::skip, Code::invalid, what,
               "; mend or remove it, or continue without such files: data.broken = \"skip\"");
  const std::uint64_t count = skipped_.fetch_add(1, std::memory_order_relaxed) + 1;
  const std::uint64_t in_a_row = skipped_in_a_row_.fetch_add(1, std::memory_order_relaxed) + 1;
  TROUPE_CHECK(in_a_row < kMostSkippedInARow, Code::environment, "the last ", in_a_row,
               " images were all broken, so nothing is learnt any more: mount or restore their folder, and go on with "
               "--resume auto. The last was ",
               what);
  if (!options_.note) return;
  if (count <= kMostNotes) options_.note(text(what, "; skipped"));
  if (count > kMostNotes && (count & (count - 1)) == 0) options_.note(text(count, " broken images skipped so far"));
}

void EncodedImages::write_labels(const FillRequest& request, const BatchLayout::Entry& entry,
                                 const std::vector<bool>& broken) const {
  auto* const to = reinterpret_cast<std::int32_t*>(request.slot + entry.offset);
  for (std::size_t row = 0; row < request.samples.size(); ++row)
    to[row] = broken[row] ? -1 : set_.labels[request.samples[row].index];
}

void EncodedImages::write_boxes(const FillRequest& request, const std::vector<bool>& broken) const {
  for (std::size_t row = 0; row < request.samples.size(); ++row) {
    const Sample& sample = request.samples[row];
    std::vector<BoxedObject> objects;
    if (!broken[row] && set_.boxes->fault_of(sample.index).empty()) {
      const std::uint32_t height = set_.boxes->height_of(sample.index), width = set_.boxes->width_of(sample.index);
      objects = moved_objects(set_.boxes->objects_of(sample.index), options_.augmentation,
                              augmenter_.draw(request.seed, sample, height, width), height, width);
    }
    for (const BatchLayout::Entry& entry : request.batch->entries())
      set_.boxes->write(objects, entry, request.slot + entry.offset + row * entry.row_bytes());
  }
}

void EncodedImages::fill_batch(const FillRequest& request) const {
  check_request(*this, request);
  std::vector<bool> broken(request.samples.size());
  Workplace workplace;
  for (const BatchLayout::Entry& entry : request.batch->entries()) {
    if (entry.field.name != kImage) continue;
    for (std::size_t row = 0; row < request.samples.size(); ++row) {
      const std::string fault = write_image(request, row, entry, workplace);
      if (fault.empty()) {
        skipped_in_a_row_.store(0, std::memory_order_relaxed);
        continue;
      }
      take_broken(request.samples[row].index, fault);
      broken[row] = true;
      std::memset(request.slot + entry.offset + row * entry.row_bytes(), 0, entry.row_bytes());
    }
  }
  if (set_.boxes) return write_boxes(request, broken);
  for (const BatchLayout::Entry& entry : request.batch->entries())
    if (entry.field.name == kLabel) write_labels(request, entry, broken);
}

void EncodedImages::fill(const FillRequest& request, IoThreads& threads, std::shared_ptr<FillDone> done) const {
  fill_on(threads, request, std::move(done), [this](const FillRequest& what) { fill_batch(what); });
}

DataSet detail::encoded_set(EncodedImageSet train, EncodedImageSet test, const DataOptions& options) {
  const auto source = [&](EncodedImageSet images, bool training) {
    return std::make_unique<EncodedImages>(
        std::move(images), EncodedImageOptions{options.augmentation, training, options.broken, options.note,
                                               options.stage, options.patience});
  };
  DataSet set;
  set.train = source(std::move(train), true);
  set.test = source(std::move(test), false);
  return set;
}

std::uint32_t detail::count_label_classes(const std::vector<std::int32_t>& labels, const std::string& where) {
  TROUPE_CHECK(!labels.empty(), Code::invalid, where, ": has no images");
  std::vector<bool> occurs(static_cast<std::size_t>(*std::ranges::max_element(labels)) + 1);
  for (const std::int32_t label : labels) occurs[static_cast<std::size_t>(label)] = true;
  const auto gap = std::ranges::find(occurs, false);
  TROUPE_CHECK(gap == occurs.end(), Code::invalid, where, ": there is a label ", occurs.size() - 1, ", but no label ",
               gap - occurs.begin(), "; number the classes from 0 without gaps");
  return static_cast<std::uint32_t>(occurs.size());
}

}  // namespace troupe
