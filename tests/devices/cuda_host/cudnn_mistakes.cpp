// Mistakes with convolutions of cuDNN: rows of the table in mistakes_test.cpp.
#include <array>
#include <span>
#include <utility>

#include "devices/cuda/cudnn_api.hpp"
#include "tests/devices/cuda_host/mistakes.hpp"

namespace troupe::cuda::testing::mistakes {
namespace {

using dnn::Attribute;
using dnn::DescriptorType;
using dnn::ElementType;
using Extents = std::array<std::int64_t, 4>;  // images, channels, height, width

constexpr Extents kImages{2, 4, 6, 6}, kWeights{8, 4, 3, 3}, kOutput{2, 8, 4, 4};
constexpr std::size_t kTensorWords = 1024;  // of 8 bytes: more than any of them has
constexpr std::int64_t kInParts = 1;        // the stand-in's engine with a workspace, in at most 4 parts

dnn::Library open_cudnn() {
  std::string why;
  const auto found = dnn::Library::load(why, "libcudnn.so.9");
  if (found) return *found;
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(98);
}

/// One convolution in f32, and everything that it needs. Its steps are inlined, so that a report names the program.
struct Convolutions : Rig {
  const dnn::Library cudnn = open_cudnn();
  StreamHandle own;
  DevicePointer images, weights, output, workspace;
  dnn::Handle handle = nullptr;
  std::vector<dnn::Descriptor> made;
  dnn::Descriptor tensor_of_images = nullptr, operation = nullptr, graph = nullptr, plan = nullptr;

  explicit Convolutions(int devices = 1) : Rig(devices), own(stream()) {
    images = memory(kTensorWords), weights = memory(kTensorWords), output = memory(kTensorWords),
    workspace = memory(kTensorWords);
    for (const DevicePointer each : {images, weights, output}) fill(each, kTensorWords, own, 0);
    must(driver.stream_synchronize, own);
    (void)cudnn.create(&handle);
    (void)cudnn.set_stream(handle, own);
  }
  dnn::Descriptor make(DescriptorType type) {
    (void)cudnn.descriptor_create(type, &made.emplace_back());
    return made.back();
  }
  template <class T>
  [[gnu::always_inline]] dnn::Status set(dnn::Descriptor of, Attribute attribute, ElementType type,
                                         std::span<const T> values) const {
    const dnn::Status status =
        cudnn.descriptor_set(of, attribute, type, static_cast<std::int64_t>(values.size()), values.data());
    return status;
  }
  template <class T>
  [[gnu::always_inline]] dnn::Status set(dnn::Descriptor of, Attribute attribute, ElementType type,
                                         const T& value) const {
    return set(of, attribute, type, std::span<const T>{&value, 1});
  }
  [[gnu::always_inline]] dnn::Descriptor finalized(dnn::Descriptor one) const {
    const dnn::Status status = cudnn.descriptor_finalize(one);
    (void)status;
    return one;
  }
  [[gnu::always_inline]] dnn::Descriptor open_tensor(std::int64_t id, const Extents& extents, const Extents& strides) {
    const dnn::Descriptor one = make(DescriptorType::tensor);
    (void)set(one, Attribute::tensor_type, ElementType::data_type, dnn::DataType::f32);
    (void)set(one, Attribute::tensor_dimensions, ElementType::int64, std::span<const std::int64_t>{extents});
    (void)set(one, Attribute::tensor_strides, ElementType::int64, std::span<const std::int64_t>{strides});
    (void)set(one, Attribute::tensor_id, ElementType::int64, id);
    (void)set(one, Attribute::tensor_alignment, ElementType::int64, std::int64_t{16});
    return one;
  }
  [[gnu::always_inline]] dnn::Descriptor tensor(std::int64_t id, const Extents& of) {
    return finalized(open_tensor(id, of, {of[1] * of[2] * of[3], 1, of[1] * of[3], of[1]}));
  }
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
  [[gnu::always_inline]] dnn::Descriptor plan_with(dnn::Handle of) {
    const dnn::Descriptor engine = make(DescriptorType::engine);
    (void)set(engine, Attribute::engine_graph, ElementType::descriptor, graph);
    (void)set(engine, Attribute::engine_index, ElementType::int64, kInParts);
    const dnn::Descriptor knob = make(DescriptorType::knob_choice);
    (void)set(knob, Attribute::knob_type, ElementType::knob_type, dnn::KnobType{1});
    (void)set(knob, Attribute::knob_value, ElementType::int64, std::int64_t{2});
    const dnn::Descriptor config = make(DescriptorType::config);
    (void)set(config, Attribute::config_engine, ElementType::descriptor, finalized(engine));
    (void)set(config, Attribute::config_knob_choices, ElementType::descriptor, finalized(knob));
    const dnn::Descriptor one = make(DescriptorType::plan);
    (void)set(one, Attribute::plan_handle, ElementType::handle, of);
    (void)set(one, Attribute::plan_config, ElementType::descriptor, finalized(config));
    return finalized(one);
  }
  [[gnu::always_inline]] void describe_graph() {
    tensor_of_images = tensor(1, kImages);
    operation = finalized(open_operation(tensor_of_images, kOutput));
    graph = make(DescriptorType::graph);
    (void)set(graph, Attribute::graph_handle, ElementType::handle, handle);
    (void)set(graph, Attribute::graph_operations, ElementType::descriptor, operation);
    (void)finalized(graph);
  }
  [[gnu::always_inline]] void describe() {
    describe_graph();
    plan = plan_with(handle);
  }
  [[gnu::always_inline]] dnn::Status run(std::size_t tensors = 3) {
    const std::array<std::int64_t, 3> ids{1, 2, 3};
    const std::array<std::uint64_t*, 3> places{words_at(images), words_at(weights), words_at(output)};
    const dnn::Descriptor pack = make(DescriptorType::variant_pack);
    (void)set(pack, Attribute::pack_ids, ElementType::int64, std::span{ids}.first(tensors));
    (void)set(pack, Attribute::pack_pointers, ElementType::void_pointer,
              std::span<std::uint64_t* const>{places}.first(tensors));
    (void)set(pack, Attribute::pack_workspace, ElementType::void_pointer, words_at(workspace));
    const dnn::Status status = cudnn.execute(handle, plan, finalized(pack));
    return status;
  }
  /// Without a mistake.
  void end_descriptors() {
    (void)driver.stream_synchronize(own);
    for (const dnn::Descriptor each : made) (void)cudnn.descriptor_destroy(each);
  }
  void finish() {
    end_descriptors();
    (void)cudnn.destroy(handle);
  }
};

int strides_of_another_order() {
  Convolutions rig;
  (void)rig.finalized(rig.open_tensor(1, kImages, {144, 36, 6, 1}));
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
                       *kEnd = "cudnnBackendFinalize", *kWrong = "wrong convolution";
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
      TROUPE_MISTAKE(convolution_without_a_workspace, {kWrong, kRun, "no workspace, where the plan needs 515 bytes"}),
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
