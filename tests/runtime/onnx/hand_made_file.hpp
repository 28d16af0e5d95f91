#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/onnx/detail/protobuf.hpp"
#include "runtime/onnx/onnx_import.hpp"

// Files as other programs write them, made by hand.
namespace troupe::testing {

using detail::ProtobufMessage;

inline OnnxModel read_model(const std::string& bytes, const std::vector<Field>& fields,
                            const OnnxOptions& options = {}) {
  return read_onnx(std::as_bytes(std::span{bytes}), fields, options, "m.onnx");
}

inline std::string refusal(const std::string& bytes, const std::vector<Field>& fields,
                           const OnnxOptions& options = {}) {
  try {
    read_model(bytes, fields, options);
  } catch (const Error& error) {
    return text(name_of(error.code()), ": ", error.what());
  }
  return "accepted";
}

inline ProtobufMessage list(std::string_view name, const std::vector<std::int64_t>& values) {
  ProtobufMessage made;
  made.bytes(1, name);
  for (const std::int64_t value : values) made.number(8, value);
  return made.number(20, 7);
}
inline ProtobufMessage number(std::string_view name, std::int64_t value) {
  return ProtobufMessage{}.bytes(1, name).number(3, value).number(20, 2);
}

inline ProtobufMessage f32_attribute(std::string_view name, float value) {
  return ProtobufMessage{}.bytes(1, name).f32(2, value).number(20, 1);
}
inline ProtobufMessage text_attribute(std::string_view name, std::string_view value) {
  return ProtobufMessage{}.bytes(1, name).bytes(4, value).number(20, 3);
}

/// A file of one graph.
class File {
 public:
  File& node(std::string_view operation, const std::vector<std::string>& inputs, std::string_view output,
             const std::vector<ProtobufMessage>& attributes = {}, std::string_view domain = {}) {
    ProtobufMessage made;
    for (const std::string& input : inputs) made.bytes(1, input);
    made.bytes(2, output).bytes(3, text("node_", output)).bytes(4, operation);
    for (const ProtobufMessage& attribute : attributes) made.message(5, attribute);
    if (!domain.empty()) made.bytes(7, domain);
    graph_.message(1, made);
    return *this;
  }
  /// In float_data, which other programs may write.
  File& f32(std::string_view name, const std::vector<std::int64_t>& dims, const std::vector<float>& values) {
    ProtobufMessage made;
    for (const std::int64_t dim : dims) made.number(1, dim);
    made.number(2, 1).bytes(8, name);
    for (const float value : values) made.f32(4, value);
    graph_.message(5, made);
    return *this;
  }
  File& whole(std::string_view name, const std::vector<std::int64_t>& values) {
    ProtobufMessage made;
    made.number(1, static_cast<std::int64_t>(values.size())).number(2, 7).bytes(8, name);
    for (const std::int64_t value : values) made.number(7, value);
    graph_.message(5, made);
    return *this;
  }
  /// Of any type, with the bytes of its numbers.
  File& raw(std::string_view name, const std::vector<std::int64_t>& dims, std::int64_t type, std::string_view bytes) {
    ProtobufMessage made;
    for (const std::int64_t dim : dims) made.number(1, dim);
    graph_.message(5, made.number(2, type).bytes(8, name).bytes(9, bytes));
    return *this;
  }
  /// f32 in another file.
  File& external(std::string_view name, const std::vector<std::int64_t>& dims, std::string_view location,
                 std::string_view offset = "0") {
    ProtobufMessage made;
    for (const std::int64_t dim : dims) made.number(1, dim);
    made.number(2, 1).bytes(8, name);
    made.message(13, ProtobufMessage{}.bytes(1, "location").bytes(2, location));
    made.message(13, ProtobufMessage{}.bytes(1, "offset").bytes(2, offset));
    graph_.message(5, made.number(14, 1));
    return *this;
  }
  /// A node that puts out several things.
  File& split(const std::string& input, const std::vector<std::string>& outputs, std::int64_t axis) {
    ProtobufMessage made;
    made.bytes(1, input);
    for (const std::string& output : outputs) made.bytes(2, output);
    graph_.message(1, made.bytes(3, "cut").bytes(4, "Split").message(5, number("axis", axis)));
    return *this;
  }
  /// `type`: 1 is f32, 7 is i64.
  File& input(std::string_view name, const std::vector<std::int64_t>& dims, std::int64_t type = 1) {
    return value(11, name, dims, type);
  }
  File& output(std::string_view name) { return value(12, name, {}, 1); }
  std::string bytes(std::int64_t opset = 17) const {
    return ProtobufMessage{}
        .number(1, 8)
        .message(8, ProtobufMessage{}.bytes(1, "").number(2, opset))
        .message(7, graph_)
        .str();
  }

 private:
  File& value(std::uint32_t field, std::string_view name, const std::vector<std::int64_t>& dims, std::int64_t type) {
    ProtobufMessage shape;
    for (const std::int64_t dim : dims)
      shape.message(1, dim == 0 ? ProtobufMessage{}.bytes(2, "N") : ProtobufMessage{}.number(1, dim));
    const ProtobufMessage tensor = ProtobufMessage{}.number(1, type).message(2, shape);
    graph_.message(field, ProtobufMessage{}.bytes(1, name).message(2, ProtobufMessage{}.message(1, tensor)));
    return *this;
  }
  ProtobufMessage graph_;
};

inline std::vector<float> counted(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return values;
}

inline std::vector<Field> image_and_label(Shape image) {
  return {{"image", std::move(image), DType::f32}, {"label", {}, DType::i32, 2}};
}

inline std::string graph_text(const OnnxModel& model, const std::vector<Field>& fields) {
  std::vector<Layer> layers = model.layers;
  layers.push_back({"loss", SoftmaxCrossEntropy{}, {model.output, "label"}});
  return Graph{model.name, fields, DType::f32, std::move(layers)}.to_string();
}

/// What NAME.json says of NAME.onnx: which fields the data has, and which output the model puts out.
struct FileFacts {
  std::string file, output;
  std::vector<Field> fields;

  explicit FileFacts(std::filesystem::path path) {
    std::ifstream stream{path};
    const auto facts = nlohmann::json::parse(stream);
    const auto tokens = facts.at("tokens").get<std::uint32_t>();
    const Shape shape{facts.at("extents").get<std::vector<std::uint32_t>>()};
    fields = {{"x", shape, tokens > 0 ? DType::i32 : DType::f32, tokens},
              {"label", tokens > 0 ? shape : Shape{}, DType::i32, facts.at("classes").get<std::uint32_t>()}};
    output = facts.at("output").get<std::string>();
    file = path.replace_extension(".onnx").string();
  }
};

}  // namespace troupe::testing
