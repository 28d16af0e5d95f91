// Mistakes with batch norms of cuDNN: rows of the table in mistakes_test.cpp.
#include "devices/cuda/norm_form.hpp"
#include "tests/devices/cuda_host/dnn_rig.hpp"

namespace troupe::cuda::testing::mistakes {
namespace {

/// A batch norm of 2 x 9 numbers for each of 8 channels, in f32.
struct Norms : DnnRig {
  BatchNormForm form{.rows = 2, .positions = 9, .channels = 8, .epsilon = 1e-5F, .alignment = 16};
  std::array<DevicePointer, kNormBatchVariance + 1> places{};
  Descriptors parts{cudnn};

  Norms() {
    for (std::size_t id = 1; id < places.size(); ++id) places[id] = tensor_memory();
  }
  [[gnu::always_inline]] void choose() {
    const auto operations = operations_of(form, parts);
    describe_graph(operations[0]);
    plan = plan_with(handle);
  }
  [[gnu::always_inline]] dnn::Status run() {
    const auto numbers = constants_of(form);
    std::vector<std::int64_t> ids;
    std::vector<const void*> pointers;
    const std::size_t last = static_cast<std::size_t>(form.is_backward ? kNormToShift : kNormBatchVariance);
    for (std::size_t id = 1; id <= last; ++id)
      ids.push_back(static_cast<std::int64_t>(id)), pointers.push_back(words_at(places[id]));
    for (const DnnConstant& number : numbers) ids.push_back(number.id), pointers.push_back(&number.value);
    const dnn::Descriptor pack = make(DescriptorType::variant_pack);
    (void)set(pack, Attribute::pack_ids, ElementType::int64, std::span<const std::int64_t>{ids});
    (void)set(pack, Attribute::pack_pointers, ElementType::void_pointer, std::span<const void* const>{pointers});
    (void)set(pack, Attribute::pack_workspace, ElementType::void_pointer, words_at(workspace));
    const dnn::Status status = cudnn.execute(handle, plan, finalized(pack));
    return status;
  }
};

int norm_whose_scale_has_other_channels() {
  Norms rig;
  const dnn::Descriptor one = rig.make(DescriptorType::norm_backward);
  const auto set = [&](Attribute attribute, dnn::Descriptor tensor) {
    (void)rig.set(one, attribute, ElementType::descriptor, tensor);
  };
  (void)rig.set(one, Attribute::norm_backward_mode, ElementType::norm_mode, dnn::NormMode::batch);
  set(Attribute::norm_backward_x, rig.tensor(1, {2, 8, 9, 1}));
  set(Attribute::norm_backward_to_y, rig.tensor(2, {2, 8, 9, 1}));
  set(Attribute::norm_backward_to_x, rig.tensor(3, {2, 8, 9, 1}));
  set(Attribute::norm_backward_scale, rig.tensor(4, {1, 9, 1, 1}));
  set(Attribute::norm_backward_mean, rig.tensor(5, {1, 8, 1, 1}));
  set(Attribute::norm_backward_inverse, rig.tensor(6, {1, 8, 1, 1}));
  set(Attribute::norm_backward_to_scale, rig.tensor(7, {1, 8, 1, 1}));
  set(Attribute::norm_backward_to_shift, rig.tensor(8, {1, 8, 1, 1}));
  (void)rig.finalized(one);
  rig.finish();
  return 0;
}

int statistics_over_the_running_ones() {
  Norms rig;
  rig.choose();
  rig.places[kNormBatchMean] = rig.places[kNormRunningMean];
  (void)rig.run();
  rig.finish();
  return 0;
}

/// The memory that the forward pass keeps is given to something else before the gradient has read it.
int statistics_overwritten_before_the_gradient() {
  Norms rig;
  const StreamHandle other = rig.stream();
  const EventHandle forward = rig.event();
  rig.choose();
  (void)rig.run();
  rig.must(rig.driver.event_record, forward, rig.own);
  rig.must(rig.driver.stream_wait_event, other, forward, 0U);
  rig.fill(rig.places[kNormInverse], 4, other, 0);
  rig.form.is_backward = true;
  rig.choose();
  (void)rig.run();
  (void)rig.driver.stream_synchronize(other);
  rig.finish();
  return 0;
}

int statistics_read_on_another_stream() {
  Norms rig;
  const StreamHandle other = rig.stream();
  rig.choose();
  (void)rig.run();
  rig.add("reader", rig.places[kNormInput], rig.places[kNormBatchVariance], 4, other);
  (void)rig.driver.stream_synchronize(other);
  rig.finish();
  return 0;
}

}  // namespace

std::vector<Mistake> mistakes_with_norms() {
  constexpr const char *kRun = "cudnnBackendExecute on stream 1", *kEnd = "cudnnBackendFinalize",
                       *kWrong = "wrong graph";
  return {
      TROUPE_MISTAKE(norm_whose_scale_has_other_channels,
                     {kWrong, kEnd, "a batch norm of f32 [2, 8, 9, 1] with f32 [1, 9, 1, 1]"}),
      TROUPE_MISTAKE(statistics_over_the_running_ones, {kWrong, kRun, "a result that overlaps tensor"}),
      TROUPE_MISTAKE(statistics_overwritten_before_the_gradient, {"race, ", "cuMemsetD8Async on stream 2", kRun}),
      TROUPE_MISTAKE(statistics_read_on_another_stream, {"race, ", "kernel reader on stream 2", kRun}),
  };
}

}  // namespace troupe::cuda::testing::mistakes
