#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "devices/cuda/cudnn_api.hpp"
#include "devices/cuda/kernels/numbers.hpp"

namespace troupe::cuda {

/// Makes descriptors of cuDNN and owns them. It keeps the first error; all calls after that do
/// nothing.
class Descriptors {
 public:
  explicit Descriptors(const dnn::Library& library) : library_(library) {}
  ~Descriptors();
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  dnn::Status status() const noexcept { return status_; }
  bool ok() const noexcept { return status_ == dnn::Status::success; }
  dnn::Descriptor make(dnn::DescriptorType type);
  void finalize(dnn::Descriptor descriptor) {
    check([&] { return library_.descriptor_finalize(descriptor); });
  }
  template <class Values>
  void set(dnn::Descriptor of, dnn::Attribute attribute, dnn::ElementType type, const Values& values) {
    check([&] {
      return library_.descriptor_set(of, attribute, type, static_cast<std::int64_t>(values.size()), values.data());
    });
  }
  template <class T>
  void set_one(dnn::Descriptor of, dnn::Attribute attribute, dnn::ElementType type, const T& value) {
    check([&] { return library_.descriptor_set(of, attribute, type, 1, &value); });
  }
  /// How many values were given.
  template <class T>
  std::int64_t get(dnn::Descriptor of, dnn::Attribute attribute, dnn::ElementType type, std::span<T> values) {
    std::int64_t count = 0;
    check([&] {
      return library_.descriptor_get(of, attribute, type, static_cast<std::int64_t>(values.size()), &count,
                                     values.empty() ? nullptr : values.data());
    });
    return ok() ? count : 0;
  }
  template <class T>
  T get(dnn::Descriptor of, dnn::Attribute attribute, dnn::ElementType type) {
    T value{};
    (void)get(of, attribute, type, std::span<T>{&value, 1});
    return value;
  }
  /// The first `most` descriptors of `type` that the attribute holds.
  std::vector<dnn::Descriptor> get_all(dnn::Descriptor of, dnn::Attribute attribute, dnn::DescriptorType type,
                                       std::int64_t most);
  /// How many elements the attribute holds.
  std::int64_t count(dnn::Descriptor of, dnn::Attribute attribute, dnn::ElementType type) {
    return get(of, attribute, type, std::span<std::byte>{});
  }

 private:
  using Owned = std::unique_ptr<void, dnn::Status (*)(dnn::Descriptor)>;
  template <class Call>
  void check(Call&& call) {
    if (ok()) status_ = call();
  }

  const dnn::Library library_;
  dnn::Status status_ = dnn::Status::success;
  std::vector<Owned> owned_;
};

/// Images, channels, height, width, whatever their order in memory.
using DnnExtents = std::array<std::int64_t, 4>;

/// A tensor of a graph.
struct DnnTensor {
  std::int64_t id = 0;  // with which a call passes the tensor's address
  DnnExtents extents{};
  dnn::DataType type = dnn::DataType::f32;
  std::uint32_t alignment = 0;  // of its address; 0: it is between two operations and never in memory
  DnnExtents strides{};         // in elements; all 0: channels are next to each other
};
dnn::Descriptor describe(Descriptors& made, const DnnTensor& tensor);

/// A number of a graph: one f32 in the host's memory, whose address a call passes.
struct DnnConstant {
  std::int64_t id = 0;
  float value = 0;
};
dnn::Descriptor describe(Descriptors& made, const DnnConstant& constant);
dnn::DataType data_type_of(Stored type) noexcept;

}  // namespace troupe::cuda
