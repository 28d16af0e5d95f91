#include "tools/rtrun/reference.hpp"

#include <fmt/format.h>

#include "runtime/config/reference.hpp"

namespace troupe::rtrun {
namespace {

constexpr const char* kHead = R"(# app.toml

Every key that rtrun takes. `rtrun reference` prints this page from the table of keys that also reads the file.

- The file is TOML and has at most 1 MiB. No key is required.
- It is read strictly. An unknown key, a wrong type, a value out of its range and keys that contradict each other are errors. The
  message gives file, line and column, and the nearest valid key; no process is started (exit code 2).
- `rtrun --set data.batch=50 app.toml` overrides the file. `rtrun check app.toml` prints every value with its origin.
- Relative paths of data start at the folder of the file, those of results and checkpoints at the working directory.
- Times whose key ends in `_s` are seconds and may have a fraction, those in `_ms` milliseconds.
)";

std::string one_key(const KeyReference& key) {
  return fmt::format("\n### {}\n\n{}  \nTakes {}. Default: `{}`. Example: `{} = {}`.\n", key.key, key.meaning,
                     key.takes, key.default_value, key.key, key.example);
}

std::string planned(const SectionReference& section) {
  std::string out;
  for (const auto& key : section.planned) {
    out += fmt::format("- `{}`: ", key.key);
    out += key.neutral.empty() ? fmt::format("an error in this build. For now: {}.\n", key.today)
                               : fmt::format("only `{} = {}` is accepted.\n", key.key, key.neutral);
  }
  for (const auto& word : section.planned_words) out += fmt::format("- `{}`\n", word);
  return out;
}

}  // namespace

std::string reference_page() {
  std::string page = kHead;
  std::string later;
  for (const SectionReference& section : settings_reference()) {
    page += fmt::format("\n## [{}]\n", section.name);
    for (const KeyReference& key : section.keys) page += one_key(key);
    later += planned(section);
  }
  if (!later.empty()) {
    page +=
        "\n## Planned and not in this build\n\nThese keys and values are errors; the message says what to write "
        "instead.\n\n";
    page += later;
  }
  return page;
}

}  // namespace troupe::rtrun
