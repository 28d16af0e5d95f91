#include "tools/bench/data/command.hpp"

#include <time.h>

#include <atomic>
#include <iostream>
#include <memory>
#include <semaphore>

#include <nlohmann/json.hpp>

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/data/augment.hpp"
#include "runtime/data/byte_images.hpp"
#include "tools/bench/data/sets.hpp"
#include "tools/bench/options.hpp"

namespace troupe::bench {
namespace {

constexpr std::chrono::seconds kBatchPatience{60};

/// Of this process, so far.
double processor_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

/// A slot with its batch, which is filled again and again.
class FilledSlot final : public FillDone {
 public:
  FilledSlot(const BatchLayout& batch, std::counting_semaphore<>& free)
      : batch_(batch), free_(free), bytes_(batch.size_bytes()), samples_(batch.rows()) {}

  void filled(const Status& status) noexcept override {
    status_ = status;
    busy_.store(false, std::memory_order_release);
    free_.release();
  }
  bool busy() const noexcept { return busy_.load(std::memory_order_acquire); }
  void check() const { TROUPE_CHECK(status_.ok(), status_.code(), status_.text()); }
  /// A request for the next samples of `order`, from position `first` on.
  FillRequest request(SampleOrder& order, std::uint64_t first) {
    busy_.store(true, std::memory_order_relaxed);
    order.fill(first, samples_);
    return {samples_, 7, &batch_, bytes_.data()};
  }

 private:
  const BatchLayout& batch_;
  std::counting_semaphore<>& free_;
  std::vector<std::byte> bytes_;
  std::vector<Sample> samples_;
  Status status_;
  std::atomic<bool> busy_{false};
};

/// Fills batches from `source`, like a loader that always has a free slot.
class Filler {
 public:
  Filler(const Source& source, const DataCase& what, const BatchLayout& batch, const rtrun::Signals& signals)
      : signals_(signals),
        source_(source),
        batch_(batch),
        threads_("data", what.threads),
        free_(static_cast<std::ptrdiff_t>(what.threads) * 2 + 1),
        order_(source.count_samples(), 7) {
    for (std::uint32_t i = 0; i < what.threads * 2 + 1; ++i)
      slots_.push_back(std::make_shared<FilledSlot>(batch, free_));
  }
  /// Waits for fills that are in progress.
  ~Filler() { threads_.close(); }

  /// Samples a second.
  struct Rate {
    double of_time = 0;
    double of_processor_time = 0;  // of all threads; other programs on the machine change it little
  };
  /// Over `seconds`. Throws Error{aborted} when a signal comes, Error{timeout} when nothing does.
  Rate measure(double seconds) {
    const Clock::time_point begin = Clock::now();
    const double processor_begin = processor_seconds();
    std::uint64_t samples = 0;
    std::chrono::duration<double> taken{};
    do {
      TROUPE_CHECK(signals_.take() == 0, Code::aborted, "stopped by a signal");
      TROUPE_CHECK(free_.try_acquire_for(kBatchPatience), Code::timeout, "no batch has come for ",
                   kBatchPatience.count(), " s; is this machine very busy?");
      const auto slot = std::ranges::find_if(slots_, [](const auto& one) { return !one->busy(); });
      (*slot)->check();
      source_.fill((*slot)->request(order_, position_), threads_, *slot);
      position_ += batch_.rows();
      samples += batch_.rows();
      taken = Clock::now() - begin;
    } while (taken.count() < seconds);
    const auto count = static_cast<double>(samples);
    return {count / taken.count(), count / (processor_seconds() - processor_begin)};
  }

 private:
  const rtrun::Signals& signals_;
  const Source& source_;
  const BatchLayout& batch_;
  IoThreads threads_;
  std::counting_semaphore<> free_;
  SampleOrder order_;
  std::vector<std::shared_ptr<FilledSlot>> slots_;
  std::uint64_t position_ = 0;
};

}  // namespace

DataCommand::DataCommand(CLI::App& app)
    : data_(app.add_subcommand("data", "Reading data: samples/s from a source to normalized, augmented batches")) {
  Options options{*data_};
  options
      .choice("--case", case_.what,
              "mnist: 60,000 images of 28 x 28 bytes in memory, normalized; cifar: 50,000 of 32 x 32 x 3, padded, "
              "cropped, mirrored, normalized; jpeg: photographs of 500 x 375 in memory, decoded, cropped at random, "
              "resized "
              "to 224 x 224, mirrored, normalized",
              {"mnist", "cifar", "jpeg"})
      ->capture_default_str();
  options.choice("--dtype", case_.dtype, "f32 or bf16", {"f32", "bf16"})->capture_default_str();
  data_->add_option("--augment", case_.augment,
                    "An operation of data.augment, in place of the usual ones (may be repeated)");
  data_->add_option("--folder", case_.folder, "For jpeg: a folder of .jpg files to read instead of generated images");
  options
      .number("--threads", case_.threads, "Threads that decode; 0: decode on the thread that needs the batch", 0, 64)
      ->capture_default_str();
  options.number("--batch", case_.batch, "Samples per batch", 1, 100000)->capture_default_str();
  options.number("--rounds", case_.rounds, "Rounds; each gives one figure", 1, 1000)->capture_default_str();
  options.number("--seconds", case_.seconds, "Duration of a round", 0.01, 3600.0)->capture_default_str();
}

int DataCommand::run(Blocking&, const rtrun::Signals& signals) const {
  const MeasuredSet set = make_measured_set(case_);
  std::vector<Field> fields = set.source->fields();
  for (Field& field : fields)
    if (field.dtype == DType::f32 && case_.dtype == "bf16") field.dtype = DType::bf16;
  const BatchLayout batch{case_.batch, fields};
  Filler filler{*set.source, case_, batch, signals};
  filler.measure(case_.seconds);  // memory is touched, caches are filled
  std::vector<double> rates, processor_rates;
  for (std::uint32_t round = 0; round < case_.rounds; ++round) {
    const Filler::Rate rate = filler.measure(case_.seconds);
    rates.push_back(std::round(rate.of_time));
    processor_rates.push_back(std::round(rate.of_processor_time));
  }
  const nlohmann::ordered_json line{{"bench", "data"},
                                    {"impl", "ours-" + case_.dtype},
                                    {"case", set.name},
                                    {"augment", set.augment},
                                    {"threads", case_.threads},
                                    {"unit", "samples/s"},
                                    {"v", rates},
                                    {"per_processor_second", processor_rates}};
  std::cout << line.dump() << std::endl;
  return 0;
}

}  // namespace troupe::bench
