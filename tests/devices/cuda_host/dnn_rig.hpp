#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "devices/cuda/cudnn_api.hpp"
#include "tests/devices/cuda_host/mistakes.hpp"

namespace troupe::cuda::testing::mistakes {

using dnn::Attribute;
using dnn::DescriptorType;
using dnn::ElementType;
using Extents = std::array<std::int64_t, 4>;  // images, channels, height, width

inline constexpr std::size_t kTensorWords = 1024;  // of 8 bytes: more than any tensor has
inline constexpr std::int64_t kInParts = 1;        // the stand-in's engine with a workspace, in at most 4 parts

inline dnn::Library open_cudnn() {
  std::string why;
  const auto found = dnn::Library::load(why, "libcudnn.so.9");
  if (found) return *found;
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(98);
}

/// A graph of cuDNN's in f32, and everything that it needs. Its steps are inlined, so that a report names the program.
struct DnnRig : Rig {
  const dnn::Library cudnn = open_cudnn();
  StreamHandle own;
  DevicePointer workspace;
  dnn::Handle handle = nullptr;
  std::vector<dnn::Descriptor> made;
  dnn::Descriptor graph = nullptr, plan = nullptr;

  explicit DnnRig(int devices = 1) : Rig(devices), own(stream()), workspace(memory(kTensorWords)) {
    (void)cudnn.create(&handle);
    (void)cudnn.set_stream(handle, own);
  }
  DevicePointer tensor_memory() {
    const DevicePointer found = memory(kTensorWords);
    fill(found, kTensorWords, own, 0);
    must(driver.stream_synchronize, own);
    return found;
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
  [[gnu::always_inline]] dnn::Descriptor open_tensor(std::int64_t id, const Extents& extents, const Extents& strides,
                                                     dnn::DataType type = dnn::DataType::f32) {
    const dnn::Descriptor one = make(DescriptorType::tensor);
    (void)set(one, Attribute::tensor_type, ElementType::data_type, type);
    (void)set(one, Attribute::tensor_dimensions, ElementType::int64, std::span<const std::int64_t>{extents});
    (void)set(one, Attribute::tensor_strides, ElementType::int64, std::span<const std::int64_t>{strides});
    (void)set(one, Attribute::tensor_id, ElementType::int64, id);
    (void)set(one, Attribute::tensor_alignment, ElementType::int64, std::int64_t{16});
    return one;
  }
  [[gnu::always_inline]] dnn::Descriptor tensor(std::int64_t id, const Extents& of,
                                                dnn::DataType type = dnn::DataType::f32) {
    return finalized(open_tensor(id, of, {of[1] * of[2] * of[3], 1, of[1] * of[3], of[1]}, type));
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
  [[gnu::always_inline]] void describe_graph(dnn::Descriptor operation) {
    graph = make(DescriptorType::graph);
    (void)set(graph, Attribute::graph_handle, ElementType::handle, handle);
    (void)set(graph, Attribute::graph_operations, ElementType::descriptor, operation);
    (void)finalized(graph);
  }
  /// Tensor 1, 2, and so on are at `places`.
  [[gnu::always_inline]] dnn::Status run_at(std::span<const DevicePointer> places) {
    std::vector<std::int64_t> ids;
    std::vector<std::uint64_t*> pointers;
    for (const DevicePointer place : places)
      ids.push_back(static_cast<std::int64_t>(ids.size()) + 1), pointers.push_back(words_at(place));
    const dnn::Descriptor pack = make(DescriptorType::variant_pack);
    (void)set(pack, Attribute::pack_ids, ElementType::int64, std::span<const std::int64_t>{ids});
    (void)set(pack, Attribute::pack_pointers, ElementType::void_pointer, std::span<std::uint64_t* const>{pointers});
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

}  // namespace troupe::cuda::testing::mistakes
