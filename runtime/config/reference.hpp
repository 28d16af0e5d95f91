#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// What people are told about one key of app.toml; everything comes from the schema that reads it.
struct KeyReference {
  std::string key;            // data.batch
  std::string takes;          // "an integer from 1 to 1000000"
  std::string default_value;  // as TOML
  std::string meaning;        // whole sentences, as Markdown may show them
  std::string example;        // as TOML
};

/// A key that is designed and not in this build.
struct PlannedKeyReference {
  std::string key;
  std::string neutral;  // the one value that is taken, as TOML; empty: none
  std::string today;    // what works instead; may be empty
};

/// One [section] of app.toml.
struct SectionReference {
  std::string name;
  std::vector<KeyReference> keys;            // in the order of the schema
  std::vector<PlannedKeyReference> planned;  // those of them that are not built
  std::vector<std::string> planned_words;    // choices that are known and refused: `data.source = "cifar10"`
};

/// All sections, in the order of the schema.
std::vector<SectionReference> settings_reference();

}  // namespace troupe
