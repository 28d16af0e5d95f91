// ckpt: inspects checkpoints. It lists those of a folder, checks that they are complete, and combines the weights in
// one file that any reader of safetensors opens.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>

#include "runtime/base/clock.hpp"
#include "runtime/base/detail/with_context.hpp"
#include "runtime/base/new_file.hpp"
#include "runtime/base/printable.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/store.hpp"
#include "runtime/config/detail/schema.hpp"
#include "runtime/model/graph_text.hpp"
#include "runtime/onnx/onnx_export.hpp"
#include "tools/terminal/terminal.hpp"

namespace {

using namespace troupe;

constexpr std::chrono::milliseconds kProgressEvery{200};

constexpr const char* kFooter = R"(Examples:
  ckpt list run/checkpoints                              list the checkpoints
  ckpt verify run/checkpoints                            check that none of them is damaged
  ckpt weights run/checkpoints -o weights.safetensors    weights of the newest one, for any reader of safetensors
  ckpt export run/checkpoints --onnx model.onnx          model and weights of the newest one, for ONNX programs
  rtrun --resume auto app.toml                           resume from the newest one

Environment: with TERM=dumb, or if stderr is not a terminal, verify, weights and export show no progress.
Exit codes: 0 done, 1 a checkpoint is damaged, 2 wrong use, 3 environment.)";
constexpr const char* kListFooter =
    R"(Prints a line for each checkpoint, the newest first: its folder, steps, samples, size, and its test accuracy if it was
tested. Reads manifests only; `ckpt verify` reads everything.

Example: ckpt list run/checkpoints
Exit codes: 0 done, 2 no checkpoint is there.)";
constexpr const char* kVerifyFooter =
    R"(Prints a line for each checkpoint: "whole", or what is wrong with it. On a terminal it shows its progress.

Example: ckpt verify run/checkpoints
Exit codes: 0 all are whole, 1 one is damaged, 2 no checkpoint is there, 3 environment.)";
constexpr const char* kWeightsFooter =
    R"(The file appears when it is complete. Tensors are f32 and have the names of the model's layers.

Example: ckpt weights run/checkpoints -o weights.safetensors
Exit codes: 0 done, 1 the checkpoint is damaged, 2 no checkpoint is there, 3 the file cannot be written.)";
constexpr const char* kExportFooter =
    R"(The file appears when it is complete. Its model computes what an evaluation computes, in f32, without the losses
(docs/onnx.md).

Example: ckpt export run/checkpoints --onnx model.onnx
Exit codes: 0 done, 1 the checkpoint is damaged, 2 no checkpoint is there, or its model cannot be exported, 3 the file cannot be written.)";

std::uint64_t size_of(const CheckpointManifest& manifest) {
  std::uint64_t bytes = 0;
  for (const CheckpointFile& file : manifest.files) bytes += file.size_bytes;
  return bytes;
}

std::string megabytes(std::uint64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

int list(const std::string& folder) {
  TROUPE_CHECK(std::filesystem::is_directory(folder), Code::invalid, folder, ": there is no such folder");
  const CheckpointStore store(folder);
  const std::vector<CheckpointId> ids = store.list();
  TROUPE_CHECK(!ids.empty(), Code::invalid, folder, ": no checkpoint is in that folder");
  for (const CheckpointId id : ids) {
    try {
      const CheckpointManifest manifest = store.read(id);
      std::cout << fmt::format(
          "{}  {} steps, {} samples, {} in {} files{}\n", store.folder_of(id), manifest.steps, manifest.samples,
          megabytes(size_of(manifest)), manifest.files.size(),
          manifest.test_accuracy ? fmt::format(", test accuracy {:.4f}", *manifest.test_accuracy) : "");
    } catch (const Error& error) {
      std::cout << store.folder_of(id) << "  damaged: " << error.what() << '\n';
    }
  }
  return 0;
}

/// Shows the progress of long work on a terminal, a few times a second.
class Progress {
 public:
  explicit Progress(std::string what) : what_(std::move(what)) {}
  ~Progress() { bar_.clear(); }
  void operator()(std::uint64_t done, std::uint64_t all) {
    if (Clock::now() < next_) return;
    next_ = Clock::now() + kProgressEvery;
    bar_.draw(what_, all > 0 ? static_cast<double>(done) / static_cast<double>(all) : 0,
              fmt::format("{} of {}", megabytes(done), megabytes(all)));
  }

 private:
  const std::string what_;
  terminal::ProgressBar bar_{std::cerr, terminal::draws_bars(STDERR_FILENO), terminal::columns_of(STDERR_FILENO)};
  Clock::time_point next_ = Clock::now() + kProgressEvery;
};

/// Verifies all checkpoints of a folder, or the one at the path.
int verify(Blocking& blocking, const std::string& path) {
  std::vector<CheckpointPlace> places;
  if (const CheckpointStore store(path); !store.list().empty()) {
    for (const CheckpointId id : store.list()) places.push_back({store, id});
  } else {
    places.push_back(find_checkpoint(blocking, path));
  }
  int damaged = 0;
  for (const CheckpointPlace& place : places) {
    const std::string name = place.store.folder_of(place.id);
    Status found;
    {
      Progress progress(name);
      found = place.store.verify(blocking, place.id, std::ref(progress));
    }
    damaged += found.ok() ? 0 : 1;
    std::cout << name << "  " << (found.ok() ? "whole" : found.text()) << '\n';
  }
  return damaged == 0 ? 0 : 1;
}

/// The number of elements of each tensor: the end of its last piece.
std::map<std::string, std::uint64_t> counts_of(const CheckpointManifest& manifest) {
  std::map<std::string, std::uint64_t> counts;
  for (const CheckpointFile& file : manifest.files) {
    for (const CheckpointPiece& piece : file.pieces) {
      if (piece.part != CheckpointPart::parameters) continue;
      std::uint64_t& count = counts[piece.tensor];
      count = std::max(count, piece.first + piece.count);
    }
  }
  return counts;
}

std::uint64_t elements_of(const std::vector<std::uint64_t>& extents) {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : extents)
    if (__builtin_mul_overflow(count, extent, &count)) return ~std::uint64_t{0};
  return count;
}

/// The weights that evaluations used: averages, where the run kept them. `raw`: what training goes on from.
CheckpointPart part_to_write(const CheckpointManifest& manifest, bool raw) {
  const auto averaged = [&](const auto& tensor) { return manifest.has_average(tensor.first); };
  const auto counts = counts_of(manifest);
  return !raw && !counts.empty() && std::ranges::all_of(counts, averaged) ? CheckpointPart::average
                                                                          : CheckpointPart::parameters;
}

const char* name_in_line(CheckpointPart part) noexcept {
  return part == CheckpointPart::average ? " (moving averages)" : "";
}

/// Says what was written, on stdout; on stderr where the file itself may have gone there.
void say_written(const NewFile& file, const std::string& line) { (file.in_place() ? std::cerr : std::cout) << line; }

int weights(Blocking& blocking, const std::string& path, const std::string& to, bool raw) {
  const CheckpointPlace place = find_checkpoint(blocking, path);
  CheckpointReader reader(place.store, place.id);
  const CheckpointManifest& manifest = reader.manifest();
  const CheckpointPart part = part_to_write(manifest, raw);
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, count] : counts_of(manifest)) {
    const auto known = manifest.shapes.find(name);
    TROUPE_CHECK(known == manifest.shapes.end() || elements_of(known->second) == count, Code::corrupt,
                 place.store.folder_of(place.id), ": tensor \"", name, "\" has ", count,
                 " elements, which its shape does not");
    entries.push_back({.name = name,
                       .dtype = "F32",
                       .extents = known != manifest.shapes.end() ? known->second : std::vector{count},
                       .size_bytes = count * sizeof(float)});
  }
  NewFile file(to);
  file.write(format_safetensors(entries, {{"format", "pt"}, {"steps", std::to_string(manifest.steps)}}));
  std::uint64_t all = 0;
  for (const SafetensorsEntry& entry : entries) all += entry.size_bytes;
  std::uint64_t done = 0;
  std::optional<Progress> progress{to};
  std::vector<float> numbers;
  for (const SafetensorsEntry& entry : entries) {
    numbers.resize(entry.size_bytes / sizeof(float));
    reader.read({}, entry.name, part, 0, numbers);
    file.write(std::as_bytes(std::span(numbers)));
    (*progress)(done += entry.size_bytes, all);
  }
  progress.reset();
  file.sync();
  file.publish();
  say_written(file, fmt::format("{}: {} tensors of step {}{}, from {}\n", to, entries.size(), manifest.steps,
                                name_in_line(part), place.store.folder_of(place.id)));
  return 0;
}

int export_onnx(Blocking& blocking, const std::string& path, const std::string& to, bool raw) {
  const CheckpointPlace place = find_checkpoint(blocking, path);
  CheckpointReader reader(place.store, place.id);
  const CheckpointManifest& manifest = reader.manifest();
  const std::string folder = place.store.folder_of(place.id);
  const CheckpointPart part = part_to_write(manifest, raw);
  const Graph graph = with_context(folder, [&] { return parse_graph(manifest.model); });
  const auto counts = counts_of(manifest);
  for (const Parameter& parameter : graph.parameters()) {
    const auto at = counts.find(parameter.name);
    TROUPE_CHECK(at != counts.end() && at->second == parameter.count_elements(), Code::corrupt, folder,
                 ": does not have the ", parameter.count_elements(), " elements of tensor \"", parameter.name,
                 "\" of its model");
  }
  NewFile file(to);
  std::uint64_t done = 0, all = graph.count_parameters();
  std::optional<Progress> progress{to};
  write_onnx(
      graph,
      [&](std::size_t parameter, std::span<float> numbers) {
        reader.read({}, graph.parameters()[parameter].name, part, 0, numbers);
        (*progress)((done += numbers.size()) * sizeof(float), all * sizeof(float));
      },
      [&](std::span<const std::byte> bytes) { file.write(bytes); });
  progress.reset();
  file.sync();
  file.publish();
  say_written(file, fmt::format("{}: model {}, {} parameters of step {}{}, from {}\n", to, graph.name(), all,
                                manifest.steps, name_in_line(part), folder));
  return 0;
}

int run(int argc, char** argv) {
  CLI::App app{"ckpt lists, checks and converts the checkpoints that rtrun saves.", "ckpt"};
  app.footer(kFooter);
  std::string path;
  std::string to;
  const char* const kPath = "A checkpoint's folder, or a folder of checkpoints (the newest whole one is then used)";
  CLI::App& list_them = *app.add_subcommand("list", "Print the checkpoints of a folder, the newest first");
  list_them.add_option("FOLDER", path, "The folder of checkpoints, such as run/checkpoints")->required();
  CLI::App& verify_them =
      *app.add_subcommand("verify", "Read everything: compare the checksums, and look for numbers that are not finite");
  verify_them.add_option("PATH", path, "A checkpoint's folder, or a folder of checkpoints (all are then read)")
      ->required();
  CLI::App& weights_of = *app.add_subcommand("weights", "Write the weights to one safetensors file");
  weights_of.add_option("PATH", path, kPath)->required();
  weights_of.add_option("-o,--output", to, "The file to write; an existing file is replaced")->required();
  CLI::App& export_of = *app.add_subcommand("export", "Write model and weights to one file for other programs");
  export_of.add_option("PATH", path, kPath)->required();
  export_of.add_option("--onnx", to, "The ONNX file to write; an existing file is replaced")->required();
  bool raw = false;
  for (CLI::App* const one : {&weights_of, &export_of})
    one->add_flag("--raw", raw,
                  "Write the weights themselves, even if the checkpoint has their moving averages "
                  "(optimizer.ema_decay), which evaluations use");
  export_of.footer(kExportFooter);
  list_them.footer(kListFooter);
  verify_them.footer(kVerifyFooter);
  weights_of.footer(kWeightsFooter);
  app.require_subcommand(1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const std::string_view near =
        argc > 1 ? detail::nearest(argv[1], {"list", "verify", "weights", "export", "--help"}) : std::string_view{};
    if (near.empty() || near == argv[1]) {
      std::ostringstream what;
      if (app.exit(error, std::cout, what) == 0) return 0;
      std::cerr << "ckpt: error: " << what.str();
      return 2;
    }
    std::cerr << "ckpt: error: unknown command " << argv[1] << "; did you mean " << near
              << "?\nRun with --help for more information.\n";
    return 2;
  }
  Blocking blocking = Blocking::on_thread("main");
  if (list_them.parsed()) return list(path);
  if (verify_them.parsed()) return verify(blocking, path);
  if (export_of.parsed()) return export_onnx(blocking, path, to, raw);
  return weights(blocking, path, to, raw);
}

}  // namespace

int main(int argc, char** argv) {
  terminal::open_standard_streams();
  const PrintableStream out{std::cout}, err{std::cerr};
  try {
    const int code = run(argc, argv);
    terminal::check_stdout();
    return code;
  } catch (const Error& error) {
    std::cerr << "ckpt: error: " << error.what() << '\n';
    return exit_code(error.code());
  } catch (const std::exception& error) {
    std::cerr << "ckpt: error: " << error.what() << '\n';
    return 1;
  }
}
