// Mistakes with products of cuBLASLt: rows of the table in mistakes_test.cpp.
#include <utility>

#include "devices/cuda/cublaslt_api.hpp"
#include "tests/devices/cuda_host/mistakes.hpp"

namespace troupe::cuda::testing::mistakes {
namespace {

constexpr std::int64_t kSide = 80;                 // of all matrices; the inner extent is cut into parts
constexpr std::size_t kWords = kSide * kSide / 2;  // of 8 bytes, that hold one in f32
constexpr std::size_t kWorkspace = 4096;

lt::Library open_cublaslt() {
  std::string why;
  const auto found = lt::Library::load(why, "libcublasLt.so.13");
  if (found) return *found;
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(98);
}

/// One product of square matrices in f32, and everything that it needs.
struct Products : Rig {
  const lt::Library cublaslt = open_cublaslt();
  StreamHandle own;
  DevicePointer a, b, d, workspace;
  lt::Handle handle = nullptr;
  lt::Desc desc = nullptr;
  lt::Layout layout = nullptr;
  lt::Algorithm algorithm{};
  std::size_t workspace_bytes = kWorkspace;

  explicit Products(int devices = 1) : Rig(devices), own(stream()) {
    a = memory(kWords), b = memory(kWords), d = memory(kWords), workspace = memory(kWorkspace / 8);
    for (const DevicePointer each : {a, b, d}) fill(each, kWords, own, 0);
    must(driver.stream_synchronize, own);
    (void)cublaslt.create(&handle);
    (void)cublaslt.desc_create(&desc, lt::Compute::f32, lt::Type::f32);
    layout = square(lt::Type::f32, kSide);
  }
  lt::Layout square(lt::Type type, std::int64_t leading) const {
    lt::Layout made = nullptr;
    (void)cublaslt.layout_create(&made, type, kSide, kSide, leading);
    return made;
  }
  [[gnu::always_inline]] lt::Status choose(lt::Layout of_a) {
    lt::Preference preference = nullptr;
    (void)cublaslt.preference_create(&preference);
    const std::uint64_t most = kWorkspace;
    (void)cublaslt.preference_set(preference, lt::PreferenceAttribute::workspace_bytes, &most, sizeof most);
    lt::Choice choice{};
    int count = 0;
    const lt::Status status =
        cublaslt.choose(handle, desc, of_a, layout, layout, layout, preference, 1, &choice, &count);
    (void)cublaslt.preference_destroy(preference);
    algorithm = choice.algorithm;
    return status;
  }
  [[gnu::always_inline]] lt::Status multiply(StreamHandle on, lt::Layout of_a) {
    const float one = 1, none = 0;
    const lt::Status status =
        cublaslt.multiply(handle, desc, &one, words_at(a), of_a, words_at(b), layout, &none, words_at(d), layout,
                          words_at(d), layout, &algorithm, words_at(workspace), workspace_bytes, on);
    return status;
  }
  [[gnu::always_inline]] void multiply() {
    (void)choose(layout);
    const lt::Status status = multiply(own, layout);
    (void)status;
  }
  /// Without a mistake.
  void finish() {
    (void)driver.stream_synchronize(own);
    (void)cublaslt.layout_destroy(layout);
    (void)cublaslt.desc_destroy(desc);
    (void)cublaslt.destroy(handle);
  }
};

/// What a ReLU's mask needs.
struct Masks : Products {
  DevicePointer mask;
  std::int64_t stride = 128;

  explicit Masks(lt::Epilogue epilogue) {
    (void)cublaslt.desc_set(desc, lt::DescAttribute::epilogue, &epilogue, sizeof epilogue);
    mask = memory(kSide * 128 / 64);
    fill(mask, kSide * 128 / 64, own, 0);
    must(driver.stream_synchronize, own);
  }
  [[gnu::always_inline]] void multiply() {
    const void* const at = words_at(mask);
    (void)cublaslt.desc_set(desc, lt::DescAttribute::mask_pointer, &at, sizeof at);
    (void)cublaslt.desc_set(desc, lt::DescAttribute::mask_stride, &stride, sizeof stride);
    Products::multiply();
  }
};

int mask_without_an_address() {
  Masks rig{lt::Epilogue::relu_mask};
  rig.mask = 0;
  rig.multiply();
  rig.finish();
  return 0;
}

int mask_with_a_stride_of_no_multiple_of_128() {
  Masks rig{lt::Epilogue::relu_mask};
  rig.stride = 80;
  rig.multiply();
  rig.finish();
  return 0;
}

int mask_at_an_odd_place() {
  Masks rig{lt::Epilogue::relu_mask};
  rig.mask += 8;
  rig.multiply();
  rig.finish();
  return 0;
}

int mask_over_the_result() {
  Masks rig{lt::Epilogue::relu_mask};
  rig.mask = rig.d;
  rig.multiply();
  rig.finish();
  return 0;
}

int mask_out_of_range() {
  Masks rig{lt::Epilogue::relu_mask};
  rig.mask = rig.memory(kSide * 128 / 64 - 1);
  rig.multiply();
  rig.finish();
  return 0;
}

int mask_read_before_it_is_written() {
  Masks rig{lt::Epilogue::relu_gradient};
  const StreamHandle other = rig.stream();
  rig.add("writer", rig.mask, rig.b, kSide * 128 / 64, other);
  rig.multiply();
  (void)rig.driver.stream_synchronize(other);
  rig.finish();
  return 0;
}

int product_with_too_small_a_workspace() {
  Products rig;
  rig.workspace_bytes = 64;
  rig.multiply();
  rig.finish();
  return 0;
}

int product_with_a_workspace_at_an_odd_place() {
  Products rig;
  rig.workspace += 16;
  rig.multiply();
  rig.finish();
  return 0;
}

int leading_dimension_below_the_rows() {
  Products rig;
  const lt::Layout narrow = rig.square(lt::Type::f32, kSide - 1);
  (void)rig.choose(narrow);
  (void)rig.cublaslt.layout_destroy(narrow);
  rig.finish();
  return 0;
}

int layouts_that_do_not_match() {
  Products rig;
  lt::Layout other = nullptr;
  (void)rig.cublaslt.layout_create(&other, lt::Type::f32, kSide, kSide + 1, kSide);
  (void)rig.choose(other);
  (void)rig.cublaslt.layout_destroy(other);
  rig.finish();
  return 0;
}

int layout_of_another_type_than_was_chosen_for() {
  Products rig;
  const lt::Layout other = rig.square(lt::Type::bf16, kSide);
  (void)rig.choose(rig.layout);
  (void)rig.multiply(rig.own, other);
  (void)rig.cublaslt.layout_destroy(other);
  rig.finish();
  return 0;
}

int algorithm_that_nobody_has_chosen() {
  Products rig;
  (void)rig.multiply(rig.own, rig.layout);
  rig.finish();
  return 0;
}

int operand_at_a_place_that_was_not_chosen_for() {
  Products rig;
  (void)rig.choose(rig.layout);
  rig.a += 8;
  (void)rig.multiply(rig.own, rig.layout);
  rig.finish();
  return 0;
}

int result_over_an_operand() {
  Products rig;
  (void)rig.choose(rig.layout);
  rig.d = rig.a;
  (void)rig.multiply(rig.own, rig.layout);
  rig.finish();
  return 0;
}

int result_out_of_range() {
  Products rig;
  rig.d = rig.memory(kWords - 1);
  rig.multiply();
  rig.finish();
  return 0;
}

int operand_written_meanwhile() {
  Products rig;
  const StreamHandle other = rig.stream();
  rig.add("writer", rig.a, rig.b, kWords, other);
  rig.multiply();
  (void)rig.driver.stream_synchronize(other);
  rig.finish();
  return 0;
}

int product_read_on_another_stream() {
  Products rig;
  const StreamHandle other = rig.stream();
  rig.multiply();
  rig.add("reader", rig.b, rig.d, kWords, other);
  (void)rig.driver.stream_synchronize(other);
  rig.finish();
  return 0;
}

int workspace_of_two_streams() {
  Products rig;
  const StreamHandle other = rig.stream();
  rig.multiply();
  const DevicePointer first = std::exchange(rig.d, rig.memory(kWords));
  (void)rig.multiply(other, rig.layout);
  (void)rig.driver.stream_synchronize(other);
  rig.d = first;
  rig.finish();
  return 0;
}

int handle_destroyed_in_use() {
  Products rig;
  std::uint64_t* const word = rig.pinned(1);
  rig.must(rig.driver.stream_wait_value64, rig.own, Rig::pointer_to(word), std::uint64_t{1}, kWaitValueGeq);
  rig.multiply();
  (void)rig.cublaslt.destroy(rig.handle);
  __atomic_store_n(word, std::uint64_t{1}, __ATOMIC_RELEASE);
  (void)rig.driver.stream_synchronize(rig.own);
  (void)rig.cublaslt.layout_destroy(rig.layout);
  (void)rig.cublaslt.desc_destroy(rig.desc);
  return 0;
}

int handle_destroyed_before_its_graph() {
  Products rig;
  (void)rig.choose(rig.layout);
  rig.must(rig.driver.stream_begin_capture, rig.own, CaptureMode::thread_local_);
  (void)rig.multiply(rig.own, rig.layout);
  GraphHandle graph = nullptr;
  GraphExec exec = nullptr;
  rig.must(rig.driver.stream_end_capture, rig.own, &graph);
  rig.must(rig.driver.graph_instantiate_with_flags, &exec, graph, 0ULL);
  rig.must(rig.driver.graph_destroy, graph);
  (void)rig.cublaslt.destroy(rig.handle);
  rig.must(rig.driver.graph_launch, exec, rig.own);
  (void)rig.driver.stream_synchronize(rig.own);
  (void)rig.driver.graph_exec_destroy(exec);
  (void)rig.cublaslt.layout_destroy(rig.layout);
  (void)rig.cublaslt.desc_destroy(rig.desc);
  return 0;
}

int handle_made_in_a_capture() {
  Products rig;
  GraphHandle graph = nullptr;
  rig.must(rig.driver.stream_begin_capture, rig.own, CaptureMode::thread_local_);
  lt::Handle other = nullptr;
  (void)rig.cublaslt.create(&other);
  (void)rig.driver.stream_end_capture(rig.own, &graph);
  rig.finish();
  return 0;
}

int description_used_after_its_end() {
  Products rig;
  (void)rig.choose(rig.layout);
  (void)rig.cublaslt.desc_destroy(rig.desc);
  (void)rig.multiply(rig.own, rig.layout);
  (void)rig.cublaslt.layout_destroy(rig.layout);
  (void)rig.cublaslt.destroy(rig.handle);
  return 0;
}

int handle_of_another_device() {
  Products rig{2};
  (void)rig.choose(rig.layout);
  rig.must(rig.driver.ctx_set_current, rig.context(1));
  const StreamHandle other = rig.stream();
  (void)rig.multiply(other, rig.layout);
  rig.must(rig.driver.ctx_set_current, rig.context(0));
  rig.finish();
  return 0;
}

int leaked_layout() {
  Products rig;
  rig.layout = rig.square(lt::Type::f32, kSide);
  rig.finish();
  return 0;
}

}  // namespace

std::vector<Mistake> mistakes_with_products() {
  constexpr const char* kProduct = "cublasLtMatmul on stream 1";
  return {
      TROUPE_MISTAKE(product_with_too_small_a_workspace,
                     {"wrong product", kProduct, "a workspace of 64 bytes, where the algorithm needs 640"}),
      TROUPE_MISTAKE(product_with_a_workspace_at_an_odd_place,
                     {"wrong product", kProduct, "a workspace at no multiple of 256 bytes"}),
      TROUPE_MISTAKE(mask_without_an_address, {"wrong product", "an epilogue without the address of its mask"}),
      TROUPE_MISTAKE(mask_with_a_stride_of_no_multiple_of_128,
                     {"wrong product", "a mask with a stride of 80 bits for 80 rows"}),
      TROUPE_MISTAKE(mask_at_an_odd_place, {"wrong product", kProduct, "a mask at no multiple of 16 bytes"}),
      TROUPE_MISTAKE(mask_over_the_result, {"wrong product", kProduct, "a mask that overlaps a matrix"}),
      TROUPE_MISTAKE(mask_out_of_range, {"out of range", kProduct, "from cuMemAlloc_v2"}),
      TROUPE_MISTAKE(mask_read_before_it_is_written, {"race, ", "kernel writer on stream 2", kProduct}),
      TROUPE_MISTAKE(leading_dimension_below_the_rows, {"wrong product", "cublasLtMatmulAlgoGetHeuristic",
                                                        "leading dimension 79, which is less than its rows"}),
      TROUPE_MISTAKE(layouts_that_do_not_match,
                     {"wrong product", "cublasLtMatmulAlgoGetHeuristic", "A is 80 x 81 f32", "D 80 x 80 f32"}),
      TROUPE_MISTAKE(layout_of_another_type_than_was_chosen_for,
                     {"wrong product", kProduct, "an algorithm that was chosen for another product"}),
      TROUPE_MISTAKE(algorithm_that_nobody_has_chosen, {"wrong product", kProduct, "that nobody has chosen"}),
      TROUPE_MISTAKE(operand_at_a_place_that_was_not_chosen_for,
                     {"wrong product", kProduct, "A at no multiple of the 256 bytes"}),
      TROUPE_MISTAKE(result_over_an_operand, {"wrong product", kProduct, "a D that overlaps an operand"}),
      TROUPE_MISTAKE(result_out_of_range, {"out of range", kProduct, "from cuMemAlloc_v2"}),
      TROUPE_MISTAKE(operand_written_meanwhile, {"race, ", "kernel writer on stream 2", kProduct}),
      TROUPE_MISTAKE(product_read_on_another_stream, {"race, ", "kernel reader on stream 2", kProduct}),
      TROUPE_MISTAKE(workspace_of_two_streams, {"race, write after write", kProduct, "cublasLtMatmul on stream 2"}),
      TROUPE_MISTAKE(handle_destroyed_in_use,
                     {"use after destruction", kProduct, "from cublasLtCreate", "cublasLtDestroy"}),
      TROUPE_MISTAKE(handle_destroyed_before_its_graph,
                     {"use after destruction", kProduct, "from cublasLtCreate", "cublasLtDestroy"}),
      TROUPE_MISTAKE(handle_made_in_a_capture, {"capture", "cublasLtCreate", "cuStreamBeginCapture_v2 on stream 1"}),
      TROUPE_MISTAKE(description_used_after_its_end,
                     {"use after destruction", "from cublasLtMatmulDescCreate", "cublasLtMatmulDescDestroy"}),
      TROUPE_MISTAKE(handle_of_another_device, {"wrong device", "cublasLtMatmul on stream 2", "its handle on device 0"},
                     "DEVICES=2"),
      TROUPE_MISTAKE(leaked_layout, {"leak", "a layout from cublasLtMatrixLayoutCreate"}),
  };
}

}  // namespace troupe::cuda::testing::mistakes
