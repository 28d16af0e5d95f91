#include "runtime/onnx/detail/onnx_file.hpp"

#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/onnx/detail/protobuf_reader.hpp"

namespace troupe::detail {
namespace {

using Bytes = std::span<const std::byte>;

// Field numbers as onnx.proto of ONNX 1.15 has them.
constexpr std::size_t kMostNodes = 1 << 17;  // which take more memory than bytes
constexpr std::int64_t kOldestOpset = 7, kNewestOpset = 24;

void take_attribute(OnnxNode& node, Bytes message, ExternalData& external) {
  std::string_view name, words;
  std::int64_t number = 0;
  float f32 = 0;
  std::vector<std::int64_t> list;
  std::int64_t type = 0;
  Bytes tensor;
  for (ProtobufReader reader(message); reader.next();) {
    switch (reader.field()) {
      case 1: name = reader.text(); break;
      case 2: f32 = reader.f32(); break;
      case 3: number = reader.number(); break;
      case 4: words = reader.text(); break;
      case 5: tensor = reader.bytes(); break;
      case 8: reader.numbers(list); break;
      case 20: type = reader.number(); break;
      default: reader.skip();
    }
  }
  TROUPE_CHECK(type != 0, Code::unsupported, "node ", node.name, " (", node.operation, ") has the attribute ", name,
               " without a type, as files of ONNX before version 1 did; export the model again");
  switch (type) {
    case 1: node.f32s[name] = f32; break;
    case 2: node.numbers[name] = number; break;
    case 3: node.texts[name] = words; break;
    case 4: node.tensors[name] = parse_tensor(tensor, external); break;
    case 7: node.lists[name] = std::move(list); break;
    default: break;  // of no operation that is read here
  }
}

OnnxNode node_in(Bytes message, ExternalData& external) {
  OnnxNode node;
  std::vector<Bytes> attributes;
  for (ProtobufReader reader(message); reader.next();) {
    switch (reader.field()) {
      case 1: node.inputs.push_back(reader.text()); break;
      case 2: node.outputs.push_back(reader.text()); break;
      case 3: node.name = reader.text(); break;
      case 4: node.operation = reader.text(); break;
      case 5: attributes.push_back(reader.bytes()); break;
      case 7: node.domain = reader.text(); break;
      default: reader.skip();
    }
  }
  TROUPE_CHECK(!node.outputs.empty(), Code::invalid, "node ", node.name, " (", node.operation, ") puts out nothing");
  if (node.name.empty()) node.name = node.outputs.front();
  for (const Bytes attribute : attributes) take_attribute(node, attribute, external);
  return node;
}

std::int64_t dim_in(Bytes message) {
  std::int64_t dim = 0;
  for (ProtobufReader reader(message); reader.next();)
    reader.field() == 1 ? void(dim = reader.number()) : reader.skip();
  return dim;
}

/// The one message that field `field` of `message` has; the last of several.
Bytes inner(Bytes message, std::uint32_t field) {
  Bytes found;
  for (ProtobufReader reader(message); reader.next();)
    reader.field() == field ? void(found = reader.bytes()) : reader.skip();
  return found;
}

OnnxValue value_in(Bytes message) {
  OnnxValue value;
  for (ProtobufReader reader(message); reader.next();)
    reader.field() == 1 ? void(value.name = reader.text()) : reader.skip();
  for (ProtobufReader tensor(inner(inner(message, 2), 1)); tensor.next();) {
    if (tensor.field() == 1) {
      value.whole = is_whole(tensor.number());
    } else if (tensor.field() == 2) {
      for (ProtobufReader shape(tensor.bytes()); shape.next();)
        shape.field() == 1 ? value.dims.push_back(dim_in(shape.bytes())) : shape.skip();
    } else {
      tensor.skip();
    }
  }
  return value;
}

void take_graph(OnnxFile& file, Bytes message, ExternalData& external) {
  std::vector<OnnxValue> inputs;
  for (ProtobufReader reader(message); reader.next();) {
    switch (reader.field()) {
      case 1:
        TROUPE_CHECK(file.nodes.size() < kMostNodes, Code::unsupported, "it has more than ", kMostNodes, " nodes");
        file.nodes.push_back(node_in(reader.bytes(), external));
        break;
      case 2: file.name = reader.text(); break;
      case 5: {
        OnnxNumbers found = parse_tensor(reader.bytes(), external);
        file.initializers[found.name] = std::move(found);
        break;
      }
      case 11: inputs.push_back(value_in(reader.bytes())); break;
      case 12: file.outputs.push_back(value_in(reader.bytes())); break;
      default: reader.skip();
    }
  }
  for (OnnxValue& input : inputs)  // older writers list initializers, too
    if (!file.initializers.contains(input.name)) file.inputs.push_back(std::move(input));
}

std::int64_t opset_in(Bytes message) {
  std::string_view domain;
  std::int64_t version = 0;
  for (ProtobufReader reader(message); reader.next();) {
    if (reader.field() == 1)
      domain = reader.text();
    else if (reader.field() == 2)
      version = reader.number();
    else
      reader.skip();
  }
  return domain.empty() || domain == "ai.onnx" ? version : 0;
}

/// An attribute of another type must not be taken as one that is left out.
void refuse_other_types(const OnnxNode& node, std::string_view attribute) {
  const bool there = node.numbers.contains(attribute) || node.f32s.contains(attribute) ||
                     node.texts.contains(attribute) || node.lists.contains(attribute) ||
                     node.tensors.contains(attribute);
  TROUPE_CHECK(!there, Code::invalid, "node ", node.name, " (", node.operation, ") has the attribute ", attribute,
               " of another type than its operation has");
}

template <class Map, class Value>
Value found_or(const OnnxNode& node, const Map& map, std::string_view name, Value otherwise) {
  const auto at = map.find(name);
  if (at != map.end()) return at->second;
  refuse_other_types(node, name);
  return otherwise;
}

}  // namespace

std::int64_t OnnxNode::number(std::string_view attribute, std::int64_t otherwise) const {
  return found_or(*this, numbers, attribute, otherwise);
}
float OnnxNode::f32(std::string_view attribute, float otherwise) const {
  return found_or(*this, f32s, attribute, otherwise);
}
std::string_view OnnxNode::text(std::string_view attribute, std::string_view otherwise) const {
  return found_or(*this, texts, attribute, otherwise);
}
const std::vector<std::int64_t>* OnnxNode::list(std::string_view attribute) const {
  const auto at = lists.find(attribute);
  if (at != lists.end()) return &at->second;
  refuse_other_types(*this, attribute);
  return nullptr;
}

OnnxFile parse_onnx(Bytes bytes, ExternalData& external) {
  OnnxFile file;
  std::int64_t opset = 0;
  bool has_graph = false;
  for (ProtobufReader reader(bytes); reader.next();) {
    if (reader.field() == 7) {
      TROUPE_CHECK(!std::exchange(has_graph, true), Code::invalid, "it has two graphs");
      take_graph(file, reader.bytes(), external);
    } else if (reader.field() == 8) {
      if (const std::int64_t version = opset_in(reader.bytes()); version != 0) opset = version;
    } else {
      reader.skip();
    }
  }
  TROUPE_CHECK(has_graph && !file.nodes.empty(), Code::invalid, "it is no model of ONNX: it has no graph with nodes");
  TROUPE_CHECK(opset >= kOldestOpset && opset <= kNewestOpset, Code::unsupported, "its operations are of opset ", opset,
               "; this build reads ", kOldestOpset, " to ", kNewestOpset);
  return file;
}

}  // namespace troupe::detail
