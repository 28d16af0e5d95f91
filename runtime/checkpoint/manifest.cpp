#include "runtime/checkpoint/manifest.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <span>

#include "runtime/base/detail/json.hpp"
#include "runtime/base/detail/with_context.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"

namespace troupe {
namespace {

using Json = nlohmann::json;                 // for reading: its objects with many keys are read in little time
using OrderedJson = nlohmann::ordered_json;  // for writing, as in other files: its writer is compiled once

constexpr int kVersion = 1;
constexpr std::string_view kFormat = "troupe-checkpoint";
constexpr std::array<std::string_view, 6> kParts{"parameters", "state0", "state1", "outer", "residual", "average"};

std::string first_line(std::string_view body) {
  return fmt::format("{} {} {:016x}\n", kFormat, kVersion, xxh3(std::as_bytes(std::span(body))));
}

/// Of what fmt's "{:a}" wrote, whatever the locale of the app.
double number_of(std::string_view digits) {
  const bool is_negative = digits.starts_with('-');
  digits.remove_prefix(is_negative ? 1 : 0);
  digits.remove_prefix(digits.starts_with("0x") ? 2 : 0);
  double number = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number, std::chars_format::hex);
  TROUPE_CHECK(read.ec == std::errc{}, Code::corrupt, "\"", digits, "\" is not a number");
  return is_negative ? -number : number;
}

/// Reports another version, which is in the first line of manifests of all versions.
void check_version(std::string_view line, const std::string& path) {
  const std::string begin = fmt::format("{} ", kFormat);
  TROUPE_CHECK(line.starts_with(begin), Code::corrupt, path, ": no manifest of a checkpoint");
  const std::string_view rest = line.substr(begin.size());
  const std::string_view version = rest.substr(0, rest.find(' '));
  const bool number = !version.empty() && version.size() < 6 && version.find_first_not_of("0123456789") == version.npos;
  TROUPE_CHECK(!number || version == std::to_string(kVersion), Code::unsupported, path, ": a checkpoint of version ",
               version, "; this build reads version ", kVersion, ": use the build that wrote it, or a newer one");
}

OrderedJson to_json(const CheckpointPiece& piece) {
  OrderedJson json{{"key", piece.key},
                   {"group", piece.group.value},
                   {"tensor", piece.tensor},
                   {"part", kParts[static_cast<std::size_t>(piece.part)]},
                   {"first", piece.first},
                   {"count", piece.count},
                   {"xxh3", fmt::format("{:016x}", piece.hash)}};
  if (piece.part == CheckpointPart::residual) json["sender"] = piece.sender;
  return json;
}

std::uint64_t hash_from(const Json& json) {
  const auto& digits = json.get_ref<const std::string&>();
  TROUPE_CHECK(digits.size() == 16 && digits.find_first_not_of("0123456789abcdef") == digits.npos, Code::corrupt, "\"",
               digits, "\" is not a hash");
  return std::stoull(digits, nullptr, 16);
}

CheckpointPiece piece_from(const Json& json) {
  CheckpointPiece piece;
  json.at("key").get_to(piece.key);
  json.at("group").get_to(piece.group.value);
  json.at("tensor").get_to(piece.tensor);
  const auto& part = json.at("part").get_ref<const std::string&>();
  std::size_t number = 0;
  while (number < kParts.size() && kParts[number] != part) ++number;
  TROUPE_CHECK(number < kParts.size(), Code::corrupt, "\"", part, "\" is not a part of a checkpoint");
  piece.part = static_cast<CheckpointPart>(number);
  json.at("first").get_to(piece.first);
  json.at("count").get_to(piece.count);
  if (piece.part == CheckpointPart::residual) json.at("sender").get_to(piece.sender);
  constexpr std::uint32_t kMostSenders = 1U << 20;
  TROUPE_CHECK(piece.sender < kMostSenders, Code::corrupt, "a residual of sender ", piece.sender);
  piece.hash = hash_from(json.at("xxh3"));
  constexpr std::uint64_t kMost = std::uint64_t{1} << 56;  // elements: their bytes and sums do not overflow
  TROUPE_CHECK(piece.first < kMost && piece.count < kMost, Code::corrupt, "elements ", piece.first, " and ",
               piece.count, " more of \"", piece.tensor, "\" are more than can be counted");
  return piece;
}

OrderedJson to_json(const CheckpointFile& file) {
  OrderedJson pieces = OrderedJson::array();
  for (const CheckpointPiece& piece : file.pieces) pieces.push_back(to_json(piece));
  return {{"name", file.name},
          {"bytes", file.size_bytes},
          {"header_xxh3", fmt::format("{:016x}", file.header_hash)},
          {"pieces", std::move(pieces)}};
}

CheckpointFile file_from(const Json& json) {
  CheckpointFile file;
  json.at("name").get_to(file.name);
  // It may only name a file in the manifest's folder.
  TROUPE_CHECK(!file.name.empty() && file.name.find('/') == file.name.npos && !file.name.starts_with('.'),
               Code::corrupt, "\"", file.name, "\" is not the name of a checkpoint's file");
  json.at("bytes").get_to(file.size_bytes);
  file.header_hash = hash_from(json.at("header_xxh3"));
  std::uint64_t left = file.size_bytes;
  for (const Json& json_piece : json.at("pieces")) {
    const CheckpointPiece& piece = file.pieces.emplace_back(piece_from(json_piece));
    TROUPE_CHECK(piece.count * sizeof(float) <= left, Code::corrupt, "the tensors of \"", file.name,
                 "\" are larger than the file");
    left -= piece.count * sizeof(float);
  }
  return file;
}

/// Checkpoints of older versions do not have it.
std::optional<std::uint64_t> policy_steps_from(const Json& json) {
  const auto found = json.find("policy_steps");
  return found == json.end() ? std::nullopt : std::optional{found->get<std::uint64_t>()};
}

CheckpointGroup group_from(const Json& json) {
  CheckpointGroup group;
  json.at("name").get_to(group.name);
  json.at("rule").get_to(group.rule);
  group.policy = json.value("policy", std::string{});
  group.policy_steps = policy_steps_from(json);
  json.at("updates").get_to(group.updates);
  json.at("parameters").get_to(group.parameters);
  return group;
}

/// Throws Error{corrupt} for what is no scale.
LossScale scale_from(const Json& json) {
  LossScale scale;
  json.at("scale").get_to(scale.scale);
  TROUPE_CHECK(scale.scale >= kLeastLossScale && scale.scale <= kMostLossScale, Code::corrupt, "a loss scale of ",
               scale.scale);
  scale.inverse = 1 / scale.scale;
  json.at("clean").get_to(scale.clean);
  json.at("left_out").get_to(scale.left_out);
  return scale;
}

CheckpointManifest manifest_from(const Json& json) {
  CheckpointManifest manifest;
  json.at("steps").get_to(manifest.steps);
  json.at("samples").get_to(manifest.samples);
  manifest.roll_backs = json.value("roll_backs", 0u);
  manifest.groups.front().policy = json.value("policy", std::string{});
  manifest.groups.front().policy_steps = policy_steps_from(json);
  manifest.groups.front().updates = json.value("updates", manifest.steps);  // in old ones every step made an update
  json.at("seed").get_to(manifest.seed);
  json.at("model").get_to(manifest.model);
  json.at("rule").get_to(manifest.groups.front().rule);
  if (const auto groups = json.find("groups"); groups != json.end())
    for (const Json& group : *groups) manifest.groups.push_back(group_from(group));
  json.at("plan").get_to(manifest.plan);
  json.at("settings").get_to(manifest.settings);
  json.at("run").get_to(manifest.run);
  manifest.first_run = json.value("first_run", std::string{});
  json.at("shapes").get_to(manifest.shapes);
  const Json& epoch = json.at("epoch");
  manifest.epoch.loss = number_of(epoch.at("loss").get_ref<const std::string&>());
  epoch.at("correct").get_to(manifest.epoch.correct);
  epoch.at("samples").get_to(manifest.epoch.samples);
  if (const auto scale = json.find("loss_scale"); scale != json.end()) manifest.loss_scale = scale_from(*scale);
  if (const auto accuracy = json.find("test_accuracy"); accuracy != json.end())
    manifest.test_accuracy = accuracy->get<double>();
  for (const Json& file : json.at("files")) manifest.files.push_back(file_from(file));
  return manifest;
}

/// A manifest's own depth is 4. Deeper JSON is refused before it takes many times its size in memory.
Json parse_json(std::string_view text) {
  static constexpr int kDeepest = 8;
  return Json::parse(text, [](int depth, Json::parse_event_t, Json&) {
    TROUPE_CHECK(depth <= kDeepest, Code::corrupt, "brackets nested more than ", kDeepest, " deep");
    return true;
  });
}

/// Any error about JSON in `parse` becomes an Error whose text starts with `what`.
template <class Parse>
auto parsed_as(const std::string& what, Parse parse) {
  return with_context(what, [&] {
    try {
      return parse();
    } catch (const Json::exception& error) {
      fail(Code::corrupt, text("not as it was written: ", error.what()));
    }
  });
}

}  // namespace

std::string_view name_of(CheckpointPart part) noexcept { return kParts[static_cast<std::size_t>(part)]; }

namespace {

bool has_part(const CheckpointManifest& manifest, CheckpointPart part, std::string_view tensor) noexcept {
  return std::any_of(manifest.files.begin(), manifest.files.end(), [&](const CheckpointFile& file) {
    return std::any_of(file.pieces.begin(), file.pieces.end(),
                       [&](const CheckpointPiece& piece) { return piece.part == part && piece.tensor == tensor; });
  });
}

}  // namespace

bool CheckpointManifest::has_outer(std::string_view tensor) const noexcept {
  return has_part(*this, CheckpointPart::outer, tensor);
}

bool CheckpointManifest::has_average(std::string_view tensor) const noexcept {
  return has_part(*this, CheckpointPart::average, tensor);
}

std::uint32_t CheckpointManifest::count_residuals(std::string_view tensor) const noexcept {
  std::uint32_t count = 0;
  for (const CheckpointFile& file : files)
    for (const CheckpointPiece& piece : file.pieces)
      if (piece.part == CheckpointPart::residual && piece.tensor == tensor) count = std::max(count, piece.sender + 1);
  return count;
}

const CheckpointGroup& CheckpointManifest::group_of(std::string_view tensor) const noexcept {
  const auto has = [&](const CheckpointGroup& group) {
    return std::find(group.parameters.begin(), group.parameters.end(), tensor) != group.parameters.end();
  };
  const auto found = std::find_if(groups.begin() + 1, groups.end(), has);
  return found == groups.end() ? groups.front() : *found;
}

std::string format_manifest(const CheckpointManifest& manifest) {
  const CheckpointGroup& first = manifest.groups.front();
  OrderedJson json{{"steps", manifest.steps}, {"samples", manifest.samples}, {"updates", first.updates},
                   {"seed", manifest.seed},   {"model", manifest.model},     {"rule", first.rule},
                   {"run", manifest.run}};
  if (!manifest.first_run.empty()) json["first_run"] = manifest.first_run;
  if (manifest.roll_backs != 0) json["roll_backs"] = manifest.roll_backs;
  if (!first.policy.empty()) json["policy"] = first.policy;
  if (first.policy_steps) json["policy_steps"] = *first.policy_steps;
  for (const CheckpointGroup& group : std::span(manifest.groups).subspan(1)) {
    OrderedJson& entry = json["groups"].emplace_back(OrderedJson{{"name", group.name},
                                                                 {"rule", group.rule},
                                                                 {"policy", group.policy},
                                                                 {"updates", group.updates},
                                                                 {"parameters", group.parameters}});
    if (group.policy_steps) entry["policy_steps"] = *group.policy_steps;
  }
  if (const auto& scale = manifest.loss_scale)
    json["loss_scale"] = {{"scale", scale->scale}, {"clean", scale->clean}, {"left_out", scale->left_out}};
  if (manifest.test_accuracy) json["test_accuracy"] = *manifest.test_accuracy;
  json["epoch"] = {{"loss", fmt::format("{:a}", manifest.epoch.loss)},
                   {"correct", manifest.epoch.correct},
                   {"samples", manifest.epoch.samples}};
  json["shapes"] = manifest.shapes;
  json["settings"] = manifest.settings;
  json["plan"] = manifest.plan;
  OrderedJson files = OrderedJson::array();
  for (const CheckpointFile& file : manifest.files) files.push_back(to_json(file));
  json["files"] = std::move(files);
  // Text from users may not be UTF-8.
  const std::string body = json_text(json, 1) + '\n';
  return first_line(body) + body;
}

CheckpointManifest parse_manifest(std::string_view text, const std::string& path) {
  TROUPE_CHECK(text.size() <= kMaxManifestBytes, Code::corrupt, path, ": a manifest of ", text.size(),
               " bytes; none has more than ", kMaxManifestBytes);
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end == text.npos ? text.size() : end + 1);
  const std::string_view body = text.substr(line.size());
  check_version(line, path);
  TROUPE_CHECK(line == first_line(body), Code::corrupt, path, ": its checksum is wrong: it was changed, or cut off");
  return parsed_as(path, [&] { return manifest_from(parse_json(body)); });
}

std::string format_checkpoint_file(const CheckpointFile& file) { return to_json(file).dump(); }

CheckpointFile parse_checkpoint_file(std::string_view text) {
  return parsed_as("a rank's part of a checkpoint", [&] { return file_from(parse_json(text)); });
}

}  // namespace troupe
