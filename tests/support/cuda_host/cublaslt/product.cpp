// What a product is, and how it is computed.
#include "tests/support/cuda_host/cublaslt/product.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "devices/cuda/kernels/numbers.hpp"

namespace troupe::cuda::lt::host {
namespace {

using cuda::host::process;

const void* pointer_to(Address at) { return reinterpret_cast<const void*>(at); }
Stored stored(Type type) { return type == Type::f32 ? Stored::f32 : type == Type::f16 ? Stored::f16 : Stored::bf16; }

std::string text_of(const LayoutState& of) {
  return std::to_string(of.rows) + " x " + std::to_string(of.columns) + " " +
         (of.type == Type::f32   ? "f32"
          : of.type == Type::f16 ? "f16"
                                 : "bf16") +
         " with leading dimension " + std::to_string(of.leading);
}

/// 10 bits of the mantissa.
float rounded_to_tf32(float value) { return float_of((bits_of(value) + 0x1000U) & ~0x1fffU); }

/// One matrix, [columns][rows] in f32 after its transposition.
std::vector<float> packed(const LayoutState& of, const void* at, std::uint64_t batch, bool transposes,
                          Compute compute) {
  std::vector<float> found(of.rows * of.columns);
  const std::uint64_t first = batch * static_cast<std::uint64_t>(of.stride);
  for (std::uint64_t c = 0; c < of.columns; ++c)
    for (std::uint64_t r = 0; r < of.rows; ++r) {
      const float value = load(at, stored(of.type), first + c * static_cast<std::uint64_t>(of.leading) + r);
      found[transposes ? r * of.columns + c : c * of.rows + r] =
          compute == Compute::tf32 ? rounded_to_tf32(value) : value;
    }
  return found;
}

/// Where everything is for the thread that computes.
struct Found {
  const void *a, *b, *vector;
  void *d, *vector_to;
  std::uint8_t* mask;
  float* workspace;
};

/// Sums of one column of D, of the terms [begin, end).
void add_terms(std::vector<float>& sums, const std::vector<float>& a, const float* column_of_b, std::uint64_t begin,
               std::uint64_t end) {
  const std::uint64_t m = sums.size();
  for (std::uint64_t k = begin; k < end; ++k) {
    const float factor = column_of_b[k];
    const float* const column = a.data() + k * m;
    for (std::uint64_t i = 0; i < m; ++i) sums[i] += column[i] * factor;
  }
}

bool is_set(const std::uint8_t* mask, std::uint64_t bit) { return (mask[bit / 8] >> (bit % 8) & 1U) != 0; }
void set_bit(std::uint8_t* mask, std::uint64_t bit, bool value) {
  const auto one = static_cast<std::uint8_t>(1U << (bit % 8));
  mask[bit / 8] = static_cast<std::uint8_t>(value ? mask[bit / 8] | one : mask[bit / 8] & ~one);
}

void store_column(const Product& product, const Found& found, std::uint64_t batch, std::uint64_t j,
                  const std::vector<float>& sums) {
  const Form& form = product.form;
  const Stored type = stored(form.d.type);
  const auto epilogue = static_cast<std::uint32_t>(form.desc.epilogue);
  const bool has_bias = (epilogue & static_cast<std::uint32_t>(Epilogue::bias)) != 0;
  const bool has_relu = (epilogue & static_cast<std::uint32_t>(Epilogue::relu)) != 0;
  const std::uint64_t first =
      batch * static_cast<std::uint64_t>(form.d.stride) + j * static_cast<std::uint64_t>(form.d.leading);
  for (std::uint64_t i = 0; i < sums.size(); ++i) {
    float value = product.alpha * sums[i];
    if (product.beta != 0) value += product.beta * load(found.d, type, first + i);
    if (has_bias) value += load(found.vector, type, i);
    const std::uint64_t bit = j * static_cast<std::uint64_t>(form.desc.mask_stride) + i;
    if (has_relu && has_mask(form.desc.epilogue)) set_bit(found.mask, bit, value > 0);
    if (has_relu) value = value > 0 ? value : 0.0F;
    if (form.desc.epilogue == Epilogue::relu_gradient && !is_set(found.mask, bit)) value = 0;
    store(found.d, type, first + i, value);
  }
}

void compute_batch(const Product& product, const Found& found, std::uint64_t batch) {
  const Form& form = product.form;
  const std::uint64_t k = form.k(), parts = product.chosen.parts;
  const auto a = packed(form.a, found.a, batch, form.desc.a != Transposition::none, form.desc.compute);
  const auto b = packed(form.b, found.b, batch, form.desc.b != Transposition::none, form.desc.compute);
  std::vector<float> sums(form.m());
  for (std::uint64_t j = 0; j < form.n(); ++j) {
    std::vector<float> total(form.m());
    for (std::uint64_t part = 0; part < parts; ++part) {
      std::fill(sums.begin(), sums.end(), 0.0F);
      add_terms(sums, a, b.data() + j * k, part * k / parts, (part + 1) * k / parts);
      if (parts > 1) std::memcpy(found.workspace + part * sums.size(), sums.data(), sums.size() * sizeof(float));
      for (std::uint64_t i = 0; i < sums.size(); ++i) total[i] += sums[i];
    }
    store_column(product, found, batch, j, total);
    if (form.desc.epilogue != Epilogue::sums_of_b) continue;
    float sum = 0;
    for (std::uint64_t term = 0; term < k; ++term) sum += b[j * k + term];
    store(found.vector_to, stored(form.d.type), j, sum);
  }
}

bool has_vector(Epilogue epilogue) {
  return epilogue == Epilogue::bias || epilogue == Epilogue::relu_bias || epilogue == Epilogue::relu_bias_mask ||
         epilogue == Epilogue::sums_of_b;
}

}  // namespace

bool has_mask(Epilogue epilogue) noexcept {
  return epilogue == Epilogue::relu_mask || epilogue == Epilogue::relu_bias_mask || epilogue == Epilogue::relu_gradient;
}

std::uint64_t LayoutState::span_bytes() const noexcept {
  if (rows == 0 || columns == 0 || batches == 0) return 0;
  const std::uint64_t last = static_cast<std::uint64_t>(batches - 1) * static_cast<std::uint64_t>(stride) +
                             (columns - 1) * static_cast<std::uint64_t>(leading) + rows;
  return last * element_bytes();
}

std::uint64_t Form::vector_count() const noexcept {
  if (!has_vector(desc.epilogue)) return 0;
  return desc.epilogue == Epilogue::sums_of_b ? n() : m();
}

std::uint64_t Form::mask_bytes() const noexcept {
  return has_mask(desc.epilogue) ? n() * static_cast<std::uint64_t>(desc.mask_stride) / 8 : 0;
}

std::string Form::mistake() const {
  for (const LayoutState* const layout : {&a, &b, &c, &d})
    if (layout->leading < static_cast<std::int64_t>(layout->rows))
      return "a layout of " + text_of(*layout) + ", which is less than its rows";
  const std::uint64_t rows = desc.a == Transposition::none ? a.rows : a.columns;
  const std::uint64_t columns = desc.b == Transposition::none ? b.columns : b.rows;
  const std::uint64_t inner = desc.b == Transposition::none ? b.rows : b.columns;
  if (rows != d.rows || columns != d.columns || inner != k())
    return "layouts that do not match: A is " + text_of(a) + ", B " + text_of(b) + ", D " + text_of(d);
  if (a.batches != d.batches || b.batches != d.batches || c.batches != d.batches)
    return "layouts with different numbers of batches";
  if (c.type != d.type || c.rows != d.rows || c.columns != d.columns) return "layouts of C and D that differ";
  if (has_vector(desc.epilogue) && desc.vector == nullptr) return "an epilogue without the address of its vector";
  if (!has_mask(desc.epilogue)) return {};
  if (desc.mask == nullptr) return "an epilogue without the address of its mask";
  if (desc.mask_stride % 128 != 0 || desc.mask_stride < static_cast<std::int64_t>(m()))
    return "a mask with a stride of " + std::to_string(desc.mask_stride) + " bits for " + std::to_string(m()) + " rows";
  if (d.batches != 1) return "one mask for " + std::to_string(d.batches) + " matrices";
  return {};
}

// Source: cuBLAS documentation, cublasLtMatmul, supported types. Others are not supported, and not wrong.
bool Form::is_supported() const noexcept {
  if (a.type != b.type) return false;
  if (a.type == Type::f32) return d.type == Type::f32;
  return desc.compute == Compute::f32;
}

std::uint64_t Form::digest() const noexcept {
  std::uint64_t found = 14695981039346656037ULL;
  const auto add = [&found](auto value) {
    found = (found ^ static_cast<std::uint64_t>(value)) * 1099511628211ULL;
    found ^= found >> 29U;
  };
  add(desc.compute), add(desc.a), add(desc.b), add(desc.epilogue), add(desc.mask_stride);
  for (const LayoutState* const layout : {&a, &b, &c, &d})
    add(layout->type), add(layout->rows), add(layout->columns), add(layout->leading), add(layout->batches),
        add(layout->stride);
  return found;
}

Chosen choose(const Form& form, const PreferenceState& preference) noexcept {
  constexpr std::uint64_t kLongest = 64, kParts = 2;
  Chosen chosen{Chosen::kMark, form.digest(), 0, 1, preference.alignments, {}};
  const std::uint64_t bytes = kParts * form.m() * sizeof(float);
  const bool may_cut = (preference.reductions & static_cast<std::uint32_t>(Reduction::in_f32)) != 0;
  if (form.k() > kLongest && may_cut && bytes <= preference.workspace_bytes)
    chosen.parts = kParts, chosen.workspace_bytes = bytes;
  return chosen;
}

cuda::host::Uses Product::uses() const {
  cuda::host::Uses found;
  const auto add = [&](const void* at, std::uint64_t size_bytes, Access access) {
    if (size_bytes != 0) found.push_back({at, size_bytes, access});
  };
  add(pointer_to(a), form.a.span_bytes(), Access::reads);
  add(pointer_to(b), form.b.span_bytes(), Access::reads);
  if (beta != 0) add(pointer_to(d), form.d.span_bytes(), Access::reads);
  add(form.desc.vector, form.vector_count() * form.d.element_bytes(),
      form.desc.epilogue == Epilogue::sums_of_b ? Access::writes : Access::reads);
  add(form.desc.mask, form.mask_bytes(),
      form.desc.epilogue == Epilogue::relu_gradient ? Access::reads : Access::writes);
  add(pointer_to(d), form.d.span_bytes(), Access::writes);
  add(pointer_to(workspace), chosen.workspace_bytes, Access::writes);
  return found;
}

void run_product(Run& run, const Product& product, const PlacePtr& place) {
  if (!cuda::host::may_use(run, place, product.uses())) return;
  const cuda::host::Memory& memory = process().memory;
  void* const vector = memory.at(reinterpret_cast<Address>(product.form.desc.vector));
  const Found found{memory.at(product.a),
                    memory.at(product.b),
                    vector,
                    memory.at(product.d),
                    vector,
                    static_cast<std::uint8_t*>(memory.at(reinterpret_cast<Address>(product.form.desc.mask))),
                    static_cast<float*>(memory.at(product.workspace))};
  run.lock.unlock();
  for (std::int32_t batch = 0; batch < product.form.d.batches; ++batch)
    compute_batch(product, found, static_cast<std::uint64_t>(batch));
  run.lock.lock();
}

}  // namespace troupe::cuda::lt::host
