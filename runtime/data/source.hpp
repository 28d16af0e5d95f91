#pragma once

// The room data: where samples come from (source.hpp) and which rank takes which of them (schedule.hpp, ledger.hpp,
// shares.hpp). It does not know how a batch reaches a device, nor what is trained on it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/io_threads.hpp"
#include "runtime/model/graph.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {

/// A sample of a source, in one of the passes over it. With the job's seed this is what everything random about the
/// sample is drawn from, so that it is the same at any rank, in any batch, and after a resume.
struct Sample {
  std::uint64_t index = 0;
  std::uint64_t epoch = 0;  // of a training set; of a test set always 0
  friend bool operator==(const Sample&, const Sample&) = default;
};

/// What goes into a batch.
struct FillRequest {
  std::span<const Sample> samples;  // for the first rows, at most batch->rows()
  std::uint64_t seed = 0;           // the job's
  const BatchLayout* batch = nullptr;
  std::byte* slot = nullptr;  // batch->size_bytes()
};

/// Told once when a batch is filled, or why it was not.
class FillDone {
 public:
  virtual ~FillDone() = default;
  virtual void filled(const Status& status) noexcept = 0;
};

/// A set of samples with named fields, read only. Threads: any, for any number of batches at once.
class Source {
 public:
  virtual ~Source() = default;
  virtual std::uint64_t count_samples() const noexcept = 0;
  /// What a sample has. Fields of f32 are given in bf16 too, where a batch has them so.
  virtual const std::vector<Field>& fields() const noexcept = 0;
  /// Decodes samples into the first rows of a batch, of its fields alone; what lies behind them is left alone. Returns
  /// at once, or, where `threads` has none, when it is done. `done` is told on any thread, maybe before this returns;
  /// until then the request's samples, batch and slot stay as they are.
  virtual void fill(const FillRequest& request, IoThreads& threads, std::shared_ptr<FillDone> done) const = 0;
  /// Memory the samples take.
  virtual std::uint64_t size_bytes() const noexcept = 0;
  /// Whether fill() reads files, for which it must have a thread wherever an actor calls it.
  virtual bool reads_files() const noexcept { return false; }
  /// The run is about to end: fills that wait for a file soon give up. Idempotent.
  virtual void stop_waiting() const noexcept {}
};

/// Throws Error{invalid}, naming `reader`, unless `wanted` is among the `offered`, of that shape and, but for bf16 in
/// the place of f32, of that type.
void check_offered(const Field& wanted, const std::vector<Field>& offered, const std::string& reader);

/// What a source checks first. Throws Error{invalid} when there are more samples than rows, one that does not exist, or
/// a field that `source` does not have.
void check_request(const Source& source, const FillRequest& request);

/// Writes the keys of the samples into the batch's field for them (kSampleKey, dropout.hpp), where it has one. Whoever
/// asks a source to fill a batch does this first: keys are no source's business.
void write_sample_keys(const FillRequest& request);

/// What most sources' fill() is: `decode` runs on one of `threads`, where there are any, and `done` is told of its end.
/// Whatever it throws is the batch's status.
void fill_on(IoThreads& threads, const FillRequest& request, std::shared_ptr<FillDone> done,
             std::function<void(const FillRequest&)> decode);

/// Fills a batch while the caller waits. Throws what went wrong.
void fill_now(const Source& source, const FillRequest& request);

/// A training set and a test set that belong together, and where they came from, for people.
struct DataSet {
  std::unique_ptr<Source> train;
  std::unique_ptr<Source> test;
  std::string origin;
};

/// The global, endless order of samples: epoch e is a permutation of all samples drawn from (seed, e); position p is
/// the p mod n-th of epoch p / n. It knows nothing of ranks, so any world size sees the same order. Threads: one.
class SampleOrder {
 public:
  SampleOrder(std::uint64_t count_samples, std::uint64_t seed);
  /// The samples at positions [first, first + out.size()).
  void fill(std::uint64_t first, std::span<Sample> out);

 private:
  /// An epoch's order. Two are kept: steps, and the ranks of a node whose batches one loader makes, lie on both sides
  /// of an epoch's end.
  struct Drawn {
    std::uint64_t epoch = ~std::uint64_t{0};
    std::vector<std::uint32_t> permutation;
  };
  const std::vector<std::uint32_t>& order_of(std::uint64_t epoch);

  std::uint64_t count_samples_;
  std::uint64_t seed_;
  std::array<Drawn, 2> drawn_;  // the one used last first
};

}  // namespace troupe
