// Mistakes with convolutions of cuDNN: rows of the table in mistakes_test.cpp.
#include <unistd.h>

#include "tests/devices/cuda_host/dnn_rig.hpp"

namespace troupe::cuda::testing::mistakes {
namespace {

constexpr Extents kImages{2, 4, 6, 6}, kWeights{8, 4, 3, 3}, kOutput{2, 8, 4, 4};

/// One convolution.
struct Convolutions : DnnRig {
  DevicePointer images, weights, output;
  dnn::Descriptor tensor_of_images = nullptr;

  explicit Convolutions(int devices = 1)
      : DnnRig(devices), images(tensor_memory()), weights(tensor_memory()), output(tensor_memory()) {}
  [[gnu::always_inline]] dnn::Descriptor convolution() {
    constexpr std::array<std::int64_t, 2> kNone{0, 0}, kOne{1, 1};
    const dnn::Descriptor one = make(DescriptorType::convolution);
    (void)set(one, Attribute::convolution_compute, ElementType::data_type, dnn::DataType::f32);
    (void)set(one, Attribute::convolution_mode, ElementType::convolution_mode, dnn::ConvolutionMode::cross_correlation);
    (void)set(one, Attribute::convolution_spatial_dims, ElementType::int64, std::int64_t{2});
    for (const auto& [attribute, pair] : {std::pair{Attribute::convolution_pre_paddings, kNone},
                                          {Attribute::convolution_post_paddings, kNone},
                                          {Attribute::convolution_strides, kOne},
                                          {Attribute::convolution_dilations, kOne}})
      (void)set(one, attribute, ElementType::int64, std::span<const std::int64_t>{pair});
    return finalized(one);
  }
  [[gnu::always_inline]] dnn::Descriptor open_operation(dnn::Descriptor of_images, const Extents& of_output) {
    const dnn::Descriptor one = make(DescriptorType::convolution_forward);
    (void)set(one, Attribute::forward_images, ElementType::descriptor, of_images);
    (void)set(one, Attribute::forward_weights, ElementType::descriptor, tensor(2, kWeights));
    (void)set(one, Attribute::forward_output, ElementType::descriptor, tensor(3, of_output));
    (void)set(one, Attribute::forward_convolution, ElementType::descriptor, convolution());
    (void)set(one, Attribute::forward_alpha, ElementType::f32, 1.0F);
    (void)set(one, Attribute::forward_beta, ElementType::f32, 0.0F);
    return one;
  }
  using DnnRig::describe_graph;
  [[gnu::always_inline]] void describe_graph() {
    tensor_of_images = tensor(1, kImages);
    describe_graph(finalized(open_operation(tensor_of_images, kOutput)));
  }
  [[gnu::always_inline]] void describe() {
    describe_graph();
    plan = plan_with(handle);
  }
  [[gnu::always_inline]] dnn::Status run(std::size_t tensors = 3) {
    const std::array<DevicePointer, 3> places{images, weights, output};
    const dnn::Status status = run_at(std::span{places}.first(tensors));
    return status;
  }
};

int strides_of_another_order() {
  Convolutions rig;
  (void)rig.finalized(rig.open_operation(rig.finalized(rig.open_tensor(1, kImages, {144, 36, 6, 1})), kOutput));
  rig.finish();
  return 0;
}

int operation_of_a_tensor_that_is_not_finalized() {
  Convolutions rig;
  (void)rig.open_operation(rig.open_tensor(1, kImages, {144, 1, 24, 4}), kOutput);
  rig.finish();
  return 0;
}

int output_of_other_extents() {
  Convolutions rig;
  (void)rig.finalized(rig.open_operation(rig.tensor(1, kImages), {2, 8, 5, 4}));
  rig.finish();
  return 0;
}

int attribute_of_another_type() {
  Convolutions rig;
  const dnn::Descriptor tensor = rig.make(DescriptorType::tensor);
  (void)rig.set(tensor, Attribute::tensor_id, ElementType::f32, 1.0F);
  rig.finish();
  return 0;
}

int attribute_set_when_all_is_finalized() {
  Convolutions rig;
  const dnn::Descriptor tensor = rig.tensor(1, kImages);
  (void)rig.set(tensor, Attribute::tensor_id, ElementType::int64, std::int64_t{2});
  rig.finish();
  return 0;
}

int tensor_that_lacks_an_attribute() {
  Convolutions rig;
  (void)rig.finalized(rig.make(DescriptorType::tensor));
  rig.finish();
  return 0;
}

int plan_of_another_handle_than_its_graph() {
  Convolutions rig;
  dnn::Handle other = nullptr;
  (void)rig.cudnn.create(&other);
  rig.describe_graph();
  (void)rig.plan_with(other);
  (void)rig.cudnn.destroy(other);
  rig.finish();
  return 0;
}

int convolution_without_a_workspace() {
  Convolutions rig;
  rig.describe();
  rig.workspace = 0;
  (void)rig.run();
  rig.finish();
  return 0;
}

int convolution_with_too_small_a_workspace() {
  Convolutions rig;
  rig.describe();
  rig.workspace = rig.memory(64);
  (void)rig.run();
  rig.finish();
  return 0;
}

int workspace_over_an_operand() {
  Convolutions rig;
  rig.describe();
  rig.workspace = rig.images + 512;
  (void)rig.run();
  rig.finish();
  return 0;
}

int tensor_at_a_place_that_was_not_described() {
  Convolutions rig;
  rig.describe();
  rig.weights += 8;
  (void)rig.run();
  rig.finish();
  return 0;
}

int output_over_the_images() {
  Convolutions rig;
  rig.describe();
  rig.output = rig.images;
  (void)rig.run();
  rig.finish();
  return 0;
}

int fewer_addresses_than_tensors() {
  Convolutions rig;
  rig.describe();
  (void)rig.run(2);
  rig.finish();
  return 0;
}

int output_of_a_convolution_out_of_range() {
  Convolutions rig;
  rig.describe();
  rig.output = rig.memory(16);
  (void)rig.run();
  rig.finish();
  return 0;
}

int handle_without_a_stream() {
  Convolutions rig;
  (void)rig.cudnn.destroy(rig.handle);
  (void)rig.cudnn.create(&rig.handle);
  rig.describe();
  (void)rig.run();
  rig.finish();
  return 0;
}

int convolution_read_on_another_stream() {
  Convolutions rig;
  rig.describe();
  const StreamHandle other = rig.stream();
  (void)rig.run();
  rig.add("reader", rig.images, rig.output, 16, other);
  (void)rig.driver.stream_synchronize(other);
  rig.finish();
  return 0;
}

int workspace_of_convolutions_on_two_streams() {
  Convolutions rig;
  rig.describe();
  const StreamHandle other = rig.stream();
  (void)rig.run();
  (void)rig.cudnn.set_stream(rig.handle, other);
  rig.output = rig.memory(kTensorWords);
  (void)rig.run();
  (void)rig.driver.stream_synchronize(other);
  rig.finish();
  return 0;
}

int workspace_of_a_convolution_freed_early() {
  Convolutions rig;
  rig.describe();
  (void)rig.run();
  rig.must(rig.driver.mem_free, rig.workspace);
  rig.forget(rig.workspace);
  (void)rig.driver.stream_synchronize(rig.own);
  _exit(rig.reports(nullptr, 0) > 0 ? host::kMistakesExitCode : 0);
}

int workspace_of_a_recorded_convolution_freed() {
  Convolutions rig;
  rig.describe();
  GraphHandle graph = nullptr;
  GraphExec exec = nullptr;
  rig.must(rig.driver.stream_begin_capture, rig.own, CaptureMode::thread_local_);
  (void)rig.run();
  rig.must(rig.driver.stream_end_capture, rig.own, &graph);
  rig.must(rig.driver.graph_instantiate_with_flags, &exec, graph, 0ULL);
  rig.must(rig.driver.graph_destroy, graph);
  rig.must(rig.driver.mem_free, rig.workspace);
  rig.forget(rig.workspace);
  (void)rig.driver.graph_launch(exec, rig.own);
  (void)rig.driver.stream_synchronize(rig.own);
  _exit(rig.reports(nullptr, 0) > 0 ? host::kMistakesExitCode : 0);
}

int tensor_destroyed_before_its_plan() {
  Convolutions rig;
  rig.describe();
  (void)rig.cudnn.descriptor_destroy(rig.tensor_of_images);
  std::erase(rig.made, rig.tensor_of_images);
  (void)rig.run();
  rig.finish();
  return 0;
}

int handle_of_cudnn_destroyed_in_use() {
  Convolutions rig;
  rig.describe();
  std::uint64_t* const word = rig.pinned(1);
  rig.must(rig.driver.stream_wait_value64, rig.own, Rig::pointer_to(word), std::uint64_t{1}, kWaitValueGeq);
  (void)rig.run();
  (void)rig.cudnn.destroy(rig.handle);
  __atomic_store_n(word, std::uint64_t{1}, __ATOMIC_RELEASE);
  rig.end_descriptors();
  return 0;
}

int handle_of_cudnn_made_in_a_capture() {
  Convolutions rig;
  GraphHandle recorded = nullptr;
  rig.must(rig.driver.stream_begin_capture, rig.own, CaptureMode::thread_local_);
  dnn::Handle other = nullptr;
  (void)rig.cudnn.create(&other);
  (void)rig.driver.stream_end_capture(rig.own, &recorded);
  rig.finish();
  return 0;
}

int convolution_on_another_device() {
  Convolutions rig{2};
  rig.must(rig.driver.ctx_set_current, rig.context(1));
  (void)rig.cudnn.set_stream(rig.handle, rig.stream());
  rig.must(rig.driver.ctx_set_current, rig.context(0));
  rig.finish();
  return 0;
}

int leaked_descriptor() {
  Convolutions rig;
  (void)rig.tensor(1, kImages);
  rig.made.clear();
  rig.finish();
  return 0;
}

}  // namespace

std::vector<Mistake> mistakes_with_convolutions() {
  constexpr const char *kRun = "cudnnBackendExecute on stream 1", *kSet = "cudnnBackendSetAttribute",
                       *kEnd = "cudnnBackendFinalize", *kWrong = "wrong graph";
  return {
      TROUPE_MISTAKE(strides_of_another_order, {kWrong, kEnd, "strides that are not those of f32 [2, 4, 6, 6]"}),
      TROUPE_MISTAKE(operation_of_a_tensor_that_is_not_finalized,
                     {kWrong, kSet, "attribute 704 that is not finalized"}),
      TROUPE_MISTAKE(output_of_other_extents,
                     {kWrong, kEnd, "tensors that do not match: images f32 [2, 4, 6, 6]", "output f32 [2, 8, 5, 4]"}),
      TROUPE_MISTAKE(attribute_of_another_type, {kWrong, kSet, "attribute 906 with elements of another type"}),
      TROUPE_MISTAKE(attribute_set_when_all_is_finalized,
                     {kWrong, kSet, "attribute 906 of a descriptor that is finalized"}),
      TROUPE_MISTAKE(tensor_that_lacks_an_attribute, {kWrong, kEnd, "no attribute 900"}),
      TROUPE_MISTAKE(plan_of_another_handle_than_its_graph,
                     {kWrong, kEnd, "a plan with another handle than its graph's"}),
      TROUPE_MISTAKE(convolution_without_a_workspace, {kWrong, kRun, "no workspace, where the plan needs 2051 bytes"}),
      TROUPE_MISTAKE(convolution_with_too_small_a_workspace, {"out of range", kRun, "from cuMemAlloc_v2"}),
      TROUPE_MISTAKE(workspace_over_an_operand, {kWrong, kRun, "a workspace that overlaps tensor 1"}),
      TROUPE_MISTAKE(tensor_at_a_place_that_was_not_described,
                     {kWrong, kRun, "tensor 2 at no multiple of the 16 bytes"}),
      TROUPE_MISTAKE(output_over_the_images, {kWrong, kRun, "a result that overlaps tensor 1"}),
      TROUPE_MISTAKE(fewer_addresses_than_tensors, {kWrong, kRun, "2 addresses, where the plan has 3 tensors"}),
      TROUPE_MISTAKE(output_of_a_convolution_out_of_range, {"out of range", kRun, "from cuMemAlloc_v2"}),
      TROUPE_MISTAKE(handle_without_a_stream, {"default stream", "cudnnBackendExecute", "never given a stream"}),
      TROUPE_MISTAKE(convolution_read_on_another_stream, {"race, ", "kernel reader on stream 2", kRun}),
      TROUPE_MISTAKE(workspace_of_convolutions_on_two_streams,
                     {"race, write after write", kRun, "cudnnBackendExecute on stream 2"}),
      TROUPE_MISTAKE(workspace_of_a_convolution_freed_early,
                     {"use after free|race, write after write", kRun, "cuMemFree_v2"}),
      TROUPE_MISTAKE(workspace_of_a_recorded_convolution_freed, {"use after free", kRun, "freed by cuMemFree_v2"}),
      TROUPE_MISTAKE(tensor_destroyed_before_its_plan,
                     {"use after destruction", "from cudnnBackendCreateDescriptor", "cudnnBackendDestroyDescriptor"}),
      TROUPE_MISTAKE(handle_of_cudnn_destroyed_in_use,
                     {"use after destruction", kRun, "from cudnnCreate", "cudnnDestroy"}),
      TROUPE_MISTAKE(handle_of_cudnn_made_in_a_capture,
                     {"capture", "cudnnCreate", "cuStreamBeginCapture_v2 on stream 1"}),
      TROUPE_MISTAKE(convolution_on_another_device,
                     {"wrong device", "cudnnSetStream on stream 2", "its handle on device 0"}, "DEVICES=2"),
      TROUPE_MISTAKE(leaked_descriptor, {"leak", "a descriptor from cudnnBackendCreateDescriptor"}),
  };
}

}  // namespace troupe::cuda::testing::mistakes
