// Mistakes with pools of cuDNN: rows of the table in mistakes_test.cpp.
#include "tests/devices/cuda_host/dnn_rig.hpp"

namespace troupe::cuda::testing::mistakes {
namespace {

constexpr Extents kPooled{2, 4, 6, 6}, kPools{2, 4, 3, 3};

/// A pool of windows of 2 x 2, or its gradient.
struct Pools : DnnRig {
  dnn::ResampleMode mode = dnn::ResampleMode::max;
  dnn::PaddingMode padding = dnn::PaddingMode::minus_infinity;
  Extents of_output = kPools, of_index = kPools;
  bool has_index = true;
  DevicePointer images = tensor_memory(), output = tensor_memory(), index = tensor_memory();

  [[gnu::always_inline]] dnn::Descriptor window() {
    constexpr std::array<dnn::Fraction, 2> kNone{{{0, 1}, {0, 1}}}, kTwo{{{2, 1}, {2, 1}}};
    const dnn::Descriptor one = make(DescriptorType::resample);
    (void)set(one, Attribute::resample_mode, ElementType::resample_mode, mode);
    (void)set(one, Attribute::resample_compute, ElementType::data_type, dnn::DataType::f32);
    (void)set(one, Attribute::resample_nan, ElementType::nan_propagation, dnn::NanPropagation::yes);
    (void)set(one, Attribute::resample_padding_mode, ElementType::padding_mode, padding);
    (void)set(one, Attribute::resample_spatial_dims, ElementType::int64, std::int64_t{2});
    for (const auto& [attribute, pair] : {std::pair{Attribute::resample_window, kTwo},
                                          {Attribute::resample_strides, kTwo},
                                          {Attribute::resample_pre_paddings, kNone},
                                          {Attribute::resample_post_paddings, kNone}})
      (void)set(one, attribute, ElementType::fraction, std::span<const dnn::Fraction>{pair});
    return finalized(one);
  }
  [[gnu::always_inline]] dnn::Descriptor forward() {
    const dnn::Descriptor one = make(DescriptorType::resample_forward);
    (void)set(one, Attribute::resample_forward_images, ElementType::descriptor, tensor(1, kPooled));
    (void)set(one, Attribute::resample_forward_output, ElementType::descriptor, tensor(2, of_output));
    if (has_index)
      (void)set(one, Attribute::resample_forward_index, ElementType::descriptor,
                tensor(3, of_index, dnn::DataType::i8));
    (void)set(one, Attribute::resample_forward_resample, ElementType::descriptor, window());
    (void)set(one, Attribute::resample_forward_alpha, ElementType::f64, 1.0);
    (void)set(one, Attribute::resample_forward_beta, ElementType::f64, 0.0);
    return finalized(one);
  }
  [[gnu::always_inline]] dnn::Descriptor backward() {
    const dnn::Descriptor one = make(DescriptorType::resample_backward);
    (void)set(one, Attribute::resample_backward_images, ElementType::descriptor, tensor(1, kPooled));
    (void)set(one, Attribute::resample_backward_output, ElementType::descriptor, tensor(2, of_output));
    if (has_index)
      (void)set(one, Attribute::resample_backward_index, ElementType::descriptor,
                tensor(3, of_index, dnn::DataType::i8));
    (void)set(one, Attribute::resample_backward_resample, ElementType::descriptor, window());
    (void)set(one, Attribute::resample_backward_alpha, ElementType::f64, 1.0);
    (void)set(one, Attribute::resample_backward_beta, ElementType::f64, 0.0);
    return finalized(one);
  }
  [[gnu::always_inline]] dnn::Status run(dnn::Descriptor operation) {
    describe_graph(operation);
    plan = plan_with(handle);
    const std::array<DevicePointer, 3> places{images, output, index};
    const dnn::Status status = run_at(places);
    return status;
  }
};

int pool_with_an_output_of_other_extents() {
  Pools rig;
  rig.of_output = {2, 4, 4, 3};
  (void)rig.forward();
  rig.finish();
  return 0;
}

int max_pool_with_zeros_around() {
  Pools rig;
  rig.padding = dnn::PaddingMode::zero;
  (void)rig.forward();
  rig.finish();
  return 0;
}

int average_with_an_index() {
  Pools rig;
  rig.mode = dnn::ResampleMode::average_without_padding, rig.padding = dnn::PaddingMode::zero;
  (void)rig.forward();
  rig.finish();
  return 0;
}

int index_of_the_images_extents() {
  Pools rig;
  rig.of_index = kPooled;
  (void)rig.forward();
  rig.finish();
  return 0;
}

int gradient_of_a_max_pool_without_an_index() {
  Pools rig;
  rig.has_index = false;
  (void)rig.backward();
  rig.finish();
  return 0;
}

int window_in_whole_numbers() {
  Pools rig;
  const dnn::Descriptor window = rig.make(DescriptorType::resample);
  const std::array<std::int64_t, 2> two{2, 2};
  (void)rig.set(window, Attribute::resample_window, ElementType::int64, std::span<const std::int64_t>{two});
  rig.finish();
  return 0;
}

int index_over_the_output() {
  Pools rig;
  rig.index = rig.output;
  (void)rig.run(rig.forward());
  rig.finish();
  return 0;
}

int index_that_no_pool_has_written() {
  Pools rig;
  rig.fill(rig.index, kTensorWords, rig.own, 9);
  (void)rig.run(rig.backward());
  rig.finish();
  return 0;
}

int index_read_on_another_stream() {
  Pools rig;
  const StreamHandle other = rig.stream();
  (void)rig.run(rig.forward());
  rig.add("reader", rig.images, rig.index, 8, other);
  (void)rig.driver.stream_synchronize(other);
  rig.finish();
  return 0;
}

int gradient_read_before_the_pool_that_writes_its_index() {
  Pools rig;
  const StreamHandle other = rig.stream();
  const DevicePointer images = rig.tensor_memory(), output = rig.tensor_memory(), workspace = rig.tensor_memory();
  (void)rig.run(rig.forward());
  (void)rig.cudnn.set_stream(rig.handle, other);
  rig.images = images, rig.output = output, rig.workspace = workspace;
  (void)rig.run(rig.backward());
  (void)rig.driver.stream_synchronize(other);
  rig.finish();
  return 0;
}

}  // namespace

std::vector<Mistake> mistakes_with_pools() {
  constexpr const char *kRun = "cudnnBackendExecute on stream 1", *kSet = "cudnnBackendSetAttribute",
                       *kEnd = "cudnnBackendFinalize", *kWrong = "wrong graph";
  return {
      TROUPE_MISTAKE(pool_with_an_output_of_other_extents,
                     {kWrong, kEnd, "tensors that do not match: images f32 [2, 4, 6, 6]", "output f32 [2, 4, 4, 3]"}),
      TROUPE_MISTAKE(max_pool_with_zeros_around, {kWrong, kEnd, "a max pool whose padding is not minus infinity"}),
      TROUPE_MISTAKE(average_with_an_index, {kWrong, kEnd, "an index i8 [2, 4, 3, 3] of an output f32 [2, 4, 3, 3]"}),
      TROUPE_MISTAKE(index_of_the_images_extents, {kWrong, kEnd, "an index i8 [2, 4, 6, 6] of an output"}),
      TROUPE_MISTAKE(gradient_of_a_max_pool_without_an_index,
                     {kWrong, kEnd, "the gradient of a max pool without an index"}),
      TROUPE_MISTAKE(window_in_whole_numbers, {kWrong, kSet, "attribute 1706 with elements of another type"}),
      TROUPE_MISTAKE(index_over_the_output, {kWrong, kRun, "a result that overlaps tensor"}),
      TROUPE_MISTAKE(index_that_no_pool_has_written, {kWrong, kRun, "an index of 9, which no max pool"}),
      TROUPE_MISTAKE(index_read_on_another_stream, {"race, ", "kernel reader on stream 2", kRun}),
      TROUPE_MISTAKE(gradient_read_before_the_pool_that_writes_its_index,
                     {"race, ", "cudnnBackendExecute on stream 2", kRun}),
  };
}

}  // namespace troupe::cuda::testing::mistakes
