#include "devices/cuda/product_library.hpp"

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "devices/cuda/library_choice.hpp"
#include "runtime/model/fused_relu_gradients.hpp"

namespace troupe::cuda {
namespace {

/// What the library has made, and gives back.
template <class Record>
using Made = std::unique_ptr<Record, lt::Status (*)(Record*)>;

lt::Type type_of(Stored stored) noexcept {
  return stored == Stored::f32 ? lt::Type::f32 : stored == Stored::f16 ? lt::Type::f16 : lt::Type::bf16;
}

constexpr LibraryChoice kChoice{"TROUPE_CUDA_PRODUCTS", "cublaslt", "products"};

/// A library of CUDA 13 needs a driver of CUDA 13; one of CUDA 12 works with both.
std::vector<std::string> files_for(const Driver& driver) {
  constexpr int kWith13 = 13000;
  int version = 0;
  if (driver.driver_get_version(&version) == Result::success && version < kWith13) return {"libcublasLt.so.12"};
  return {"libcublasLt.so.13", "libcublasLt.so.12"};
}

std::optional<lt::Library> find_library(const std::vector<std::string>& files, std::string& why) {
  std::string all;
  for (const std::string& file : files) {
    if (auto found = lt::Library::load(why, file.c_str())) return found;
    all += (all.empty() ? "" : "; ") + why;
  }
  why = all;
  return std::nullopt;
}

[[noreturn]] void fail_product(const lt::Library& library, lt::Status status, const char* what, const Gpu& gpu) {
  fail(status == lt::Status::alloc_failed ? Code::out_of_memory : Code::device_fault,
       text("cuBLASLt, ", what, " on ", gpu.name(), ": ", library.get_status_string(status)));
}

/// How many algorithms are asked for: the first that fits the workspace is taken.
constexpr int kMostChoices = 4;

}  // namespace

struct ProductPlan {
  Made<lt::DescRecord> desc;
  Made<lt::LayoutRecord> a, b, d;
  lt::Algorithm algorithm;
};

namespace {

/// Makes the library's records of a form. Throws Error{device_fault} for what the library does not know.
class RecordMaker {
 public:
  RecordMaker(const lt::Library& library, const Gpu& gpu, const ProductForm& form)
      : library_(library), gpu_(gpu), form_(form) {}

  Made<lt::DescRecord> desc(bool tf32) const {
    const auto compute = tf32 && form_.a.type == Stored::f32 ? lt::Compute::tf32 : lt::Compute::f32;
    auto made = make<lt::DescRecord>(library_.desc_create, library_.desc_destroy, compute, lt::Type::f32);
    using Attribute = lt::DescAttribute;
    set(library_.desc_set, made, Attribute::transposition_a, transposition(form_.transposes_a));
    set(library_.desc_set, made, Attribute::transposition_b, transposition(form_.transposes_b));
    const ProductEpilogue& epilogue = form_.epilogue;
    set(library_.desc_set, made, Attribute::epilogue, epilogue.kind);
    if (epilogue.vector != nullptr) set(library_.desc_set, made, Attribute::bias_pointer, epilogue.vector);
    if (epilogue.mask != nullptr) {
      set(library_.desc_set, made, Attribute::mask_pointer, epilogue.mask);
      set(library_.desc_set, made, Attribute::mask_stride, static_cast<std::int64_t>(relu_mask_stride(form_.d.rows)));
    }
    return made;
  }
  Made<lt::LayoutRecord> layout(const ColumnMajor& of) const {
    auto made = make<lt::LayoutRecord>(library_.layout_create, library_.layout_destroy, type_of(of.type), of.rows,
                                       of.columns, of.leading);
    set(library_.layout_set, made, lt::LayoutAttribute::batches, static_cast<std::int32_t>(form_.batches));
    set(library_.layout_set, made, lt::LayoutAttribute::batch_stride, of.batch_stride);
    return made;
  }
  /// A product that is cut into parts adds them up in f32, in a pass of its own: one order, the same bits each time.
  Made<lt::PreferenceRecord> preference(std::uint64_t workspace_bytes) const {
    auto made = make<lt::PreferenceRecord>(library_.preference_create, library_.preference_destroy);
    using Attribute = lt::PreferenceAttribute;
    set(library_.preference_set, made, Attribute::workspace_bytes, workspace_bytes);
    set(library_.preference_set, made, Attribute::reductions, lt::Reduction::in_f32);
    set(library_.preference_set, made, Attribute::alignment_a, form_.a.alignment);
    set(library_.preference_set, made, Attribute::alignment_b, form_.b.alignment);
    set(library_.preference_set, made, Attribute::alignment_c, form_.d.alignment);
    set(library_.preference_set, made, Attribute::alignment_d, form_.d.alignment);
    return made;
  }

 private:
  static lt::Transposition transposition(bool is_transposed) noexcept {
    return is_transposed ? lt::Transposition::transposed : lt::Transposition::none;
  }
  void check(lt::Status status) const {
    if (status != lt::Status::success) fail_product(library_, status, "the description of a product", gpu_);
  }
  template <class Record, class Create, class... Values>
  Made<Record> make(Create create, lt::Status (*destroy)(Record*), Values... values) const {
    Record* made = nullptr;
    check(create(&made, values...));
    return {made, destroy};
  }
  template <class Record, class Attribute, class Value>
  void set(lt::Status (*call)(Record*, Attribute, const void*, std::size_t), const Made<Record>& of,
           Attribute attribute, const Value& value) const {
    check(call(of.get(), attribute, &value, sizeof value));
  }

  const lt::Library& library_;
  const Gpu& gpu_;
  const ProductForm& form_;
};

}  // namespace

std::unique_ptr<ProductLibrary> ProductLibrary::open(std::shared_ptr<const Gpu> gpu, const ProductOptions& options,
                                                     std::string& why) {
  const std::string choice = read_choice(kChoice, options.choice);
  why = "as TROUPE_CUDA_PRODUCTS or the device's options ask";
  if (choice == "own") return nullptr;
  const auto files = options.file.empty() ? files_for(gpu->driver()) : std::vector<std::string>{options.file};
  std::unique_ptr<ProductLibrary> opened;
  if (const auto found = find_library(files, why)) {
    try {
      opened = std::make_unique<ProductLibrary>(std::move(gpu), *found, options.tf32);
    } catch (const Error& error) {
      why = error.what();
    }
  }
  TROUPE_CHECK(opened != nullptr || choice.empty(), Code::environment, "there is no usable cuBLASLt (", why,
               "): add the folder of libcublasLt.so to LD_LIBRARY_PATH, or leave TROUPE_CUDA_PRODUCTS out");
  return opened;
}

ProductLibrary::ProductLibrary(std::shared_ptr<const Gpu> gpu, const lt::Library& library, bool tf32)
    : gpu_(std::move(gpu)), library_(library), tf32_(tf32) {
  gpu_->use();
  if (const lt::Status made = library_.create(&handle_); made != lt::Status::success)
    fail_product(library_, made, "a handle", *gpu_);
}

// Streams have ended: nobody uses the handle. The plans' records need none.
ProductLibrary::~ProductLibrary() {
  (void)gpu_->driver().ctx_set_current(gpu_->context());
  (void)library_.destroy(handle_);
}

std::string ProductLibrary::name() const {
  const std::size_t version = library_.get_version();
  return text("cuBLASLt ", version / 10000, ".", version / 100 % 100, ".", version % 100, tf32_ ? " in TF32" : "");
}

// Source: cuBLAS documentation, cublasSetWorkspace (4 MiB; 32 MiB for Hopper and later).
std::uint64_t ProductLibrary::workspace_bytes() const noexcept {
  return std::uint64_t{gpu_->capability() >= 90 ? 32U : 4U} << 20;
}

const ProductPlan* ProductLibrary::plan(const ProductForm& form) {
  const std::lock_guard lock{mutex_};
  auto found = plans_.find(form);
  if (found == plans_.end()) found = plans_.emplace(form, choose(form)).first;
  return found->second ? &*found->second : nullptr;
}

std::optional<ProductPlan> ProductLibrary::choose(const ProductForm& form) const {
  gpu_->use();
  const RecordMaker make{library_, *gpu_, form};
  ProductPlan plan{make.desc(tf32_), make.layout(form.a), make.layout(form.b), make.layout(form.d), {}};
  const auto preference = make.preference(workspace_bytes());
  std::array<lt::Choice, kMostChoices> choices{};
  int count = 0;
  const lt::Status asked = library_.choose(handle_, plan.desc.get(), plan.a.get(), plan.b.get(), plan.d.get(),
                                           plan.d.get(), preference.get(), kMostChoices, choices.data(), &count);
  if (asked != lt::Status::success) count = 0;  // it has none for such types, extents or epilogues
  for (const lt::Choice& choice : std::span{choices}.first(static_cast<std::size_t>(count))) {
    if (choice.state != lt::Status::success || choice.workspace_bytes > workspace_bytes()) continue;
    plan.algorithm = choice.algorithm;
    return plan;
  }
  return std::nullopt;
}

void ProductLibrary::enqueue(void* stream, std::span<const std::byte> what) {
  ProductCall call{};
  TROUPE_CHECK(what.size() == sizeof call, Code::invalid, "a product is ", sizeof call, " bytes, not ", what.size());
  std::memcpy(&call, what.data(), sizeof call);
  const ProductPlan& plan = *call.plan;
  const lt::Status status =
      library_.multiply(handle_, plan.desc.get(), &call.alpha, call.a, plan.a.get(), call.b, plan.b.get(), &call.beta,
                        call.d, plan.d.get(), call.d, plan.d.get(), &plan.algorithm, call.workspace, workspace_bytes(),
                        static_cast<lt::StreamHandle>(stream));
  if (status != lt::Status::success) fail_product(library_, status, "a product", *gpu_);
}

}  // namespace troupe::cuda
