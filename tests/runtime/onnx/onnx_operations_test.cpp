#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "runtime/model/graph.hpp"
#include "runtime/model/layer_kinds.hpp"
#include "tests/runtime/data/corpus.hpp"
#include "tests/runtime/onnx/hand_made_file.hpp"

namespace troupe::testing {
namespace {

using ::testing::HasSubstr;

TEST(OnnxImport, ReadsAConvolutionNetworkAsPyTorchWritesIt) {
  // [N, 2, 3, 4]: 2 channels, a convolution of 1x1 to 3, flattened in the order channels, height, width.
  const File file = File{}
                        .input("x", {0, 2, 3, 4})
                        .f32("features.0.weight", {3, 2, 1, 1}, counted(6))
                        .f32("features.0.bias", {3}, {7, 8, 9})
                        .f32("fc.weight", {2, 36}, counted(72))
                        .f32("fc.bias", {2}, {1, 2})
                        .node("Conv", {"x", "features.0.weight", "features.0.bias"}, "/features/0/Conv_output_0",
                              {list("kernel_shape", {1, 1}), list("pads", {0, 0, 0, 0}), list("strides", {1, 1})})
                        .node("Relu", {"/features/0/Conv_output_0"}, "/Relu_output_0")
                        .node("Flatten", {"/Relu_output_0"}, "/Flatten_output_0", {number("axis", 1)})
                        .node("Gemm", {"/Flatten_output_0", "fc.weight", "fc.bias"}, "logits", {number("transB", 1)})
                        .node("Softmax", {"logits"}, "y", {number("axis", 1)})
                        .output("y");
  const std::vector<Field> fields = image_and_label(Shape{{3, 4, 2}});
  const OnnxModel model = read_model(file.bytes(), fields);
  EXPECT_THAT(graph_text(model, fields),
              HasSubstr("\"features.0\"=conv2d(3) \"Relu\"=relu \"fc\"=dense(2) \"loss\"=softmax_cross_entropy"));
  EXPECT_EQ(model.parameters.at("features.0.weight"), counted(6));
  const std::vector<float>& weight = model.parameters.at("fc.weight");
  ASSERT_EQ(weight.size(), 72U);
  for (std::size_t unit = 0; unit < 2; ++unit)
    for (std::size_t place = 0; place < 12; ++place)
      for (std::size_t channel = 0; channel < 3; ++channel)
        ASSERT_EQ(weight[unit * 36 + place * 3 + channel], static_cast<float>(unit * 36 + channel * 12 + place));
}

TEST(OnnxImport, ReadsMatricesBothWaysAndGeluInFiveNodes) {
  const File file = File{}
                        .input("x", {0, 4})
                        .f32("w", {4, 2}, counted(8))
                        .f32("a.weight", {2, 2}, counted(4))
                        .f32("b", {2}, {5, 6})
                        .f32("root", {}, {1.41421356F})
                        .f32("one", {}, {1})
                        .f32("half", {}, {0.5F})
                        .node("Gemm", {"x", "w"}, "h")
                        .node("Div", {"h", "root"}, "g1")
                        .node("Erf", {"g1"}, "g2")
                        .node("Add", {"g2", "one"}, "g3")
                        .node("Mul", {"h", "g3"}, "g4")
                        .node("Mul", {"g4", "half"}, "g")
                        .node("MatMul", {"g", "a.weight"}, "p")
                        .node("Add", {"b", "p"}, "y")
                        .output("y");
  const std::vector<Field> fields = image_and_label(Shape{{4}});
  const OnnxModel model = read_model(file.bytes(), fields);
  EXPECT_THAT(graph_text(model, fields),
              HasSubstr("\"h\"=dense(2, bias=false) \"g\"=gelu \"a\"=dense(2, flatten=false)"));
  EXPECT_EQ(model.parameters.at("h.weight"), (std::vector<float>{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(model.parameters.at("a.weight"), (std::vector<float>{0, 2, 1, 3}));
  EXPECT_EQ(model.parameters.at("a.bias"), (std::vector<float>{5, 6}));
}

TEST(OnnxImport, NamesTheNodeAndTheOperationOfWhatNoLayerDoes) {
  const std::vector<Field> fields = image_and_label(Shape{{3, 4, 2}});
  const auto with = [](File file) { return file.input("x", {0, 2, 3, 4}).output("y"); };
  EXPECT_THAT(
      refusal(with(File{}.node("Resize", {"x"}, "y")).bytes(), fields),
      HasSubstr("unsupported: m.onnx: node node_y (Resize): no layer does this; change the model, or leave the node "
                "out, so that there are only Add, "));
  EXPECT_THAT(refusal(with(File{}.node("Relu", {"x"}, "y", {}, "com.acme")).bytes(), fields),
              HasSubstr("node node_y (Relu) is of the domain com.acme"));
  EXPECT_THAT(
      refusal(
          with(File{}.f32("w", {3, 2, 2, 2}, counted(24)).node("Conv", {"x", "w"}, "y", {list("pads", {0, 0, 1, 1})}))
              .bytes(),
          fields),
      HasSubstr("node node_y (Conv): pads the two sides of an image differently"));
  EXPECT_THAT(refusal(with(File{}.f32("w", {3, 5, 1, 1}, counted(15)).node("Conv", {"x", "w"}, "y")).bytes(), fields),
              HasSubstr("has weights of another number of channels than its input"));
  EXPECT_THAT(refusal(with(File{}.node("MaxPool", {"x"}, "y", {list("kernel_shape", {9, 9})})).bytes(), fields),
              HasSubstr("node node_y (MaxPool), as layer y"));
  EXPECT_THAT(refusal(with(File{}.node("Relu", {"z"}, "y")).bytes(), fields),
              HasSubstr("reads what no node before it puts out, \"z\""));
  EXPECT_THAT(refusal(with(File{}.f32("w", {2, 2}, counted(3)).node("Relu", {"x"}, "y")).bytes(), fields),
              HasSubstr("invalid: m.onnx: tensor \"w\" has 3 numbers, which its dimensions do not"));
  EXPECT_THAT(refusal(File{}.input("x", {0, 5}).node("Relu", {"x"}, "y").output("y").bytes(), fields),
              HasSubstr("input \"x\" is [?, 5], field image [3, 4, 2] f32"));
  EXPECT_THAT(refusal(with(File{}.node("Relu", {"x"}, "y")).bytes(5), fields), HasSubstr("opset 5"));
  EXPECT_THAT(refusal("no file of ONNX", fields), HasSubstr("invalid: m.onnx: "));
  EXPECT_THAT(refusal("", fields), HasSubstr("it is no model of ONNX"));
}

// ---- What a node may say in several ways ----

const std::vector<Field> kImage = image_and_label(Shape{{6, 8, 2}});

File image_file() { return File{}.input("x", {0, 2, 6, 8}).output("y"); }

/// "name"=kind(attributes) of each layer.
std::string layers_of(const File& file, const std::vector<Field>& fields, const OnnxOptions& options = {}) {
  std::string layers;
  for (const Layer& layer : read_model(file.bytes(), fields, options).layers)
    layers += text(layers.empty() ? "\"" : " \"", layer.name, "\"=", text_of(layer.operation));
  return layers;
}

File convolved(const std::vector<ProtobufMessage>& attributes) {
  return image_file().f32("y.weight", {1, 2, 3, 3}, counted(18)).node("Conv", {"x", "y.weight"}, "y", attributes);
}

TEST(OnnxOperations, ReadsPaddingHoweverItIsTold) {
  const std::string padded = "\"y\"=conv2d(1, kernel=3x3, padding=1x1, bias=false)";
  EXPECT_EQ(layers_of(convolved({list("pads", {1, 1, 1, 1})}), kImage), padded);
  EXPECT_EQ(layers_of(convolved({text_attribute("auto_pad", "SAME_UPPER")}), kImage), padded);
  EXPECT_EQ(layers_of(convolved({text_attribute("auto_pad", "SAME_LOWER")}), kImage), padded);
  EXPECT_EQ(layers_of(convolved({text_attribute("auto_pad", "VALID")}), kImage),
            "\"y\"=conv2d(1, kernel=3x3, bias=false)");
  const File before = image_file()
                          .whole("zeros", {0, 0, 1, 1, 0, 0, 1, 1})
                          .f32("y.weight", {1, 2, 3, 3}, counted(18))
                          .node("Pad", {"x", "zeros"}, "padded")
                          .node("Conv", {"padded", "y.weight"}, "y");
  EXPECT_EQ(layers_of(before, kImage), padded);
  // A stride that skips the last zeros: the sides may differ.
  EXPECT_EQ(layers_of(convolved({list("pads", {1, 1, 0, 0}), list("strides", {2, 2})}), kImage),
            "\"y\"=conv2d(1, kernel=3x3, stride=2x2, padding=1x1, bias=false)");
}

TEST(OnnxOperations, RefusesPaddingThatNoLayerHas) {
  EXPECT_THAT(
      refusal(convolved({list("pads", {0, 0, 1, 1}), list("strides", {2, 2})}).bytes(), kImage),
      HasSubstr("node node_y (Conv): pads the two sides of an image differently: with 0 and 1 zeros there are 3 "
                "windows, and with 0 on both, as layers have them, 2; pad both sides alike"));
  const auto pooled = [](const char* operation, std::vector<ProtobufMessage> attributes) {
    attributes.push_back(list("kernel_shape", {4, 4}));
    attributes.push_back(list("strides", {3, 3}));
    return image_file().node(operation, {"x"}, "y", attributes).bytes();
  };
  EXPECT_THAT(refusal(pooled("MaxPool", {number("ceil_mode", 1)}), kImage),
              HasSubstr("rounds up the number of windows"));
  EXPECT_THAT(refusal(pooled("AveragePool", {list("pads", {1, 1, 1, 1}), number("count_include_pad", 1)}), kImage),
              HasSubstr("counts padding as zeros (count_include_pad)"));
}

TEST(OnnxOperations, PutsTheFactorsOfGemmIntoTheWeights) {
  const File file = File{}
                        .input("x", {0, 2})
                        .f32("w", {2, 3}, counted(6))
                        .f32("b", {1}, {4})
                        .node("Gemm", {"x", "w", "b"}, "y", {f32_attribute("alpha", 2), f32_attribute("beta", 0.5F)})
                        .output("y");
  const OnnxModel model = read_model(file.bytes(), image_and_label(Shape{{2}}));
  EXPECT_EQ(model.parameters.at("y.weight"), (std::vector<float>{0, 6, 2, 8, 4, 10}));
  EXPECT_EQ(model.parameters.at("y.bias"), (std::vector<float>{2, 2, 2}));
  const File other = File{}
                         .input("x", {0, 2})
                         .f32("w", {2, 3}, counted(6))
                         .node("Gemm", {"x", "w"}, "y", {number("transA", 1)})
                         .output("y");
  EXPECT_THAT(refusal(other.bytes(), image_and_label(Shape{{2}})), HasSubstr("transposes the rows that it reads"));
}

TEST(OnnxOperations, ReadsABatchNormOfAModelThatTrains) {
  const File file = image_file()
                        .f32("bn.weight", {2}, {1, 2})
                        .f32("bn.bias", {2}, {3, 4})
                        .f32("bn.running_mean", {2}, {5, 6})
                        .f32("bn.running_var", {2}, {7, 8})
                        .node("BatchNormalization", {"x", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"},
                              "y", {number("training_mode", 1), f32_attribute("momentum", 0.75F)});
  EXPECT_EQ(layers_of(file, kImage), "\"bn\"=batch_norm(0.25) \"y\"=transpose([2, 0, 1])") << "the output is an image";
  EXPECT_EQ(read_model(file.bytes(), kImage).parameters.at("bn.running_var"), (std::vector<float>{7, 8}));
}

TEST(OnnxOperations, ReadsALayerNormOfNineNodes) {
  const File file = File{}
                        .input("x", {0, 4})
                        .whole("last", {-1})
                        .f32("two", {}, {2})
                        .f32("more", {}, {0.001F})
                        .f32("norm.weight", {4}, {1, 2, 3, 4})
                        .f32("norm.bias", {4}, {5, 6, 7, 8})
                        .node("ReduceMean", {"x", "last"}, "mean")
                        .node("Sub", {"x", "mean"}, "centered")
                        .node("Pow", {"centered", "two"}, "squares")
                        .node("ReduceMean", {"squares", "last"}, "variance")
                        .node("Add", {"variance", "more"}, "larger")
                        .node("Sqrt", {"larger"}, "deviation")
                        .node("Div", {"centered", "deviation"}, "normalized")
                        .node("Mul", {"normalized", "norm.weight"}, "weighted")
                        .node("Add", {"weighted", "norm.bias"}, "y")
                        .output("y");
  const std::vector<Field> fields = image_and_label(Shape{{4}});
  EXPECT_EQ(layers_of(file, fields), "\"norm\"=layer_norm(0.001)");
  EXPECT_EQ(read_model(file.bytes(), fields).parameters.at("norm.weight"), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(read_model(file.bytes(), fields).parameters.at("norm.bias"), (std::vector<float>{5, 6, 7, 8}));
}

TEST(OnnxOperations, RefusesFactorsAndBiasesThatAreNotOfTheNormedExtent) {
  const auto said = [](const std::vector<std::int64_t>& weight_dims, const std::vector<std::int64_t>& bias_dims,
                       std::uint32_t width) {
    const File file = File{}
                          .input("x", {0, width, width})
                          .whole("last", {-1})
                          .f32("two", {}, {2})
                          .f32("more", {}, {0.001F})
                          .f32("w", weight_dims, counted(width))
                          .f32("b", bias_dims, counted(width))
                          .node("ReduceMean", {"x", "last"}, "mean")
                          .node("Sub", {"x", "mean"}, "centered")
                          .node("Pow", {"centered", "two"}, "squares")
                          .node("ReduceMean", {"squares", "last"}, "variance")
                          .node("Add", {"variance", "more"}, "larger")
                          .node("Sqrt", {"larger"}, "deviation")
                          .node("Div", {"centered", "deviation"}, "normalized")
                          .node("Mul", {"normalized", "w"}, "weighted")
                          .node("Add", {"weighted", "b"}, "y")
                          .output("y");
    return refusal(file.bytes(), {{"x", Shape{{width, width}}, DType::f32}, {"label", {}, DType::i32, 2}});
  };
  EXPECT_EQ(said({4}, {4}, 4), "accepted");
  EXPECT_EQ(said({1}, {1}, 1), "accepted");
  EXPECT_THAT(said({4, 1}, {4}, 4), HasSubstr("node node_weighted (Mul): multiplies by other numbers"));
  EXPECT_THAT(said({4}, {4, 1}, 4), HasSubstr("node node_y (Add): adds numbers that are neither"));
  EXPECT_THAT(said({1}, {}, 1), HasSubstr("node node_y (Add): adds numbers that are neither"));
}

/// Queries, keys and values of three layers in 2 heads of 3, with shapes that the file computes of its rows.
File attention_file(const std::vector<float>& scale, const std::vector<std::int64_t>& seen) {
  File file = File{};
  file.input("x", {0, 2, 6}).output("y");
  file.whole("first", {0}).whole("rest", {2, 2, 3}).whole("joined", {0, 0, -1}).f32("scale", {}, scale);
  file.raw("seen", {2, 2}, 7, {reinterpret_cast<const char*>(seen.data()), seen.size() * sizeof(std::int64_t)});
  file.f32("never", {}, {-std::numeric_limits<float>::infinity()});
  file.node("Shape", {"x"}, "shape").node("Gather", {"shape", "first"}, "rows");
  file.node("Concat", {"rows", "rest"}, "cut", {number("axis", 0)});
  for (const std::string part : {"q", "k", "v"}) {
    file.f32(part + ".weight", {6, 6}, counted(36)).node("MatMul", {"x", part + ".weight"}, part);
    file.node("Reshape", {part, "cut"}, part + "_cut");
    file.node(
        "Transpose", {part + "_cut"}, part + "_heads",
        {list("perm", part == "k" ? std::vector<std::int64_t>{0, 2, 3, 1} : std::vector<std::int64_t>{0, 2, 1, 3})});
  }
  file.node("Mul", {"q_heads", "scale"}, "scaled").node("MatMul", {"scaled", "k_heads"}, "products");
  file.node("Where", {"seen", "products", "never"}, "scores").node("Softmax", {"scores"}, "shares");
  file.node("MatMul", {"shares", "v_heads"}, "read").node("Transpose", {"read"}, "back", {list("perm", {0, 2, 1, 3})});
  return file.node("Reshape", {"back", "joined"}, "y");
}
const std::vector<float> kScale{1 / std::sqrt(3.0F)};

TEST(OnnxOperations, ReadsAnAttentionOfThreeLayersWithComputedShapes) {
  const std::vector<Field> fields{{"x", Shape{{2, 6}}, DType::f32}, {"label", {}, DType::i32, 12}};
  const std::string layers = layers_of(attention_file(kScale, {1, 0, 1, 1}), fields);
  EXPECT_THAT(layers, HasSubstr("concat"));
  EXPECT_THAT(layers, HasSubstr("\"y\"=attention(2, causal=true)"));
  EXPECT_THAT(layers_of(attention_file(kScale, {1, 1, 1, 1}), fields), HasSubstr("\"y\"=attention(2)"));
  EXPECT_THAT(refusal(attention_file({0.5F}, {1, 1, 1, 1}).bytes(), fields),
              HasSubstr("node node_read (MatMul): reads by shares whose scores were scaled by 0.5; the layer attention "
                        "scales by 1 / sqrt(width / heads) = 0.57735"));
  EXPECT_THAT(refusal(attention_file(kScale, {1, 1, 0, 1}).bytes(), fields),
              HasSubstr("node node_scores (Where): masks other places than the later ones"));
}

TEST(OnnxOperations, TakesTheOutputThatTheOptionsName) {
  const File file = File{}
                        .input("x", {0, 4})
                        .f32("a.weight", {2, 4}, counted(8))
                        .node("Gemm", {"x", "a.weight"}, "logits", {number("transB", 1)})
                        .node("ArgMax", {"logits"}, "best")
                        .output("best")
                        .output("logits");
  const std::vector<Field> fields = image_and_label(Shape{{4}});
  EXPECT_EQ(layers_of(file, fields, {.folder = {}, .output = "logits"}), "\"a\"=dense(2, bias=false)");
  EXPECT_THAT(refusal(file.bytes(), fields),
              HasSubstr("has the outputs \"best\", \"logits\"; model.onnx_output must name the one"));
  EXPECT_THAT(refusal(file.bytes(), fields, {.folder = {}, .output = "worst"}),
              HasSubstr("has no output \"worst\", which model.onnx_output names; there are \"best\", \"logits\""));
}

TEST(OnnxOperations, TellsWhichNodeScalesWhatNoLayerScales) {
  const File file =
      image_file().f32("half", {}, {0.5F}).node("Mul", {"x", "half"}, "scaled").node("Relu", {"scaled"}, "y");
  EXPECT_THAT(refusal(file.bytes(), kImage),
              HasSubstr("node node_scaled (Mul): multiplies or divides by numbers of the file, which no layer does"));
}

TEST(OnnxOperations, CutsPartsOnlyForAnAttention) {
  const File file = File{}.input("x", {0, 2, 6}).split("x", {"a", "b"}, 2).node("Relu", {"a"}, "y").output("y");
  EXPECT_THAT(refusal(file.bytes(), {{"x", Shape{{2, 6}}, DType::f32}, {"label", {}, DType::i32, 6}}),
              HasSubstr("node node_y (Relu): reads \"a\", a part of a tensor, which only an attention does"));
}

// ---- Numbers ----

TEST(OnnxNames, AreTextThatACheckpointCanHold) {
  const auto name = [](const std::string& weight) {
    const File file = File{}
                          .input("x", {0, 4})
                          .f32(weight, {2, 4}, counted(8))
                          .node("Gemm", {"x", weight}, "y", {number("transB", 1)})
                          .output("y");
    return read_model(file.bytes(), image_and_label(Shape{{4}})).layers.front().name;
  };
  EXPECT_EQ(name("gr\u00f6\u00dfe.weight"), "gr\u00f6\u00dfe");
  EXPECT_EQ(name("\xff\xc3.weight"), "_xff_xc3") << "which is not UTF-8";
  EXPECT_EQ(name("a\x1b[31m\nb.weight"), "a_x1b[31m_b") << "which a terminal would obey";
}

TEST(OnnxFile, IsRefusedWhereAnAttributeHasNoType) {
  const ProtobufMessage untyped = ProtobufMessage{}.bytes(1, "transB").number(3, 1);
  const File file =
      File{}.input("x", {0, 2}).f32("w", {2, 2}, counted(4)).node("Gemm", {"x", "w"}, "y", {untyped}).output("y");
  EXPECT_THAT(refusal(file.bytes(), image_and_label(Shape{{2}})),
              HasSubstr("node node_y (Gemm) has the attribute transB without a type"));
}

TEST(OnnxFile, IsRefusedWhereAnAttributeIsOfAnotherTypeOrHasAnUnknownValue) {
  const auto refused = [](const std::vector<ProtobufMessage>& attributes) {
    const File file = File{}
                          .input("x", {0, 1, 4, 4})
                          .f32("k", {2, 1, 2, 2}, counted(8))
                          .node("Conv", {"x", "k"}, "c", attributes)
                          .node("GlobalAveragePool", {"c"}, "p")
                          .node("Flatten", {"p"}, "y")
                          .output("y");
    return refusal(file.bytes(), image_and_label(Shape{{4, 4, 1}}));
  };
  EXPECT_EQ(refused({list("strides", {2, 2})}), "accepted");
  EXPECT_THAT(refused({number("strides", 2)}),
              HasSubstr("node node_c (Conv) has the attribute strides of another type than its operation has"));
  EXPECT_THAT(refused({list("group", {1})}), HasSubstr("has the attribute group of another type"));
  EXPECT_THAT(refused({text_attribute("auto_pad", "BOTH")}), HasSubstr("has an auto_pad that operations do not have"));
}

TEST(OnnxFile, IsRefusedWhereItIsNoFile) {
  const TempFolder folder;
  const std::string pipe = folder.path() / "model.onnx";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto refused = [](const std::string& path) {
    try {
      read_onnx_file(path, image_and_label(Shape{{4}}), {});
    } catch (const Error& error) {
      return std::string{error.what()};
    }
    return std::string{"accepted"};
  };
  EXPECT_EQ(refused(pipe), pipe + ": is not a regular file; name a file of ONNX (model.onnx)");
  EXPECT_THAT(refused(folder.path()), HasSubstr("is not a regular file"));
  EXPECT_THAT(refused(folder.path() / "absent.onnx"), HasSubstr("cannot be opened"));
}

TEST(OnnxNumbers, AreConvertedFrom16And64Bits) {
  const auto dense_of = [](std::int64_t type, std::string_view bytes) {
    const File file = File{}
                          .input("x", {0, 2})
                          .raw("y.weight", {1, 2}, type, bytes)
                          .node("Gemm", {"x", "y.weight"}, "y", {number("transB", 1)})
                          .output("y");
    return read_model(file.bytes(), image_and_label(Shape{{2}})).parameters.at("y.weight");
  };
  using namespace std::string_view_literals;
  EXPECT_EQ(dense_of(10, "\x00\x3e\x01\x80"sv), (std::vector<float>{1.5F, -std::ldexp(1.0F, -24)}));
  EXPECT_EQ(dense_of(10, "\x00\x7c\xff\xfb"sv), (std::vector<float>{HUGE_VALF, -65504}));
  EXPECT_EQ(dense_of(16, "\xc0\x3f\x00\xc0"sv), (std::vector<float>{1.5F, -2}));
  const std::vector<double> doubles{0.25, -3};
  EXPECT_EQ(dense_of(11, {reinterpret_cast<const char*>(doubles.data()), 16}), (std::vector<float>{0.25F, -3}));
  const File strange = File{}.input("x", {0, 2}).raw("w", {1}, 8, "a").node("Relu", {"x"}, "y").output("y");
  EXPECT_THAT(refusal(strange.bytes(), image_and_label(Shape{{2}})), HasSubstr("tensor \"w\" has type 8 of ONNX"));
}

TEST(OnnxNumbers, OfAComputationAreLimited) {
  const File file = image_file()
                        .whole("shape", {1 << 20, 1 << 20})
                        .node("ConstantOfShape", {"shape"}, "large")
                        .node("Add", {"x", "large"}, "y");
  EXPECT_THAT(refusal(file.bytes(), kImage),
              HasSubstr("node node_large (ConstantOfShape): computes 1099511627776 numbers more than a file may"));
}

TEST(OnnxNumbers, AreNotTakenFromBehindAnArrayThatIsSlicedTwiceInOneExtent) {
  const File file = image_file()
                        .whole("numbers", {1, 2, 3, 4})
                        .whole("from", {3, 3})
                        .whole("to", {4, 4})
                        .whole("over", {0, 0})
                        .node("Slice", {"numbers", "from", "to", "over"}, "cut")
                        .node("Reshape", {"x", "cut"}, "y");
  EXPECT_THAT(refusal(file.bytes(), kImage), HasSubstr("node node_cut (Slice): reads numbers of the file"));
}

TEST(OnnxNumbers, GiveNoArrayMoreExtentsThanArraysHave) {
  File reshaped = image_file().whole("count", {1 << 20}).raw("one", {1}, 7, std::string_view{"\1\0\0\0\0\0\0", 8});
  reshaped.node("Expand", {"one", "count"}, "ones").node("Reshape", {"x", "ones"}, "y");
  EXPECT_THAT(refusal(reshaped.bytes(), kImage), HasSubstr("node node_y (Reshape): has more than 16 extents"));
  const File widened =
      image_file().node("Unsqueeze", {"x"}, "y", {list("axes", std::vector<std::int64_t>(1 << 20, 1))});
  EXPECT_THAT(refusal(widened.bytes(), kImage),
              HasSubstr("node node_y (Unsqueeze): adds an extent in a place that its input has not, or too many"));
}

/// A file whose weights lie in another one.
class OnnxExternalData : public ::testing::Test {
 protected:
  OnnxExternalData() {
    std::filesystem::create_directory(folder());
    write(folder() / "weights.bin", counted(10));
    write(folder_.path() / "outside.bin", counted(10));
  }
  static void write(const std::filesystem::path& path, const std::vector<float>& numbers) {
    std::ofstream{path, std::ios::binary}.write(reinterpret_cast<const char*>(numbers.data()),
                                                static_cast<std::streamsize>(numbers.size() * sizeof(float)));
  }
  std::filesystem::path folder() const { return folder_.path() / "model"; }
  static File file(std::string_view location, std::string_view offset = "8") {
    return File{}
        .input("x", {0, 4})
        .external("y.weight", {2, 4}, location, offset)
        .node("Gemm", {"x", "y.weight"}, "y", {number("transB", 1)})
        .output("y");
  }
  std::string refused(const File& file) const {
    return refusal(file.bytes(), fields_, {.folder = folder().string(), .output = {}});
  }

  TempFolder folder_;
  std::vector<Field> fields_ = image_and_label(Shape{{4}});
};

TEST_F(OnnxExternalData, IsReadFromTheModelsFolder) {
  const OnnxOptions options{.folder = folder().string(), .output = {}};
  const OnnxModel model = read_model(file("weights.bin").bytes(), fields_, options);
  EXPECT_EQ(model.parameters.at("y.weight"), (std::vector<float>{2, 3, 4, 5, 6, 7, 8, 9}));
  write(folder() / "weights.bin", counted(20));
  EXPECT_EQ(read_model(file("weights.bin").bytes(), fields_, options).hash, model.hash) << "of what was read";
  write(folder() / "weights.bin", std::vector<float>(10, 1));
  EXPECT_NE(read_model(file("weights.bin").bytes(), fields_, options).hash, model.hash);
}

TEST_F(OnnxExternalData, IsRefusedOutsideOfTheFolder) {
  const std::string outside = "which is outside of the model's folder";
  EXPECT_THAT(refused(file("../outside.bin")), HasSubstr(outside));
  EXPECT_THAT(refused(file("./../model/../outside.bin")), HasSubstr(outside));
  std::filesystem::create_symlink(folder_.path() / "outside.bin", folder() / "link.bin");
  EXPECT_THAT(refused(file("link.bin")), HasSubstr(outside));
  EXPECT_THAT(refused(file((folder() / "weights.bin").string())),
              HasSubstr("which is no path from the model's folder"));
  EXPECT_THAT(refused(file("")), HasSubstr("which is no path from the model's folder"));
  EXPECT_THAT(refused(file(std::string_view{"weights.bin\0/x", 13})), HasSubstr("which is no path"));
  EXPECT_THAT(refused(file("absent.bin")), HasSubstr("which is not there"));
  EXPECT_THAT(refused(file(".")), HasSubstr("which is no regular file"));
  EXPECT_THAT(refusal(file("weights.bin").bytes(), fields_), HasSubstr("this model has no folder"));
}

TEST_F(OnnxExternalData, IsRefusedWhereItHasTooFewBytes) {
  EXPECT_THAT(refused(file("weights.bin", "12")), HasSubstr("has 32 bytes at 12 of "));
  EXPECT_THAT(refused(file("weights.bin", "18446744073709551615")), HasSubstr("has 32 bytes at 18446744073709551615"));
  EXPECT_THAT(refused(file("weights.bin", "-1")), HasSubstr("which is no number of bytes"));
  const File twice = file("weights.bin").external("again", {2, 4}, "weights.bin");
  EXPECT_THAT(refused(twice), HasSubstr("tensor \"again\" shares numbers in "));
}

}  // namespace
}  // namespace troupe::testing
