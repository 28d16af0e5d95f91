#include <charconv>

#include "runtime/config/detail/layers.hpp"
#include "runtime/config/detail/sections.hpp"
#include "runtime/data/augment.hpp"

namespace troupe::detail {
namespace {

using S = Settings;
using D = Settings::Data;
using P = Settings::Placement;
using C = Settings::Checkpoint;
using F = Settings::Faults;
using V = TomlValue;
using K = ValueKind;

constexpr std::size_t kMostRanks = 1024;
constexpr std::uint32_t kMostThreads = 4096;
constexpr std::uint32_t kMostMeshRanks = 65'536;

void store_batches(S& s, const V& v) {
  const auto rows = [](const V& one) { return static_cast<std::uint32_t>(one.integer); };
  s.data.batches.clear();
  for (const V& pair : v.items) s.data.batches.push_back({rows(pair.items[0]), pair.items[1].number});
  s.data.batch = v.items.empty() ? rows(v) : s.data.batches.front().rows;
}
std::string show_batches(const S& s) {
  if (s.data.batches.empty()) return std::to_string(s.data.batch);
  std::string out;
  for (const D::Batch& one : s.data.batches)
    out += text(out.empty() ? "[" : ", ", '[', one.rows, ", ", number_text(one.epochs), ']');
  return out + "]";
}

void store_non_finite(S& s, const V& v) {
  s.rule.skips_non_finite = v.text == "skip";
  s.rule.stops_non_finite = v.text == "roll_back";
}
std::string show_non_finite(const S& s) {
  return in_quotes(s.rule.skips_non_finite ? "skip" : s.rule.stops_non_finite ? "roll_back" : "stop");
}

/// "2x4": 2 nodes with 4 ranks each.
std::optional<S::Placement::Mesh> mesh_of(std::string_view words) {
  S::Placement::Mesh mesh;
  const char* const end = words.data() + words.size();
  const auto [times, first] = std::from_chars(words.data(), end, mesh.nodes);
  if (first != std::errc{} || times == end || *times != 'x') return std::nullopt;
  const auto [stop, second] = std::from_chars(times + 1, end, mesh.ranks);
  const bool fits = mesh.nodes > 0 && mesh.ranks > 0 && std::uint64_t{mesh.nodes} * mesh.ranks <= kMostMeshRanks;
  return second == std::errc{} && stop == end && fits ? std::optional{mesh} : std::nullopt;
}
std::optional<Finding> check_mesh(const V& v) {
  if (v.text.empty() || mesh_of(v.text)) return std::nullopt;
  return invalid(text("is ", describe(v), ", but takes nodes x ranks of each, as in placement.mesh = \"2x4\", at most ",
                      kMostMeshRanks, " ranks together"));
}
void store_mesh(S& s, const V& v) { s.placement.mesh = mesh_of(v.text).value_or(S::Placement::Mesh{}); }
std::string show_mesh(const S& s) {
  const S::Placement::Mesh& mesh = s.placement.mesh;
  return in_quotes(mesh.nodes == 0 ? std::string{} : text(mesh.nodes, 'x', mesh.ranks));
}

void store_device_threads(S& s, const V& v) {
  const bool is_word = v.kind == V::Kind::text;
  s.placement.device_threads = {is_word ? 0 : static_cast<std::uint32_t>(v.integer), is_word && v.text == "auto"};
}
std::string show_device_threads(const S& s) {
  const P::DeviceThreads& threads = s.placement.device_threads;
  return threads.count != 0 ? std::to_string(threads.count) : in_quotes(threads.tried ? "auto" : "cores");
}

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

std::optional<Finding> check_augment(const V& v) {
  std::vector<std::string> written;
  for (const V& item : v.items) {
    if (const std::string fault = find_augment_fault(item.text); !fault.empty())
      return invalid(text("has ", in_quotes(item.text), ", which ", fault), item.place);
    written.push_back(item.text);
  }
  const std::string fault = find_augment_fault(written);
  return fault.empty() ? std::nullopt : std::optional{invalid(fault)};
}
std::string augment_text() {
  std::string out =
      "Operations are applied in the order of this list, whatever order they are written in. Random choices depend "
      "only on train.seed, epoch and sample: they are the same for any number of ranks and threads and after a resume. "
      "Samples of the test set are only resized or cropped, and normalized.";
  for (const AugmentOperation& operation : augment_operations())
    out += text(" `", operation.example, "`: ", operation.help);
  return out;
}

std::optional<Finding> check_resume(const V& v) {
  if (!v.text.empty()) return std::nullopt;
  return invalid("is empty; write \"never\", \"auto\", or the path of a checkpoint");
}
std::optional<Finding> check_prompt(const V& v) {
  if (!v.text.empty()) return std::nullopt;
  return invalid("is empty; give the model at least one byte to continue, as in evaluate.text_prompt = \"\\n\"");
}
std::optional<Finding> check_report_dir(const V& v) {
  if (!v.text.empty()) return std::nullopt;
  return invalid("is empty; name a folder, as in report.dir = \"run\", or \".\" for the working directory");
}

}  // namespace

Keys data_and_model_keys() {
  return {
      {"data.source", at<&S::data, &D::source>,
       one_of({"idx", "cifar10", "folder", "map", "shards", "voc", "text", "generated"}), "what kind of data set",
       "\"idx\"",
       "idx: MNIST's four files, plain or .gz. If nothing is found, rtrun generates digits and says so. cifar10: the "
       "binary version of CIFAR-10, data_batch_1.bin to data_batch_5.bin and test_batch.bin, plain or .gz. folder: a "
       "folder train with a folder of .jpg or .png images for each class, whose names are sorted, and test or val with "
       "the same. map: train_map.txt and test_map.txt, a line for each image: its path from the folder of the map "
       "file, a tab, its label as a number from 0 on. shards: train-*.tar and test-*.tar or val-*.tar with images and "
       "their labels, each with an .index, as tools/make-shards makes them. voc: images with boxes in the layout of "
       "Pascal VOC: JPEGImages/NAME.jpg, Annotations/NAME.xml, and lists of the names in ImageSets/Main: trainval.txt "
       "and test.txt, or train.txt and val.txt or test.txt. text: any file; its bytes are tokens from "
       "0 to 255, and the label of each is the byte that follows. generated: 60,000 training and 10,000 test images of "
       "digits that rtrun generates once and keeps in ~/.cache/troupe (55 MB)."},
      {"data.path", at<&S::data, &D::path>, text_in_quotes(),
       "folder of the data set, or the file with source = \"text\", relative to the folder of app.toml",
       "\"data/mnist\"",
       "Files are looked for, in this order: at --set data.path, and then nowhere else; at this key, where the folder "
       "holds them; in TROUPE_DATA, a folder that holds mnist/ (source = \"idx\") and cifar10/. If there are none, idx "
       "uses generated digits; with another source the run ends. The line that begins with `Data:` says which were "
       "used."},
      {"data.batch", Custom{store_batches, show_batches}, array_of(K::batches, 1, 64, {1, 1e6}),
       "samples per rank and step, or a schedule of them", "100",
       "A step takes this number times the number of ranks. With placement.split = \"measured\" it is the mean over "
       "the ranks. [[64, 10], [128, 10], [256, 0]]: 64 for the first 10 epochs, 128 for the next 10, 256 for the rest. "
       "Epochs may be fractions; a new size takes effect with the first step that begins at its epoch or later."},
      {"data.prefetch", at<&S::data, &D::prefetch>, integer(2, 64), "number of batches that a loader keeps ready", "3",
       "Each takes the memory of one batch. A larger number helps where loading times vary."},
      {"data.threads", at<&S::data, &D::threads>, integer(0, 64),
       "number of threads of each loader that decode batches; 0: the loader itself does", "2",
       "The batches are the same, in the same order. Threads help where decoding takes longer than a step, and cores "
       "are left. Images that are files always have one."},
      {"data.augment", at<&S::data, &D::augment>,
       Takes{.kind = K::texts, .least_items = 0, .most_items = 16, .check = check_augment},
       "operations on images when a batch is filled", "[\"crop:4\", \"flip\"]", augment_text()},
      {"data.broken", at<&S::data, &D::broken>, one_of_first<Broken>(2),
       "what happens if an image cannot be read, not in time, or is damaged", "\"skip\"",
       "fatal: the run ends and names the file. skip: a note names the file, and the sample counts neither in the "
       "gradient nor in the figures. Applies to source = \"folder\", \"map\", \"shards\" and \"voc\", whose images are "
       "decoded in the run; with \"voc\" also to annotations, and a loss on boxes counts the sample, whose boxes are "
       "0."},
      {"data.read_s", at<&S::data, &D::read>, number(0.1, 86400),
       "how long reading an image from its file may take, in seconds", "5",
       "A file that has not been read by then, as when a network mount hangs, counts as broken: see data.broken. If 16 "
       "reads hang at once the run ends. Less than faults.exchange_s, so that the other ranks do not give up first; "
       "the "
       "default is at most half of it. "
       "With data.stage the time is that of the first reading. Applies to source = \"folder\", \"map\", \"shards\" "
       "and \"voc\"."},
      {"data.stage", at<&S::data, &D::stage>, one_of_first<Stage>(3),
       "whether images that are files are copied before the run, and where to", "\"memory\"",
       "none: each is read where it is, again in every epoch. memory, disk: the process that reads the data set copies "
       "it first, into memory, or into a file without a name in data.stage_path, from where images are then read; the "
       "copy is removed when the process ends. Useful for folders on other hosts. Applies to source = \"folder\", "
       "\"map\", \"shards\" and \"voc\"; others are in memory anyway. With several ranks on a node write data.loader = "
       "\"node\", so that "
       "there is one copy."},
      {"data.stage_path", at<&S::data, &D::stage_path>, text_in_quotes(),
       "folder of a node's own disk, for stage = \"disk\"", "\"/scratch\"",
       "With room for all images, training and test. A relative path is relative to the working directory."},
      {"data.length",
       at<&S::data, &D::length>,
       integer(1, 65536),
       "bytes of a sample",
       "256",
       "A model learns to predict each byte from the earlier bytes of the sample.",
       {"data.source", {"text"}}},
      {"data.validation",
       at<&S::data, &D::validation>,
       number(0.0001, 0.9),
       "fraction of the text, at its end, that is the test set",
       "0.05",
       {},
       {"data.source", {"text"}}},
      {"data.boxes",
       at<&S::data, &D::boxes>,
       integer(1, 1000),
       "most objects of a sample",
       "100",
       "The sample has the first ones of an image with more, and a line says how many images have more.",
       {"data.source", {"voc"}}},
      {"data.classes",
       at<&S::data, &D::classes>,
       array_of(K::texts, 0, 1000),
       "names of classes, which are numbered from 0 in this order",
       "[\"cat\", \"dog\"]",
       "[]: the sorted names in the training set. An annotation with another name counts as broken.",
       {"data.source", {"voc"}}},
      {"data.scatter", at<&S::data, &D::scatter>, one_of_first<Scatter>(3), "what the last step of an epoch takes",
       "\"exact\"",
       "endless: every step takes data.batch samples per rank; the step in which an epoch ends also takes the first "
       "samples of the next epoch. exact: the last step of an epoch takes the samples that are left, divided among the "
       "ranks, of which some may get none. equal: the last step of an epoch is filled up with samples from the "
       "beginning of the same epoch until all ranks have the same number; not possible with placement.split = "
       "\"measured\"."},
      {"data.loader", at<&S::data, &D::loader>, one_of({"rank", "node"}), "who reads the data set", "\"node\"",
       "rank: every rank reads it itself. node: one rank of each node reads it and fills the batches of all ranks of "
       "the node, directly in their memory, so that the node holds the data set once."},
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
       "first "
       "one reads what it puts out. Cannot be used together with model.units."},
      {"model.onnx", at<&S::model, &S::Model::onnx>, text_in_quotes(),
       "file in the ONNX format with the model and the weights that it starts from; \"\" means model.name",
       "\"pretrained.onnx\"",
       "Relative to the folder of app.toml, or, with --set, to the working directory. Every rank reads it. What it "
       "puts "
       "out is read by softmax_cross_entropy on the labels, or by the first layer of model.layers. docs/onnx.md has "
       "the "
       "operations. A run that resumes takes the weights of its checkpoint. Cannot be used together with model.name, "
       "units, depth, width and heads."},
      {"model.onnx_output", at<&S::model, &S::Model::onnx_output>, text_in_quotes(),
       "which output of the file the model puts out; \"\" means the only one", "\"logits\"",
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

Keys train_keys() {
  return {
      {"train.epochs", at<&S::train, &S::Train::epochs>, integer(1, 1e6), "passes over the training set", "20",
       "An epoch is the number of steps that it takes to use every sample once. data.scatter says what its last step "
       "takes."},
      {"train.steps", at<&S::train, &S::Train::steps>, integer(0, 1e12),
       "number of steps after which the run ends; 0: train.epochs decides", "1000",
       "Counted from the start of the first run, also after a resume. If set, train.epochs is ignored."},
      {"train.seed", at<&S::train, &S::Train::seed>, integer(0, 9.3e18),
       "seed of the starting weights and of the order of samples", "7", "Generated digits do not depend on it."},
      {"train.non_finite", Custom{store_non_finite, show_non_finite}, one_of({"stop", "skip", "roll_back"}),
       "what happens when a loss or a gradient is not finite", "\"skip\"",
       text("stop: the run ends and names the step and the first rank whose loss is not finite; this costs no time. "
            "skip: a step whose gradient is not finite changes no parameter, and a note names the parameter and the "
            "rank; all ranks agree on that before the first parameter changes, which takes one more pass over the "
            "gradients. roll_back: after such a step the run returns to its newest checkpoint, with a lower learning "
            "rate. skip and roll_back: only with update.policy = ",
            quoted_list(policies_that(has_verdicts)), ".")},
      {"train.roll_backs",
       at<&S::train, &S::Train::roll_backs>,
       integer(1, 1000),
       "how often a run returns to a checkpoint before it ends",
       "1",
       "Counted over the whole run, resumed or not.",
       {"train.non_finite", {"roll_back"}}},
      {"train.roll_back_rate",
       at<&S::train, &S::Train::roll_back_rate>,
       number(1e-6, 1),
       "factor by which the learning rate is multiplied each time that a run returns to a checkpoint",
       "0.1",
       "1: the learning rate stays the same.",
       {"train.non_finite", {"roll_back"}}},
      {"train.recompute", at<&S::train, &S::Train::recompute>,
       Takes{.kind = K::texts, .least_items = 0, .most_items = 256},
       "layers whose outputs are computed again in the backward pass instead of being kept (gradient checkpointing)",
       "[\"block_1\", \"block_2\"]",
       "Takes less memory and more time; the gradients have the same bits. Each text is one range of layers, of which "
       "only those outputs are kept that layers outside of it read: \"block_1\" is the layer of this name, or all "
       "layers "
       "whose names begin with block_1 and a dot; \"block_1..block_4\" is one range from the first layer of block_1 to "
       "the last one of block_4. [\"segments:4\"] cuts the whole model into 4 ranges of about the same size, and keeps "
       "all of the last one. The names of the layers are those of [model] layers, or those that rtrun plan prints."},
      {"train.deterministic", at<&S::train, &S::Train::deterministic>, yes_or_no(),
       "whether runs with the same settings on the same number of ranks, divided alike among nodes, end with the same "
       "bits",
       "true",
       "Recorded in the plan and in checkpoints. A job that was interrupted and resumed on the same number of ranks "
       "then ends with the same bits as one that was not interrupted."},
  };
}

Keys other_keys() {
  return {
      {"placement.device", at<&S::placement, &P::device>, one_of({"auto", "cpu", "cuda"}), "what a rank computes on",
       "\"auto\"",
       "cpu: its cores. cuda: a GPU of its node, by NVIDIA's driver; the ranks of a node take its GPUs in turn, and "
       "may share one. auto: a GPU where CUDA shows one and can compute the model's layers, otherwise the cores. auto "
       "is "
       "cpu in programs that embed a session, which may read its tensors, and for machines from files (rtrun plan "
       "--nodes), since a file does not say what CUDA can use."},
      {"placement.policy", at<&S::placement, &P::policy>, one_of({"auto", "spread", "pack"}),
       "which cores of its node a rank gets", "\"spread\"",
       "auto: cores in order, the same number for each rank; where a machine from a file has GPUs, those near the "
       "rank's GPU. spread: ranks as far from each other as the node allows, over all NUMA nodes. pack: ranks as near "
       "each other as possible, one NUMA node after another. Under spread and pack a rank has cores of several NUMA "
       "nodes only where it needs more than one has, and shares none with another rank. For rtrun plan --nodes it also "
       "says how many ranks a machine gets."},
      {"placement.mesh", Custom{store_mesh, show_mesh}, text_in_quotes(check_mesh),
       "nodes x ranks of each node that the job must have; \"\": any", "\"2x4\"",
       "A job with a different number of nodes, or of ranks per node, is an error. rtrun plan --nodes places that many "
       "ranks."},
      {"placement.cores", at<&S::placement, &P::cores>, integer(0, 4096),
       "number of cores for each rank; 0: the node's cores are divided among its ranks", "2",
       "These cores compute. The node's remaining cores go to the lanes, which then poll: first one for the control "
       "lane of each rank, then one for its bulk lane. More cores than the node has is an error."},
      {"placement.device_threads", Custom{store_device_threads, show_device_threads},
       integer_or({"cores", "auto"}, 1, kMostThreads), "number of threads on which a rank's CPU device computes",
       "\"auto\"",
       "cores: one for each of the rank's cores. auto: a trial at the start of the run, which takes about a second, "
       "lets each rank compute steps of the model on all of its cores, on half and a quarter of them, and on one, and "
       "takes the fastest; a note tells what was tried and chosen. On cores that other programs use, one thread can be "
       "faster than several, which wait for each other in every layer. Not together with train.deterministic, since "
       "the bits of a run depend on the number of threads. A number above that of the rank's cores is an error."},
      {"placement.affinity", at<&S::placement, &P::affinity>, one_of({"plan", "threads", "none"}),
       "what is pinned where the plan places a rank", "\"none\"",
       "plan: its threads stay on the rank's processors, its memory comes from the rank's NUMA nodes, and its "
       "transport uses the rank's network device (UCX_NET_DEVICES comes first). threads: only the threads. none: "
       "nothing, and waits sleep at once; for machines whose processors other jobs use too. What was not possible is "
       "reported at the start of the run."},
      {"placement.split", at<&S::placement, &P::split>, one_of({"equal", "measured"}),
       "how ranks share a step's samples", "\"measured\"",
       "equal: each rank takes data.batch. measured: in proportion to the speed at which each rank was measured to "
       "compute. The sum stays data.batch times the number of ranks, and the gradient is still the mean over all "
       "samples."},
      {"placement.min_share", at<&S::placement, &P::min_share>, number(0, 1),
       "smallest number of samples of a rank with split = \"measured\", as a fraction of data.batch", "0.05",
       "Rounded up to a multiple of 8 samples (of 4 if data.batch is below 64, of 1 if it is below 16)."},
      {"placement.max_share", at<&S::placement, &P::max_share>, number(1, 1024),
       "largest number of samples of a rank with split = \"measured\", as a multiple of data.batch", "4",
       "Every slot of the loader's pool has room for that many."},
      {"placement.stripes", at<&S::placement, &P::stripes>, array_of(K::numbers, 0, kMostRanks, {0, 1e9}),
       "share of the parameters that each rank owns, one number per rank; []: equal shares", "[1, 1, 1, 0]",
       "The numbers are proportions. An owner keeps the optimizer's state of its share (its stripe) and updates it, or "
       "lets a shard do so. Shares are whole blocks of 1,024 parameters. 0: no share, for a rank that is slow or badly "
       "connected."},
      {"placement.bandwidth", at<&S::placement, &P::bandwidth>, array_of(K::numbers, 0, kMostRanks, {0, 1e15, true}),
       "network bandwidth of each rank, in any unit, from which the shares of the parameters are computed; []: not "
       "used",
       "[10, 10, 10, 2.5]",
       "The shares are those with which an exchange takes the least time. Not together with placement.stripes."},
      {"evaluate.every_epochs", at<&S::evaluate, &S::Evaluate::every_epochs>, integer(0, 1e6),
       "epochs from one evaluation on the test set to the next; 0: never", "1",
       "There is also an evaluation at the end of the run. Every rank evaluates its part of the test set."},
      {"evaluate.patience", at<&S::evaluate, &S::Evaluate::patience>, integer(0, 1e6),
       "evaluations in a row without a lower loss on the test set after which the run ends; 0: it does not", "5",
       "The run then ends like one that is asked to stop: all ranks at the same step, saved, with exit code 0. "
       "Training waits for each evaluation. A run that resumes from a checkpoint counts the evaluations that the log "
       "in report.dir has up to its step; one that was in progress when the run was killed may be missing there."},
      {"evaluate.min_change", at<&S::evaluate, &S::Evaluate::min_change>, number(0, 1e9),
       "how much lower than the best one before a loss on the test set must be to count as lower", "0.001",
       "Only with evaluate.patience."},
      {"evaluate.text_bytes",
       at<&S::evaluate, &S::Evaluate::text, &TextSettings::bytes>,
       integer(0, 65536),
       "bytes of text that the model generates after each evaluation; 0: none",
       "200",
       "The text is printed with the line of its epoch, and is in the log and on the page. It depends only on the "
       "weights, train.seed and the step. The model must predict each byte from the earlier ones, as gpt does. Rank "
       "0's "
       "process computes it on a thread of its own from a copy of the weights (4 bytes for each), while training goes "
       "on; it ends early after half of faults.exchange_s.",
       {"data.source", {"text"}}},
      {"evaluate.text_prompt",
       at<&S::evaluate, &S::Evaluate::text, &TextSettings::prompt>,
       text_in_quotes(check_prompt),
       "how the text begins",
       "\"The \"",
       "Only with evaluate.text_bytes. Of a prompt that is longer than data.length the model reads the last bytes.",
       {"data.source", {"text"}}},
      {"evaluate.text_temperature",
       at<&S::evaluate, &S::Evaluate::text, &TextSettings::temperature>,
       number(0, 100),
       "divisor of the logits: a larger one makes unlikely bytes more frequent; 0: always the most likely byte",
       "0.8",
       "Only with evaluate.text_bytes.",
       {"data.source", {"text"}}},
      {"evaluate.text_top_k",
       at<&S::evaluate, &S::Evaluate::text, &TextSettings::most_likely>,
       integer(0, 256),
       "how many of the most likely bytes one is drawn from; 0: all",
       "40",
       "Only with evaluate.text_bytes.",
       {"data.source", {"text"}}},
      {"checkpoint.dir", at<&S::checkpoint, &C::dir>, text_in_quotes(),
       "folder of checkpoints, relative to the working directory; \"\": the folder checkpoints in report.dir",
       "\"run/checkpoints\"", "Ranks on several hosts need a folder that all of them can reach."},
      {"checkpoint.every_steps", at<&S::checkpoint, &C::every_steps>, integer(0, 1e12),
       "steps from one checkpoint to the next, besides the one at the end; 0: none at all", "500",
       "A save that is due while the previous one is still being written is skipped."},
      {"checkpoint.keep", at<&S::checkpoint, &C::keep>, integer(1, 1e6), "how many of the newest checkpoints are kept",
       "3", "Counts checkpoints of this run; those of other runs in the folder are not removed."},
      {"checkpoint.keep_best", at<&S::checkpoint, &C::keep_best>, yes_or_no(),
       "whether to save after every evaluation too, and to keep the best checkpoint in addition to the newest", "true",
       "Best means the highest accuracy on the test set."},
      {"checkpoint.resume", at<&S::checkpoint, &C::resume>, text_in_quotes(check_resume),
       "\"never\"; \"auto\": resume from the newest complete checkpoint, if there is one; or a checkpoint's path",
       "\"auto\"",
       "`rtrun --resume` sets it. A path names one checkpoint, or a folder of them, of which the newest complete one "
       "is used. auto is an error when the newest checkpoint is of a run that started from the beginning in the folder "
       "and another run there has more steps."},
      {"checkpoint.save_s", at<&S::checkpoint, &C::save>, number(0.1, 86400),
       "how long a save may take, and reading a checkpoint on resume, in seconds", "300",
       "A save that takes longer ends the run."},
      {"report.dir", at<&S::report, &S::Report::dir>, text_in_quotes(check_report_dir),
       "folder of results, relative to the working directory", "\"run\"",
       "Created if it does not exist. Holds report.html, log (JSON), log.csv, and checkpoints unless checkpoint.dir "
       "names another folder."},
      {"report.format", at<&S::report, &S::Report::format>, one_of({"chainermn", "mxnet", "cntk", "json"}),
       "how results are printed", "\"chainermn\"",
       "chainermn: a table with a line for each epoch. mxnet: the lines of MXNet's fit() and Speedometer. cntk: those "
       "of CNTK's ProgressPrinter. json: one JSON object per line."},
      {"report.every_steps",
       at<&S::report, &S::Report::every_steps>,
       integer(0, 1e12),
       "steps from one line inside an epoch to the next; 0: no such lines",
       "100",
       {},
       {"report.format", {"mxnet", "cntk"}}},
      {"report.trace", at<&S::report, &S::Report::trace>, text_in_quotes(),
       "file for a trace of the run, in the JSON of Chrome's tracing and Perfetto; \"\": none", "\"trace.json\"",
       "The same as rtrun --trace FILE. A row for each stream, lane, link and actor of each rank, with spans named by "
       "what was done, step and bucket. Every rank keeps its first 1,048,576 spans. Ranks that rtrun does not start on "
       "its own machine write separate files, with .rank-N appended to the name. rtrun timeline draws a step of it."},
      {"faults.on_loss", at<&S::faults, &F::on_loss>,
       one_of({"abort"}, {"shrink", "wait"}, "faults.on_loss = \"abort\""), "what the others do when a rank is lost",
       "\"abort\"", "abort: the others name the rank, its node and the step, and exit with 4."},
      {"faults.dead_ms", at<&S::faults, &F::dead>, integer(100, 600000),
       "silence after which a rank is dead, in milliseconds", "10000",
       "At most faults.exchange_s, which is the default where it is shorter. A killed process is noticed without it; "
       "raise it where ranks get no processor time for seconds. A silent rank is noted after 300 ms or a tenth of it, "
       "whichever is longer, but after a third of it at the latest."},
      {"faults.start_s", at<&S::faults, &F::start>, number(0.1, 86400),
       "how long ranks may take to connect to rank 0 at the start, in seconds", "60",
       "After that time rank 0 names the missing ranks, and all exit with 4."},
      {"faults.exchange_s", at<&S::faults, &F::exchange>, number(0.1, 86400),
       "how long an exchange may wait, in seconds", "30",
       "At least faults.dead_ms. Waiting for gradients or parameters longer than that ends the run."},
      {"faults.stop_s", at<&S::faults, &F::stop>, number(0.1, 86400), "how long an orderly end may take, in seconds",
       "10", "Counted from Ctrl-C or SIGTERM; processes that have not ended by then are killed."},
  };
}

}  // namespace troupe::detail
