// Mistakes with graphs of several operations of cuDNN: rows of the table in mistakes_test.cpp.
#include "devices/cuda/attention_form.hpp"
#include "tests/devices/cuda_host/dnn_rig.hpp"

namespace troupe::cuda::testing::mistakes {
namespace {

constexpr Extents kMatrix{1, 2, 4, 4}, kPacked{32, 16, 4, 1};

/// Attention of two heads of 8 over 4 places, in bf16.
struct Attentions : DnnRig {
  AttentionForm form{.type = Stored::bf16, .rows = 1, .length = 4, .heads = 2, .part = 8, .alignment = 16};
  DevicePointer input = tensor_memory(), output = tensor_memory(), sums = tensor_memory();
  float scale = 0.5F;
  bool gives_scale = true;
  Descriptors parts{cudnn};

  /// Not finalized.
  [[gnu::always_inline]] dnn::Descriptor product(dnn::Descriptor a, dnn::Descriptor b, dnn::Descriptor c) {
    const dnn::Descriptor what = make(DescriptorType::product);
    (void)set(what, Attribute::product_compute, ElementType::data_type, dnn::DataType::f32);
    const dnn::Descriptor one = make(DescriptorType::product_operation);
    (void)set(one, Attribute::product_product, ElementType::descriptor, finalized(what));
    (void)set(one, Attribute::product_a, ElementType::descriptor, a);
    (void)set(one, Attribute::product_b, ElementType::descriptor, b);
    (void)set(one, Attribute::product_c, ElementType::descriptor, c);
    return one;
  }
  [[gnu::always_inline]] dnn::Descriptor matrix(std::int64_t id, const Extents& extents, bool is_virtual = false) {
    const dnn::Descriptor one = open_tensor(id, extents, kPacked);
    if (is_virtual) (void)set(one, Attribute::tensor_is_virtual, ElementType::boolean, true);
    return finalized(one);
  }
  [[gnu::always_inline]] void describe_all(std::span<const dnn::Descriptor> operations) {
    graph = make(DescriptorType::graph);
    (void)set(graph, Attribute::graph_handle, ElementType::handle, handle);
    (void)set(graph, Attribute::graph_operations, ElementType::descriptor, operations);
    (void)finalized(graph);
  }
  [[gnu::always_inline]] void choose() {
    const auto operations = operations_of(form, parts);
    describe_all(operations);
    plan = plan_with(handle);
  }
  [[gnu::always_inline]] dnn::Status run() {
    std::byte* const first = reinterpret_cast<std::byte*>(words_at(input));
    std::vector<std::int64_t> ids{kQueries, kKeys, kValues, kAttended, kLogSums};
    std::vector<const void*> places{first, first + 32, first + 64, words_at(output), words_at(sums)};
    if (gives_scale) ids.push_back(constants_of(form)[0].id), places.push_back(&scale);
    const dnn::Descriptor pack = make(DescriptorType::variant_pack);
    (void)set(pack, Attribute::pack_ids, ElementType::int64, std::span<const std::int64_t>{ids});
    (void)set(pack, Attribute::pack_pointers, ElementType::void_pointer, std::span<const void* const>{places});
    (void)set(pack, Attribute::pack_workspace, ElementType::void_pointer, words_at(workspace));
    const dnn::Status status = cudnn.execute(handle, plan, finalized(pack));
    return status;
  }
};

int product_of_matrices_that_do_not_match() {
  Attentions rig;
  const dnn::Descriptor c = rig.matrix(103, kMatrix, true);
  const std::array<dnn::Descriptor, 2> all{
      rig.finalized(rig.product(rig.matrix(1, kMatrix), rig.matrix(2, {1, 2, 3, 4}), c)),
      rig.finalized(rig.product(c, rig.matrix(4, kMatrix), rig.matrix(5, kMatrix)))};
  rig.describe_all(all);
  rig.finish();
  return 0;
}

int operation_before_the_one_that_it_reads_from() {
  Attentions rig;
  const dnn::Descriptor c = rig.matrix(103, kMatrix, true);
  const std::array<dnn::Descriptor, 2> all{
      rig.finalized(rig.product(c, rig.matrix(4, kMatrix), rig.matrix(5, kMatrix))),
      rig.finalized(rig.product(rig.matrix(1, kMatrix), rig.matrix(2, kMatrix), c))};
  rig.describe_all(all);
  rig.finish();
  return 0;
}

int matrix_by_value() {
  Attentions rig;
  const dnn::Descriptor one = rig.open_tensor(1, kMatrix, kPacked);
  (void)rig.set(one, Attribute::tensor_is_by_value, ElementType::boolean, true);
  (void)rig.finalized(one);
  rig.finish();
  return 0;
}

int attention_without_its_scale() {
  Attentions rig;
  rig.choose();
  rig.gives_scale = false;
  (void)rig.run();
  rig.finish();
  return 0;
}

int attention_over_its_queries() {
  Attentions rig;
  rig.choose();
  rig.output = rig.input;
  (void)rig.run();
  rig.finish();
  return 0;
}

int attention_read_on_another_stream() {
  Attentions rig;
  const StreamHandle other = rig.stream();
  rig.choose();
  (void)rig.run();
  rig.add("reader", rig.input, rig.output, 8, other);
  (void)rig.driver.stream_synchronize(other);
  rig.finish();
  return 0;
}

int queries_written_on_another_stream() {
  Attentions rig;
  const StreamHandle other = rig.stream();
  rig.choose();
  rig.fill(rig.input, 8, other, 0);
  (void)rig.run();
  (void)rig.driver.stream_synchronize(other);
  rig.finish();
  return 0;
}

}  // namespace

std::vector<Mistake> mistakes_with_attention() {
  constexpr const char *kRun = "cudnnBackendExecute on stream 1", *kEnd = "cudnnBackendFinalize",
                       *kWrong = "wrong graph";
  return {
      TROUPE_MISTAKE(product_of_matrices_that_do_not_match,
                     {kWrong, kEnd, "a product whose tensors do not match: x f32 [1, 2, 4, 4], b f32 [1, 2, 3, 4]"}),
      TROUPE_MISTAKE(operation_before_the_one_that_it_reads_from,
                     {kWrong, kEnd, "reads tensor 103, which none before it has put out"}),
      TROUPE_MISTAKE(matrix_by_value, {kWrong, kEnd, "by value, which is not one number in f32"}),
      TROUPE_MISTAKE(attention_without_its_scale, {kWrong, kRun, "5 addresses, where the plan has 6 tensors"}),
      TROUPE_MISTAKE(attention_over_its_queries, {kWrong, kRun, "a result that overlaps tensor"}),
      TROUPE_MISTAKE(attention_read_on_another_stream, {"race, ", "kernel reader on stream 2", kRun}),
      TROUPE_MISTAKE(queries_written_on_another_stream, {"race, ", "on stream 2", kRun}),
  };
}

}  // namespace troupe::cuda::testing::mistakes
