#include "runtime/config/detail/layers.hpp"
#include "runtime/config/detail/sections.hpp"

namespace troupe::detail {
namespace {

using S = Settings;
using V = TomlValue;
using K = ValueKind;

void store_dtype(S& s, const V& v) {
  s.model.dtype = v.text == "bf16" ? DType::bf16 : v.text == "f16" ? DType::f16 : DType::f32;
  s.rule.scales_loss = s.model.dtype == DType::f16;
}
std::string show_dtype(const S& s) { return in_quotes(name_of(s.model.dtype)); }

void store_loss_scale(S& s, const V& v) {
  s.model.scaling.fixed = v.kind == V::Kind::text ? 0 : static_cast<double>(v.integer);
}
std::string show_loss_scale(const S& s) {
  return s.model.scaling.fixed > 0 ? number_text(s.model.scaling.fixed) : in_quotes("dynamic");
}

}  // namespace

Keys model_keys() {
  return {
      {"model.name", at<&S::model, &S::Model::name>, one_of({"mlp", "lenet", "convnet", "resnet", "gpt"}),
       "a registered model", "\"mlp\"",
       "mlp: dense layers, each but the last followed by a ReLU. lenet: two convolutions with tanh and pooling, then "
       "two dense layers, as apps/mnist/lenet.toml writes them. convnet: CNTK's network of two pairs of convolutions, "
       "as "
       "apps/cifar10/convnet.toml trains it. resnet: residual blocks of convolutions and batch "
       "norms, as apps/cifar10/resnet20.toml trains them. gpt: a decoder of a text's bytes, as apps/text/gpt.toml "
       "trains it. The sizes of input and output follow from the data."},
      {"model.units",
       at<&S::model, &S::Model::units>,
       array_of(K::integers, 1, 8, {1, 65536}),
       "widths of the hidden layers",
       "[1000, 1000]",
       "One number for each layer, in order. Weights start as N(0, 1/inputs), biases as 0.",
       {"model.name", {"mlp"}}},
      {"model.depth",
       at<&S::model, &S::Model::depth>,
       integer(1, 1024),
       "number of a gpt's blocks, or of a resnet's layers",
       "6",
       "resnet: 18, 34, 50, 101 or 152 for images of about 224 x 224; 20, 32, 44, 56, 110 (6 n + 2) for those of 32 x "
       "32. gpt: a block is attention, then two dense layers with GELU between them, the first four times as wide; "
       "each half begins with a layer norm and is added to its input.",
       {"model.name", {"resnet", "gpt"}}},
      {"model.width",
       at<&S::model, &S::Model::width>,
       integer(1, 65536),
       "elements that a block reads and outputs at each position",
       "384",
       {},
       {"model.name", {"gpt"}}},
      {"model.heads",
       at<&S::model, &S::Model::heads>,
       integer(1, 1024),
       "heads of each attention; model.width must be a multiple of it",
       "6",
       {},
       {"model.name", {"gpt"}}},
      {"model.layers",
       Custom{store_layers, show_layers},
       {.kind = K::layers, .check = check_layers},
       "a model of your own, layer by layer; [] means model.name",
       "[{ kind = \"dense\", units = 10 }]",
       "Each entry is a layer: a table with its kind and attributes, or the kind alone in quotes. docs/layers.md has "
       "the kinds. A layer reads the output of the previous layer, or the inputs that inputs = [...] names; name = "
       "\"...\" gives it a name. The first one reads the data's first field. If the last layer is not a loss, "
       "softmax_cross_entropy on the labels is added. With model.onnx the layers follow those of the file, and the "
       "first one reads its output. Cannot be used together with model.units."},
      {"model.onnx", at<&S::model, &S::Model::onnx>, text_in_quotes(),
       "file in the ONNX format with the model and the weights that it starts from; \"\" means model.name",
       "\"pretrained.onnx\"",
       "Relative to the folder of app.toml, or, with --set, to the working directory. Every rank reads it. Its output "
       "is read by softmax_cross_entropy on the labels, or by the first layer of model.layers. docs/onnx.md has "
       "the "
       "operations. A run that resumes takes the weights of its checkpoint. Cannot be used together with model.name, "
       "units, depth, width and heads."},
      {"model.onnx_output", at<&S::model, &S::Model::onnx_output>, text_in_quotes(),
       "the output of the file that is the model's output; \"\" means the only one", "\"logits\"",
       "A file with several outputs needs it. Nodes that only the others need are not read."},
      {"model.label_smoothing", at<&S::model, &S::Model::label_smoothing>, number(0, 1),
       "fraction of the target that all classes share equally", "0.1",
       "Sets smoothing of the last layer's softmax_cross_entropy, also of one that is added automatically. Losses of "
       "evaluations have it too."},
      {"model.dtype", Custom{store_dtype, show_dtype}, one_of({"f32", "bf16", "f16"}),
       "number type of activations and weights", "\"bf16\"",
       "bf16 and f16: weights are also kept as f32, where they are updated; gradients are exchanged as f32. Faster on "
       "processors with instructions for it. f16 has 11 bits of the mantissa, bf16 8, but numbers from 65520 on "
       "overflow and small gradients vanish, so the loss is scaled (model.loss_scale). f16: only on GPUs. Batches are "
       "in bf16 with bf16, otherwise in f32."},
      {"model.loss_scale",
       Custom{store_loss_scale, show_loss_scale},
       integer_or({"dynamic"}, 1, kMostLossScale),
       "factor of the gradient of a rank's mean loss, by which gradients to parameters are divided in f32",
       "1024",
       "dynamic: half after an update whose gradient overflows, twice after model.loss_scale_steps updates without an "
       "overflow, between 1 and 16777216. An update with an overflow is left out, with either. docs/gpu.md has more.",
       {"model.dtype", {"f16"}}},
      {"model.loss_scale_start",
       at<&S::model, &S::Model::scaling, &LossScaling::start>,
       number(kLeastLossScale, kMostLossScale),
       "the first dynamic scale",
       "1024",
       "A power of two costs no bits. Not used by a fixed scale.",
       {"model.dtype", {"f16"}}},
      {"model.loss_scale_steps",
       at<&S::model, &S::Model::scaling, &LossScaling::growth_steps>,
       integer(1, 1e9),
       "updates without an overflow after which a dynamic scale is doubled",
       "500",
       "Not used by a fixed scale.",
       {"model.dtype", {"f16"}}},
      {"model.tf32", at<&S::model, &S::Model::tf32>, yes_or_no(),
       "whether GPUs may round the operands of f32 products to TF32", "true",
       "TF32 has 10 bits of the mantissa, f32 23; sums stay f32. Much faster on tensor cores. It needs cuBLASLt "
       "or cuDNN (docs/gpu.md) and dtype = \"f32\"; elsewhere it changes nothing."},
  };
}

}  // namespace troupe::detail
