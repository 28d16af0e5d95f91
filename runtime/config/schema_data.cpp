#include "runtime/config/detail/sections.hpp"
#include "runtime/data/augment.hpp"

namespace troupe::detail {
namespace {

using S = Settings;
using D = Settings::Data;
using V = TomlValue;
using K = ValueKind;

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

}  // namespace

Keys data_keys() {
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
       "Files are looked for in this order: at --set data.path, and then nowhere else; at this key, if they are there; "
       "in TROUPE_DATA, a folder that contains mnist/ (source = \"idx\") and cifar10/. If there are none, idx uses "
       "generated digits; with another source the run ends. The line that begins with `Data:` says which were used."},
      {"data.batch", Custom{store_batches, show_batches}, array_of(K::batches, 1, 64, {1, 1e6}),
       "samples per rank and step, or a schedule of them", "100",
       "A step takes this number times the number of ranks. With placement.split = \"measured\" it is the mean over "
       "the ranks. [[64, 10], [128, 10], [256, 0]]: 64 for the first 10 epochs, 128 for the next 10, 256 for the rest. "
       "Epochs may be fractions; a new size takes effect with the first step that begins at its epoch or later."},
      {"data.prefetch", at<&S::data, &D::prefetch>, integer(2, 64), "number of batches that a loader keeps ready", "3",
       "Each takes the memory of one batch. A larger number helps if loading times vary."},
      {"data.threads", at<&S::data, &D::threads>, integer(0, 64),
       "number of threads of each loader that decode batches; 0: the loader itself does", "2",
       "The batches are the same, in the same order. Threads help if decoding takes longer than a step and some cores "
       "are free. For images that are files there is always at least one."},
      {"data.augment", at<&S::data, &D::augment>,
       Takes{.kind = K::texts, .least_items = 0, .most_items = 16, .check = check_augment},
       "operations on images when a batch is filled", "[\"crop:4\", \"flip\"]", augment_text()},
      {"data.broken", at<&S::data, &D::broken>, one_of_first<Broken>(2),
       "what happens if an image cannot be read, is not read in time, or is damaged", "\"skip\"",
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
  };
}

}  // namespace troupe::detail
