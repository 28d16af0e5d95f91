#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "devices/cuda/cublaslt_api.hpp"
#include "devices/cuda/gpu.hpp"
#include "runtime/compute/library_stream.hpp"

namespace troupe::cuda {

/// A matrix in cuBLASLt's terms: column after column.
struct ColumnMajor {
  Stored type = Stored::f32;
  std::uint32_t alignment = 0;          // of its address, and of each matrix of a batch: a power of two, at most 256
  std::uint64_t rows = 0, columns = 0;  // as they are stored
  std::int64_t leading = 0;             // elements from one column to the next
  std::int64_t batch_stride = 0;        // elements from one matrix to the next
  friend auto operator<=>(const ColumnMajor&, const ColumnMajor&) = default;
};

/// What happens to the sums of a product before they are stored.
struct ProductEpilogue {
  lt::Epilogue kind = lt::Epilogue::none;
  const void* vector = nullptr;  // the bias, or where the sums of B go; of D's type
  const void* mask =
      nullptr;  // of a ReLU (runtime/model/fused_relu_gradients.hpp), written or read; only without a batch
  friend auto operator<=>(const ProductEpilogue&, const ProductEpilogue&) = default;
};

/// A product without its addresses: D = op(A) op(B), for each matrix of a batch.
struct ProductForm {
  ColumnMajor a, b, d;
  bool transposes_a = false, transposes_b = false;
  std::uint32_t batches = 1;
  ProductEpilogue epilogue{};
  friend auto operator<=>(const ProductForm&, const ProductForm&) = default;
};

/// How a product is computed: what cuBLASLt has chosen for a form. Lives as long as the library.
struct ProductPlan;

/// A product that is enqueued: plain data, by which replayed work is recognized. d = alpha op(a) op(b) + beta d.
struct ProductCall {
  const ProductPlan* plan;
  const void* a;
  const void* b;
  void* d;
  std::byte* workspace;  // of workspace_bytes(), which no other stream uses at that time
  float alpha, beta;
};

/// Which library a device computes products by.
struct ProductOptions {
  std::string choice;  // cublaslt: it must be there; own: kernels of ours; empty: what is found
  std::string file;    // of the library; empty: that of the driver's version, or the one before
  bool tf32 = false;   // operands in f32 may be rounded to TF32
};

/// Products of matrices by cuBLASLt, opened at run time. An algorithm is chosen once for each form, when work of that
/// form is enqueued for the first time, and never in a recorded step. Threads: any.
///
/// What it enqueues does not check the stream's flag: it also runs on a stream that has failed, with whatever is in its
/// operands. That is harmless as long as its results are in memory that only the same stream reads: the kernels that
/// copy them to where others read them are ours, and then do nothing. So its results may never be in memory that
/// another rank may still be reading for the step before, as gradients may be (ReplicaMemory::owns_gradients).
class ProductLibrary final : public LibraryCalls {
 public:
  /// Null if kernels of ours are to be used; `why` then is the reason. Throws Error{invalid} for another choice than
  /// those above, Error{environment} where the library must be there and is not.
  static std::unique_ptr<ProductLibrary> open(std::shared_ptr<const Gpu> gpu, const ProductOptions& options,
                                              std::string& why);
  /// Throws Error{device_fault}, Error{out_of_memory} where the library does not start.
  ProductLibrary(std::shared_ptr<const Gpu> gpu, const lt::Library& library, bool tf32);
  ~ProductLibrary();
  ProductLibrary(const ProductLibrary&) = delete;
  ProductLibrary& operator=(const ProductLibrary&) = delete;

  /// "cuBLASLt 13.1.0".
  std::string name() const;
  /// What NVIDIA recommends for the GPU.
  std::uint64_t workspace_bytes() const noexcept;
  /// Null: cuBLASLt has no algorithm for it.
  const ProductPlan* plan(const ProductForm& form);
  /// `what` is a ProductCall.
  void enqueue(void* stream, std::span<const std::byte> what) override;

 private:
  std::optional<ProductPlan> choose(const ProductForm& form) const;

  const std::shared_ptr<const Gpu> gpu_;
  const lt::Library library_;
  const bool tf32_;
  lt::Handle handle_ = nullptr;
  std::mutex mutex_;                                         // guards plans_
  std::map<ProductForm, std::optional<ProductPlan>> plans_;  // none: there is no algorithm
};

}  // namespace troupe::cuda
