// What the stand-in of cuBLASLt exports.
#include <cstring>
#include <memory>
#include <utility>

#include "tests/support/cuda_host/cublaslt/product.hpp"

namespace troupe::cuda::lt {
namespace host {
namespace {

using cuda::host::Entry;
using cuda::host::Handles;
using cuda::host::Needs;
using cuda::host::process;
using cuda::host::reports;

constexpr std::size_t kVersion = 130100;

/// All that callers have handles of. Guarded by Process::mutex.
struct Known {
  Handles<HandleState, Handle> handles{"a handle of cuBLASLt"};
  Handles<DescState, Desc> descs{"a description of a product"};
  Handles<LayoutState, Layout> layouts{"a layout"};
  Handles<PreferenceState, Preference> preferences{"a preference"};
};
Known& known() {
  static auto& all = *std::make_unique<Known>().release();  // streams' threads use it to the end
  return all;
}

/// What a call ends with that may not go on, or success.
Status refusal_of(cuda::Result result) {
  const auto refused = static_cast<unsigned>(result);
  if (refused > cuda::host::kCublasLtFault) return Status{refused - cuda::host::kCublasLtFault};
  return refused == 0 ? Status::success : Status::not_initialized;
}

Status misuse(const char* kind, const std::string& text) {
  reports().add(kind, text);
  return Status::invalid_value;
}

/// Null values are a caller's mistake that the library finds itself.
template <class Value>
Status set(Value& to, const void* value, std::size_t size_bytes) {
  if (value == nullptr || size_bytes != sizeof to) return Status::invalid_value;
  std::memcpy(&to, value, sizeof to);
  return Status::success;
}

/// The product's form, where all handles are there.
struct Parts {
  std::shared_ptr<HandleState> handle;
  std::shared_ptr<DescState> desc;
  std::shared_ptr<LayoutState> a, b, c, d;

  Parts(Handle handle_given, Desc desc_given, Layout a_given, Layout b_given, Layout c_given, Layout d_given,
        const PlacePtr& place) {
    Known& all = known();
    handle = all.handles.find(handle_given, place), desc = all.descs.find(desc_given, place);
    a = all.layouts.find(a_given, place), b = all.layouts.find(b_given, place);
    c = all.layouts.find(c_given, place), d = all.layouts.find(d_given, place);
  }
  bool are_there() const noexcept { return handle && desc && a && b && c && d; }
  Form form() const { return {*desc, *a, *b, *c, *d}; }
};

const char* fault_name(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none: return "epilogue_none";
    case Epilogue::relu: return "epilogue_relu";
    case Epilogue::bias: return "epilogue_bias";
    case Epilogue::relu_bias: return "epilogue_relu_bias";
    case Epilogue::relu_mask: return "epilogue_relu_mask";
    case Epilogue::relu_bias_mask: return "epilogue_relu_bias_mask";
    case Epilogue::relu_gradient: return "epilogue_relu_gradient";
    case Epilogue::sums_of_b: return "epilogue_sums_of_b";
  }
  return "epilogue_unknown";
}

/// Why the product must not be computed as it is asked for; empty: it may.
std::string mistake_in(const Product& product, const Chosen& chosen, std::size_t workspace_bytes) {
  constexpr std::uint64_t kWorkspaceAlignment = 256;
  if (chosen.mark != Chosen::kMark) return "an algorithm that nobody has chosen";
  if (chosen.form != product.form.digest()) return "an algorithm that was chosen for another product";
  if (workspace_bytes < chosen.workspace_bytes)
    return "a workspace of " + std::to_string(workspace_bytes) + " bytes, where the algorithm needs " +
           std::to_string(chosen.workspace_bytes);
  if (product.workspace % kWorkspaceAlignment != 0) return "a workspace at no multiple of 256 bytes";
  const std::pair<const char*, Address> addresses[] = {
      {"A", product.a}, {"B", product.b}, {"C", product.d}, {"D", product.d}};
  for (std::size_t i = 0; i < 4; ++i)
    if (addresses[i].second % chosen.alignments[i] != 0)
      return std::string{addresses[i].first} + " at no multiple of the " + std::to_string(chosen.alignments[i]) +
             " bytes that the algorithm was chosen for";
  return {};
}

bool overlaps(Address a, std::uint64_t a_bytes, Address b, std::uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

Address address(const void* at) { return reinterpret_cast<Address>(at); }

/// What is wrong with the place of a ReLU's mask; empty: nothing.
std::string mistake_with_mask(const Product& product) {
  constexpr std::uint64_t kMaskAlignment = 16;
  const Form& form = product.form;
  const Address mask = address(form.desc.mask);
  const std::uint64_t size_bytes = form.mask_bytes();
  if (size_bytes == 0) return {};
  if (mask % kMaskAlignment != 0) return "a mask at no multiple of 16 bytes";
  if (overlaps(mask, size_bytes, product.a, form.a.span_bytes()) ||
      overlaps(mask, size_bytes, product.b, form.b.span_bytes()) ||
      overlaps(mask, size_bytes, product.d, form.d.span_bytes()))
    return "a mask that overlaps a matrix";
  return {};
}

__attribute__((destructor)) void end_of_process() {
  const std::lock_guard lock{process().mutex};
  known().handles.report_leaks();
  known().descs.report_leaks();
  known().layouts.report_leaks();
  known().preferences.report_leaks();
}

}  // namespace
}  // namespace host

using namespace host;

TROUPE_CUBLASLT_ENTRY_POINTS(TROUPE_ENTRY_DECLARE)

// Begins an entry point: `entry` is the call, `place` where it is made.
#define TROUPE_CUBLASLT_ENTER(name, needs)                       \
  Entry entry{#name, __builtin_return_address(0), Needs::needs}; \
  const PlacePtr place = entry.place();                          \
  if (const Status refused = refusal_of(entry.refused()); refused != Status::success) return refused

TROUPE_EXPORT std::size_t cublasLtGetVersion() { return kVersion; }

TROUPE_EXPORT const char* cublasLtGetStatusString(Status status) {
  switch (status) {
    case Status::success: return "success";
    case Status::not_initialized: return "the library was not initialized";
    case Status::alloc_failed: return "the resource allocation failed";
    case Status::invalid_value: return "an unsupported value or parameter was passed to the function";
    case Status::arch_mismatch: return "a feature absent from the device architecture is required";
    case Status::execution_failed: return "the function failed to launch on the GPU";
    case Status::internal_error: return "an internal operation failed";
    case Status::not_supported: return "the requested functionality is not supported";
  }
  return "an unknown status";
}

// The library allocates when a handle is made, and waits for the device when one ends.
TROUPE_EXPORT Status cublasLtCreate(Handle* handle) {
  TROUPE_CUBLASLT_ENTER(cublasLtCreate, context);
  if (entry.outside_capture() != cuda::Result::success) return Status::not_initialized;
  *handle = known().handles.add(std::make_shared<HandleState>(HandleState{entry.device().number}), place);
  return Status::success;
}
TROUPE_EXPORT Status cublasLtDestroy(Handle handle) {
  TROUPE_CUBLASLT_ENTER(cublasLtDestroy, driver);
  if (entry.outside_capture() != cuda::Result::success) return Status::not_initialized;
  return known().handles.end(handle, place) == nullptr ? Status::invalid_value : Status::success;
}

TROUPE_EXPORT Status cublasLtMatmulDescCreate(Desc* desc, Compute compute, Type scale) {
  TROUPE_CUBLASLT_ENTER(cublasLtMatmulDescCreate, nothing);
  if ((compute != Compute::f32 && compute != Compute::tf32) || scale != Type::f32) return Status::invalid_value;
  auto state = std::make_shared<DescState>();
  state->compute = compute;
  *desc = known().descs.add(std::move(state), place);
  return Status::success;
}
TROUPE_EXPORT Status cublasLtMatmulDescDestroy(Desc desc) {
  TROUPE_CUBLASLT_ENTER(cublasLtMatmulDescDestroy, nothing);
  return known().descs.end(desc, place) == nullptr ? Status::invalid_value : Status::success;
}
TROUPE_EXPORT Status cublasLtMatmulDescSetAttribute(Desc desc, DescAttribute attribute, const void* value,
                                                    std::size_t size_bytes) {
  TROUPE_CUBLASLT_ENTER(cublasLtMatmulDescSetAttribute, nothing);
  const auto state = known().descs.find(desc, place);
  if (state == nullptr) return Status::invalid_value;
  switch (attribute) {
    case DescAttribute::transposition_a: return set(state->a, value, size_bytes);
    case DescAttribute::transposition_b: return set(state->b, value, size_bytes);
    case DescAttribute::epilogue: return set(state->epilogue, value, size_bytes);
    case DescAttribute::bias_pointer: return set(state->vector, value, size_bytes);
    case DescAttribute::mask_pointer: return set(state->mask, value, size_bytes);
    case DescAttribute::mask_stride: return set(state->mask_stride, value, size_bytes);
  }
  return Status::invalid_value;
}

TROUPE_EXPORT Status cublasLtMatrixLayoutCreate(Layout* layout, Type type, std::uint64_t rows, std::uint64_t columns,
                                                std::int64_t leading) {
  TROUPE_CUBLASLT_ENTER(cublasLtMatrixLayoutCreate, nothing);
  *layout = known().layouts.add(std::make_shared<LayoutState>(LayoutState{type, rows, columns, leading, 1, 0}), place);
  return Status::success;
}
TROUPE_EXPORT Status cublasLtMatrixLayoutDestroy(Layout layout) {
  TROUPE_CUBLASLT_ENTER(cublasLtMatrixLayoutDestroy, nothing);
  return known().layouts.end(layout, place) == nullptr ? Status::invalid_value : Status::success;
}
TROUPE_EXPORT Status cublasLtMatrixLayoutSetAttribute(Layout layout, LayoutAttribute attribute, const void* value,
                                                      std::size_t size_bytes) {
  TROUPE_CUBLASLT_ENTER(cublasLtMatrixLayoutSetAttribute, nothing);
  const auto state = known().layouts.find(layout, place);
  if (state == nullptr) return Status::invalid_value;
  switch (attribute) {
    case LayoutAttribute::batches: return set(state->batches, value, size_bytes);
    case LayoutAttribute::batch_stride: return set(state->stride, value, size_bytes);
  }
  return Status::invalid_value;
}

TROUPE_EXPORT Status cublasLtMatmulPreferenceCreate(Preference* preference) {
  TROUPE_CUBLASLT_ENTER(cublasLtMatmulPreferenceCreate, nothing);
  *preference = known().preferences.add(std::make_shared<PreferenceState>(), place);
  return Status::success;
}
TROUPE_EXPORT Status cublasLtMatmulPreferenceDestroy(Preference preference) {
  TROUPE_CUBLASLT_ENTER(cublasLtMatmulPreferenceDestroy, nothing);
  return known().preferences.end(preference, place) == nullptr ? Status::invalid_value : Status::success;
}
TROUPE_EXPORT Status cublasLtMatmulPreferenceSetAttribute(Preference preference, PreferenceAttribute attribute,
                                                          const void* value, std::size_t size_bytes) {
  TROUPE_CUBLASLT_ENTER(cublasLtMatmulPreferenceSetAttribute, nothing);
  const auto state = known().preferences.find(preference, place);
  if (state == nullptr) return Status::invalid_value;
  switch (attribute) {
    case PreferenceAttribute::workspace_bytes: return set(state->workspace_bytes, value, size_bytes);
    case PreferenceAttribute::reductions: return set(state->reductions, value, size_bytes);
    case PreferenceAttribute::alignment_a: return set(state->alignments[0], value, size_bytes);
    case PreferenceAttribute::alignment_b: return set(state->alignments[1], value, size_bytes);
    case PreferenceAttribute::alignment_c: return set(state->alignments[2], value, size_bytes);
    case PreferenceAttribute::alignment_d: return set(state->alignments[3], value, size_bytes);
  }
  return Status::invalid_value;
}

TROUPE_EXPORT Status cublasLtMatmulAlgoGetHeuristic(Handle handle, Desc desc, Layout a, Layout b, Layout c, Layout d,
                                                    Preference preference, int most, Choice* choices, int* count) {
  TROUPE_CUBLASLT_ENTER(cublasLtMatmulAlgoGetHeuristic, context);
  *count = 0;
  const Parts parts{handle, desc, a, b, c, d, place};
  const auto wanted = known().preferences.find(preference, place);
  if (!parts.are_there() || wanted == nullptr || most < 1) return Status::invalid_value;
  const Form form = parts.form();
  if (const std::string mistake = form.mistake(); !mistake.empty())
    return misuse("wrong product", place->text() + " is given " + mistake);
  const Status refused = refusal_of(entry.all().calls.next(entry.all().settings, fault_name(form.desc.epilogue)));
  if (refused != Status::success) return refused;
  if (!form.is_supported()) return Status::not_supported;
  const Chosen chosen = choose(form, *wanted);
  choices[0] = {};
  std::memcpy(&choices[0].algorithm, &chosen, sizeof chosen);
  choices[0].workspace_bytes = chosen.workspace_bytes;
  choices[0].waves = 1;
  *count = 1;
  return Status::success;
}

TROUPE_EXPORT Status cublasLtMatmul(Handle handle, Desc desc, const void* alpha, const void* a, Layout layout_a,
                                    const void* b, Layout layout_b, const void* beta, const void* c, Layout layout_c,
                                    void* d, Layout layout_d, const Algorithm* algorithm, void* workspace,
                                    std::size_t workspace_bytes, StreamHandle stream) {
  TROUPE_CUBLASLT_ENTER(cublasLtMatmul, context);
  const auto on = entry.stream(stream);
  const Parts parts{handle, desc, layout_a, layout_b, layout_c, layout_d, place};
  if (on == nullptr || !parts.are_there() || algorithm == nullptr) return Status::invalid_value;
  const PlacePtr here = entry.place_on(on->number);
  if (parts.handle->device != on->device.number)
    return misuse("wrong device", here->text() + " is on device " + std::to_string(on->device.number) +
                                      ", its handle on device " + std::to_string(parts.handle->device));
  Product product{parts.form(), {}, 1, 0, address(a), address(b), address(d), address(workspace)};
  std::memcpy(&product.chosen, algorithm, sizeof product.chosen);
  std::memcpy(&product.alpha, alpha, sizeof product.alpha);
  std::memcpy(&product.beta, beta, sizeof product.beta);
  std::string mistake = product.form.mistake();
  if (mistake.empty()) mistake = mistake_in(product, product.chosen, workspace_bytes);
  if (mistake.empty() && product.beta != 0 && c != d) mistake = "C at another place than D, which this library lacks";
  const auto size_d = product.form.d.span_bytes();
  if (mistake.empty() && (overlaps(product.a, product.form.a.span_bytes(), product.d, size_d) ||
                          overlaps(product.b, product.form.b.span_bytes(), product.d, size_d)))
    mistake = "a D that overlaps an operand";
  if (mistake.empty()) mistake = mistake_with_mask(product);
  if (!mistake.empty()) return misuse("wrong product", here->text() + " is given " + mistake);
  auto operation = std::make_shared<const cuda::host::Operation>(
      cuda::host::Operation{here, [product, here, handle](Run& run) {
                              if (known().handles.find(handle, here) == nullptr)
                                return cuda::host::fail(run.device, cuda::Result::launch_failed);
                              run_product(run, product, here);
                            }});
  return cuda::host::submit(*on, std::move(operation)) == cuda::Result::success ? Status::success
                                                                                : Status::execution_failed;
}

}  // namespace troupe::cuda::lt
