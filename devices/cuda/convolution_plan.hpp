#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "devices/cuda/convolution_form.hpp"
#include "devices/cuda/cudnn_api.hpp"
#include "devices/cuda/engine_choices.hpp"

// The only place that speaks cuDNN's language of descriptors.
namespace troupe::cuda {

/// Makes descriptors of cuDNN and owns them. It remembers the first refusal; whatever is asked of it behind that does
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

class ConvolutionGraph;

/// How a form is computed.
struct ConvolutionPlan {
  std::shared_ptr<const ConvolutionGraph> graph;
  std::unique_ptr<Descriptors> made;  // of the graph
  dnn::Descriptor plan = nullptr;
  EngineChoice choice;
  std::uint64_t workspace_bytes = 0;
};

/// The operations of a form for cuDNN: a convolution, and what follows it in the same kernel.
class ConvolutionGraph : public std::enable_shared_from_this<ConvolutionGraph> {
 public:
  /// Where ok() is false, the library does not know such a convolution.
  ConvolutionGraph(const dnn::Library& library, dnn::Handle handle, const ConvolutionForm& form);

  bool ok() const noexcept { return made_.ok(); }
  /// What the library proposes, the best one first.
  std::vector<EngineChoice> proposals(dnn::HeuristicsMode mode) const;
  /// Without a value: the engine cannot, or computes otherwise than is wanted: not with the same bits each time, with
  /// operands or sums of less precision, or f32 on tensor cores, which `tf32` allows.
  std::optional<ConvolutionPlan> plan(const EngineChoice& choice, bool tf32) const;

 private:
  dnn::Descriptor tensor(std::int64_t id, std::span<const std::int64_t, 4> extents, std::uint32_t alignment);
  dnn::Descriptor convolution();
  dnn::Descriptor operation(dnn::Descriptor output);
  dnn::Descriptor pointwise(dnn::PointwiseMode mode, dnn::Descriptor x, dnn::Descriptor b, dnn::Descriptor y);
  std::vector<dnn::Descriptor> operations();
  bool may_take(dnn::Descriptor engine, Descriptors& made, bool tf32) const;

  const dnn::Library library_;
  const dnn::Handle handle_;
  const ConvolutionForm form_;
  Descriptors made_;
  dnn::Descriptor graph_ = nullptr;
};

/// What cuDNN is given to run a plan.
struct ConvolutionCall {
  const ConvolutionPlan* plan;
  ConvolutionPlaces places;
  std::byte* workspace;  // of the plan's workspace_bytes, which no other stream uses at that time
};
dnn::Status execute(const dnn::Library& library, dnn::Handle handle, const ConvolutionCall& call);

}  // namespace troupe::cuda
