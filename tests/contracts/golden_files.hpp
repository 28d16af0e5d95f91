#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/compute/rules/rule.hpp"
#include "runtime/config/config.hpp"
#include "runtime/model/graph.hpp"
#include "runtime/model/layout.hpp"

namespace troupe::contracts {

/// What PyTorch computed in f64 for one small model: a file that tests/golden/make_golden.py writes. What the model
/// starts from and its batches are numbers that f32 and bf16 hold exactly.
struct GoldenCase {
  /// Of one batch.
  struct Sums {
    double loss = 0;  // summed over the samples
    std::uint64_t samples = 0, correct = 0;
  };
  struct Values {
    std::vector<std::uint64_t> extents;
    std::vector<double> start;
    std::vector<double> gradient;  // of the summed loss of the first batch; of statistics as in Parameter::momentum
    std::vector<double> trained;   // after all steps; empty: there are none
  };
  struct Training {
    Rule rule;
    std::vector<std::string> no_decay;
    std::vector<double> losses;  // of each step, before its update; step s is on batch s modulo their count
  };

  std::string name;  // the file's, without its ending
  std::vector<Field> fields;
  std::vector<Layer> layers;
  std::uint32_t rows = 0;
  std::vector<std::map<std::string, std::vector<double>>> batches;  // by field [rows, its shape]
  Sums step, evaluation;                                            // of the first batch, from the start
  std::map<std::string, Values> parameters;
  std::optional<Training> training;

  Graph graph(DType dtype) const {
    std::vector<Field> read = fields;
    for (Field& field : read)
      if (field.dtype != DType::i32) field.dtype = dtype;
    return {name, std::move(read), dtype, layers};
  }

  /// One of the members of Values, as `layout` has the parameters; 0 in gaps. Throws Error{corrupt} when the file has
  /// other parameters than the graph.
  std::vector<double> in_layout(const Graph& graph, const Layout& layout, std::vector<double> Values::*part) const {
    TROUPE_CHECK(parameters.size() == graph.parameters().size(), Code::corrupt, name, ".json has ", parameters.size(),
                 " parameters, its model ", graph.parameters().size());
    std::vector<double> all(layout.count_elements());
    for (std::size_t p = 0; p < graph.parameters().size(); ++p) {
      const Parameter& parameter = graph.parameters()[p];
      const auto at = parameters.find(parameter.name);
      TROUPE_CHECK(at != parameters.end() && at->second.extents == parameter.extents, Code::corrupt, name,
                   ".json has no ", parameter.name, " of the extents that its model has there");
      const std::vector<double>& values = at->second.*part;
      TROUPE_CHECK(values.size() == parameter.count_elements(), Code::corrupt, name, ".json has ", values.size(),
                   " numbers for ", parameter.name, ", which has ", parameter.count_elements(), " elements");
      std::copy(values.begin(), values.end(), all.begin() + static_cast<std::ptrdiff_t>(layout.entries()[p].first));
    }
    return all;
  }
};

/// Reads one file. Throws Error that names it: corrupt, or invalid where its model is wrong.
inline GoldenCase read_golden_case(const std::filesystem::path& path) {
  using nlohmann::json;
  using Numbers = std::vector<double>;
  const auto sums_of = [](const json& from) {
    return GoldenCase::Sums{from.at("loss").get<double>(), from.at("samples").get<std::uint64_t>(),
                            from.at("correct").get<std::uint64_t>()};
  };
  GoldenCase found;
  found.name = path.stem().string();
  try {
    std::ifstream file{path};
    const json all = json::parse(file);
    for (const json& field : all.at("fields")) {
      const bool counted = field.contains("classes");
      found.fields.push_back({field.at("name").get<std::string>(),
                              {field.at("shape").get<std::vector<std::uint32_t>>()},
                              counted ? DType::i32 : DType::f32,
                              field.value("classes", std::uint32_t{0})});
    }
    std::string list;
    for (const auto& layer : all.at("layers").get<std::vector<std::string>>())
      list += (list.empty() ? "" : ", ") + layer;
    std::string toml = text("model = { layers = [", list, "] }\n");
    const json training = all.value("training", json{});
    if (!training.is_null()) toml += text("optimizer = ", training.at("optimizer").get<std::string>(), "\n");
    const Settings settings = parse_configuration(toml, path.filename().string(), {}).settings;
    found.layers = settings.model.layers;
    if (!training.is_null())
      found.training = GoldenCase::Training{settings.rule, settings.no_decay, training.at("losses").get<Numbers>()};
    found.rows = all.at("rows").get<std::uint32_t>();
    for (const json& batch : all.at("batches")) found.batches.push_back(batch.get<std::map<std::string, Numbers>>());
    found.step = sums_of(all.at("step"));
    found.evaluation = sums_of(all.at("evaluation"));
    for (const auto& [name, values] : all.at("parameters").items())
      found.parameters[name] = {values.at("shape").get<std::vector<std::uint64_t>>(), values.at("start").get<Numbers>(),
                                values.at("gradient").get<Numbers>(), values.value("trained", Numbers{})};
  } catch (const json::exception& error) {
    fail(Code::corrupt, text(path.string(), ": ", error.what()));
  }
  TROUPE_CHECK(!found.batches.empty(), Code::corrupt, path.string(), ": has no batch");
  for (const auto& batch : found.batches) {
    for (const Field& field : found.fields) {
      const auto at = batch.find(field.name);
      TROUPE_CHECK(at != batch.end() && at->second.size() == found.rows * field.shape.count_elements(), Code::corrupt,
                   path.string(), ": a batch does not have ", found.rows, " rows of ", field.to_string());
    }
  }
  return found;
}

/// All files of a folder, by name; of the folder that TROUPE_GOLDEN_FOLDER in the environment names instead, where it
/// is set. Throws as read_golden_case, and Error{corrupt} where there is none.
inline std::vector<GoldenCase> read_golden_cases(std::filesystem::path folder) {
  if (const char* const moved = std::getenv("TROUPE_GOLDEN_FOLDER"); moved != nullptr) folder = moved;
  std::vector<GoldenCase> found;
  for (const auto& entry : std::filesystem::directory_iterator{folder})
    if (entry.path().extension() == ".json") found.push_back(read_golden_case(entry.path()));
  TROUPE_CHECK(!found.empty(), Code::corrupt, folder.string(), " has no golden files; make_golden.py writes them");
  std::ranges::sort(found, {}, &GoldenCase::name);
  return found;
}

}  // namespace troupe::contracts
