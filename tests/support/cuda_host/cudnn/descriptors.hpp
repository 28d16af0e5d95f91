#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/cuda_host/cudnn/composite.hpp"
#include "tests/support/cuda_host/cudnn/convolution.hpp"

namespace troupe::cuda::dnn::host {

struct HandleState {
  int device = 0;
  std::optional<StreamHandle> stream;
};

/// A descriptor: its attributes as they were set, and what they amount to once it is finalized.
struct DescriptorState {
  struct Value {
    ElementType type;
    std::int64_t count;
    std::vector<std::byte> bytes;
  };

  DescriptorType type;
  bool is_finalized = false;
  std::map<Attribute, Value> values{};
  Handle handle = nullptr;                    // of a graph or a plan
  TensorForm tensor{};                        // of a tensor
  std::optional<Convolution> convolution{};   // of an operation that is one
  std::optional<GraphOperation> operation{};  // of an operation that is one of several
  ComputationPtr work{};                      // of a graph, and of all that follows
  EngineConfig config{};                      // of an engine, and of all that follows
  std::vector<EngineConfig> results{};        // of heuristics

  bool has(Attribute attribute) const { return values.contains(attribute); }
  template <class T>
  std::vector<T> all(Attribute attribute) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return {};
    std::vector<T> read(static_cast<std::size_t>(found->second.count));
    if (!read.empty()) std::memcpy(read.data(), found->second.bytes.data(), read.size() * sizeof(T));
    return read;
  }
  template <class T>
  T one(Attribute attribute) const {
    const std::vector<T> found = all<T>(attribute);
    return found.empty() ? T{} : found[0];
  }
};
using DescriptorPtr = std::shared_ptr<DescriptorState>;

/// All that callers have handles of. Guarded by Process::mutex.
struct Known {
  cuda::host::Handles<HandleState, Handle> handles{"a handle of cuDNN"};
  cuda::host::Handles<DescriptorState, Descriptor> descriptors{"a descriptor"};

  /// Every descriptor that this one was made of is still there; a report says otherwise.
  bool are_there(const DescriptorState& of, const PlacePtr& place);
};
Known& known();

/// What an attribute is set to.
struct AttributeRule {
  ElementType type;
  std::int64_t count;  // 0: any
  bool is_needed;
};
/// Null: descriptors of this type have no such attribute that can be set.
const AttributeRule* rule_of(DescriptorType type, Attribute attribute);
std::size_t bytes_of_element(ElementType type) noexcept;

/// Success: it is complete and means something. Otherwise `mistake` says what is wrong for everybody, or is empty where
/// only this library cannot.
Status finalize(DescriptorState& descriptor, const PlacePtr& place, std::string& mistake);

}  // namespace troupe::cuda::dnn::host
