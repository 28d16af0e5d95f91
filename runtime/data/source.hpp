#pragma once

// The room data: sources of samples (source.hpp), and which rank takes which samples (schedule.hpp, sample_ledger.hpp,
// load_balancer.hpp). It does not know how a batch reaches a device, nor what is trained on it.

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

/// A sample of a source, in one pass over it. All random choices about the sample depend on this and the job's seed, so
/// they are the same at any rank, in any batch, and after a resume.
struct Sample {
  std::uint64_t index = 0;
  std::uint64_t epoch = 0;  // for a training set; 0 for a test set
  friend bool operator==(const Sample&, const Sample&) = default;
};

/// The content of a batch.
struct FillRequest {
  std::span<const Sample> samples;  // for the first rows; at most batch->rows()
  std::uint64_t seed = 0;           // the job's
  const BatchLayout* batch = nullptr;
  std::byte* slot = nullptr;  // batch->size_bytes()
};

/// Called once when a batch is filled, or with the reason why it was not.
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
  /// The fields of a sample. Fields of f32 are also given in bf16, if a batch has them so.
  virtual const std::vector<Field>& fields() const noexcept = 0;
  /// Decodes samples into the first rows of a batch, for its fields only; later rows are not changed. Returns at once,
  /// or, without `threads`, when it is done. `done` is called on any thread, maybe before this returns; until then the
  /// request's samples, batch and slot must not change.
  virtual void fill(const FillRequest& request, IoThreads& threads, std::shared_ptr<FillDone> done) const = 0;
  /// The memory of the samples.
  virtual std::uint64_t size_bytes() const noexcept = 0;
  /// Whether fill() reads files; then an actor may only call it with a thread.
  virtual bool reads_files() const noexcept { return false; }
  /// The run is about to end: fills that wait for a file soon give up. Idempotent.
  virtual void stop_waiting() const noexcept {}
};

/// Throws Error{invalid}, which names `reader`, unless `wanted` is among the `offered` fields with the same shape and
/// type (bf16 instead of f32 is allowed).
void check_offered(const Field& wanted, const std::vector<Field>& offered, const std::string& reader);

/// The first check of a source. Throws Error{invalid} if there are more samples than rows, a sample that does not
/// exist, or a field that `source` does not have.
void check_request(const Source& source, const FillRequest& request);

/// Writes the keys of the samples into the batch's field for them (kSampleKey, dropout.hpp), if it has one. The caller
/// of fill() does this first, because sources know nothing of keys.
void write_sample_keys(const FillRequest& request);

/// The usual implementation of fill(): `decode` runs on one of `threads`, if there are any, and then `done` is called.
/// An exception of `decode` becomes the batch's status.
void fill_on(IoThreads& threads, const FillRequest& request, std::shared_ptr<FillDone> done,
             std::function<void(const FillRequest&)> decode);

/// Fills a batch while the caller waits. Throws the error of filling it.
void fill_now(const Source& source, const FillRequest& request);

/// A training set and a test set that belong together, and their origin, for people.
struct DataSet {
  std::unique_ptr<Source> train;
  std::unique_ptr<Source> test;
  std::string origin;
};

/// The global, endless order of samples: epoch e is a permutation of all samples that depends on (seed, e); position p
/// is number p mod n of epoch p / n. It is independent of ranks, so any world size has the same order. Threads: one.
class SampleOrder {
 public:
  SampleOrder(std::uint64_t count_samples, std::uint64_t seed);
  /// The samples at positions [first, first + out.size()).
  void fill(std::uint64_t first, std::span<Sample> out);

 private:
  /// An epoch's order. Two are kept, because a step, and the ranks of a node whose batches one loader makes, can be on
  /// both sides of an epoch's end.
  struct Drawn {
    std::uint64_t epoch = ~std::uint64_t{0};
    std::vector<std::uint32_t> permutation;
  };
  const std::vector<std::uint32_t>& order_of(std::uint64_t epoch);

  std::uint64_t count_samples_;
  std::uint64_t seed_;
  std::array<Drawn, 2> drawn_;  // most recently used first
};

}  // namespace troupe
