#include "runtime/onnx/detail/onnx_file.hpp"

#include <bit>
#include <cstring>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/onnx/detail/protobuf_reader.hpp"

namespace troupe::detail {
namespace {

using Bytes = std::span<const std::byte>;

// Field numbers and types as onnx.proto of ONNX 1.15 has them.
constexpr std::int64_t kFloat = 1, kInt32 = 6, kInt64 = 7;
constexpr std::size_t kMostNodes = 1 << 17;  // which take more memory than bytes
constexpr std::int64_t kOldestOpset = 7, kNewestOpset = 24;

/// Elements of `raw`, whose numbers are little-endian.
template <class Element>
std::vector<Element> elements_of(Bytes raw) {
  TROUPE_CHECK(raw.size() % sizeof(Element) == 0, Code::invalid, raw.size(), " bytes of numbers of ", sizeof(Element));
  std::vector<Element> all(raw.size() / sizeof(Element));
  if (!raw.empty()) std::memcpy(all.data(), raw.data(), raw.size());
  return all;
}

std::uint64_t count_of(std::string_view name, const std::vector<std::int64_t>& dims) {
  std::uint64_t count = 1;
  for (const std::int64_t dim : dims) {
    const bool fits = dim >= 0 && !__builtin_mul_overflow(count, static_cast<std::uint64_t>(dim), &count);
    TROUPE_CHECK(fits, Code::invalid, "tensor \"", name, "\" has a dimension of ", dim);
  }
  return count;
}

struct NamedNumbers {
  std::string_view name;
  OnnxNumbers numbers;
};

NamedNumbers tensor_in(Bytes message) {
  NamedNumbers made;
  auto& [name, numbers] = made;
  std::int64_t type = 0, place = 0;
  Bytes raw;
  for (ProtobufReader reader(message); reader.next();) {
    switch (reader.field()) {
      case 1: reader.numbers(numbers.dims); break;
      case 2: type = reader.number(); break;
      case 4: reader.f32s(numbers.f32); break;
      case 5:
      case 7: reader.numbers(numbers.integers); break;
      case 8: name = reader.text(); break;
      case 9: raw = reader.bytes(); break;
      case 14: place = reader.number(); break;
      default: reader.skip();
    }
  }
  TROUPE_CHECK(place == 0, Code::unsupported, "tensor \"", name,
               "\" lies in another file; write model and weights into one");
  TROUPE_CHECK(type == kFloat || type == kInt64 || type == kInt32, Code::unsupported, "tensor \"", name, "\" has type ",
               type, " of ONNX; this build reads float, int32 and int64 (1, 6, 7)");
  numbers.whole = type != kFloat;
  if (!raw.empty() && type == kFloat) numbers.f32 = elements_of<float>(raw);
  if (!raw.empty() && type == kInt64) numbers.integers = elements_of<std::int64_t>(raw);
  if (!raw.empty() && type == kInt32) {
    const std::vector<std::int32_t> narrow = elements_of<std::int32_t>(raw);
    numbers.integers.assign(narrow.begin(), narrow.end());
  }
  const std::uint64_t found = numbers.whole ? numbers.integers.size() : numbers.f32.size();
  TROUPE_CHECK(count_of(name, numbers.dims) == found, Code::invalid, "tensor \"", name, "\" has ", found,
               " numbers, which its dimensions do not");
  return made;
}

void take_attribute(OnnxNode& node, Bytes message) {
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
  switch (type) {
    case 1: node.f32s[name] = f32; break;
    case 2: node.numbers[name] = number; break;
    case 3: node.texts[name] = words; break;
    case 4: node.tensors[name] = tensor_in(tensor).numbers; break;
    case 7: node.lists[name] = std::move(list); break;
    default: break;  // of no operation that is read here
  }
}

OnnxNode node_in(Bytes message) {
  OnnxNode node;
  std::string_view domain;
  std::vector<Bytes> attributes;
  for (ProtobufReader reader(message); reader.next();) {
    switch (reader.field()) {
      case 1: node.inputs.push_back(reader.text()); break;
      case 2: node.outputs.push_back(reader.text()); break;
      case 3: node.name = reader.text(); break;
      case 4: node.operation = reader.text(); break;
      case 5: attributes.push_back(reader.bytes()); break;
      case 7: domain = reader.text(); break;
      default: reader.skip();
    }
  }
  TROUPE_CHECK(domain.empty() || domain == "ai.onnx", Code::unsupported, "node ", node.name, " (", node.operation,
               ") is of the domain ", domain, "; this build reads operations of ONNX itself");
  TROUPE_CHECK(!node.outputs.empty(), Code::invalid, "node ", node.name, " (", node.operation, ") puts out nothing");
  if (node.name.empty()) node.name = node.outputs.front();
  for (const Bytes attribute : attributes) take_attribute(node, attribute);
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
      value.whole = tensor.number() != kFloat;
    } else if (tensor.field() == 2) {
      for (ProtobufReader shape(tensor.bytes()); shape.next();)
        shape.field() == 1 ? value.dims.push_back(dim_in(shape.bytes())) : shape.skip();
    } else {
      tensor.skip();
    }
  }
  return value;
}

void take_graph(OnnxFile& file, Bytes message) {
  std::vector<OnnxValue> inputs;
  for (ProtobufReader reader(message); reader.next();) {
    switch (reader.field()) {
      case 1:
        TROUPE_CHECK(file.nodes.size() < kMostNodes, Code::unsupported, "it has more than ", kMostNodes, " nodes");
        file.nodes.push_back(node_in(reader.bytes()));
        break;
      case 2: file.name = reader.text(); break;
      case 5: {
        NamedNumbers found = tensor_in(reader.bytes());
        file.initializers[found.name] = std::move(found.numbers);
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

template <class Map, class Value>
Value found_or(const Map& map, std::string_view name, Value otherwise) {
  const auto at = map.find(name);
  return at == map.end() ? otherwise : at->second;
}

}  // namespace

std::int64_t OnnxNode::number(std::string_view attribute, std::int64_t otherwise) const {
  return found_or(numbers, attribute, otherwise);
}
float OnnxNode::f32(std::string_view attribute, float otherwise) const { return found_or(f32s, attribute, otherwise); }
std::string_view OnnxNode::text(std::string_view attribute, std::string_view otherwise) const {
  return found_or(texts, attribute, otherwise);
}
const std::vector<std::int64_t>* OnnxNode::list(std::string_view attribute) const {
  const auto at = lists.find(attribute);
  return at == lists.end() ? nullptr : &at->second;
}

OnnxFile parse_onnx(Bytes bytes) {
  OnnxFile file;
  std::int64_t opset = 0;
  bool has_graph = false;
  for (ProtobufReader reader(bytes); reader.next();) {
    if (reader.field() == 7) {
      TROUPE_CHECK(!std::exchange(has_graph, true), Code::invalid, "it has two graphs");
      take_graph(file, reader.bytes());
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
