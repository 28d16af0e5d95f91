#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "devices/cuda/cublaslt_api.hpp"
#include "tests/support/cuda_host/entry.hpp"

namespace troupe::cuda::lt::host {

using cuda::host::Address;
using cuda::host::PlacePtr;
using cuda::host::Run;

struct HandleState {
  int device = 0;
};
struct DescState {
  Compute compute = Compute::f32;
  Transposition a = Transposition::none, b = Transposition::none;
  Epilogue epilogue = Epilogue::none;
  const void* vector = nullptr;
  const void* mask = nullptr;
  std::int64_t mask_stride = 0;  // in bits
};
struct LayoutState {
  Type type = Type::f32;
  std::uint64_t rows = 0, columns = 0;
  std::int64_t leading = 0;
  std::int32_t batches = 1;
  std::int64_t stride = 0;

  std::uint64_t element_bytes() const noexcept { return type == Type::f32 ? 4 : 2; }
  /// From the first byte to the last.
  std::uint64_t span_bytes() const noexcept;
};
struct PreferenceState {
  std::uint64_t workspace_bytes = 0;
  std::uint32_t reductions = 7;
  std::array<std::uint32_t, 4> alignments{256, 256, 256, 256};
};

/// A product without addresses.
struct Form {
  DescState desc;
  LayoutState a, b, c, d;

  std::uint64_t m() const noexcept { return d.rows; }
  std::uint64_t n() const noexcept { return d.columns; }
  std::uint64_t k() const noexcept { return desc.a == Transposition::none ? a.columns : a.rows; }
  std::uint64_t vector_count() const noexcept;  // 0: there is none
  std::uint64_t mask_bytes() const noexcept;    // 0: there is none
  /// What is wrong with it for everybody; empty: nothing.
  std::string mistake() const;
  /// Whether there is an algorithm for such types.
  bool is_supported() const noexcept;
  /// The same for the same product, but for the addresses of the vector and the mask.
  std::uint64_t digest() const noexcept;
};

/// What lies in an Algorithm.
struct Chosen {
  std::uint64_t mark;
  std::uint64_t form;  // its digest
  std::uint64_t workspace_bytes;
  std::uint64_t parts;  // of the inner extent
  std::array<std::uint32_t, 4> alignments;
  std::array<std::uint64_t, 2> reserved;
  static constexpr std::uint64_t kMark = 0x6375626c61734c74;
};
static_assert(sizeof(Chosen) == sizeof(Algorithm));

/// Cut into parts where the inner extent is long and the workspace takes the parts.
Chosen choose(const Form& form, const PreferenceState& preference) noexcept;

/// Whether the epilogue writes or reads a ReLU's mask.
bool has_mask(Epilogue epilogue) noexcept;

/// With addresses.
struct Product {
  Form form;
  Chosen chosen;
  float alpha = 1, beta = 0;
  Address a = 0, b = 0, d = 0, workspace = 0;

  cuda::host::Uses uses() const;
};
/// As an operation of a stream that is under way.
void run_product(Run& run, const Product& product, const PlacePtr& place);

}  // namespace troupe::cuda::lt::host
