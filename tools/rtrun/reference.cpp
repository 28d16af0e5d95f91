#include "tools/rtrun/reference.hpp"

#include <fmt/format.h>

#include "runtime/config/detail/schema.hpp"

namespace troupe::rtrun {
namespace {

constexpr const char* kHead = R"(# app.toml

Every key that rtrun takes. `rtrun reference` prints this page from the table of keys that also reads the file.

- The file is TOML and has at most 1 MiB. No key is required.
- It is read strictly. An unknown key, a wrong type, a value out of its range, keys that contradict each other, and a key that means nothing
  beside the others ("Only with ...", "Not with ...") are errors. The message gives file, line and column, and the nearest valid key; no
  process is started (exit code 2).
- `rtrun --set data.batch=50 app.toml` overrides the file. `rtrun check app.toml` prints every value with its origin.
- Relative paths of data start at the folder of the file, those of results and checkpoints at the working directory.
- Times whose key ends in `_s` are seconds and may have a fraction, those in `_ms` milliseconds.
)";

std::string one_key(const detail::SettingKey& key) {
  return fmt::format("\n### {}\n\n{}  \nTakes {}. Default: `{}`. Example: `{} = {}`.\n", key.name, detail::meaning(key),
                     detail::expected(key), key.show({}), key.name, key.example);
}

/// What is known and refused in a section: keys, then words of its other keys.
std::string planned(std::string_view section) {
  std::string out;
  for (const detail::PlannedKey& key : detail::planned_keys()) {
    if (detail::section_of(key.name) != section) continue;
    out += fmt::format("- `{}`: ", key.name);
    out += key.neutral.empty() ? fmt::format("an error in this build. For now: {}.\n", key.today)
                               : fmt::format("only `{} = {}` is accepted.\n", key.name, key.neutral);
  }
  for (const detail::SettingKey& key : detail::setting_keys()) {
    if (detail::section_of(key.name) != section) continue;
    for (const detail::Choice& choice : key.takes.choices)
      if (!choice.built) out += fmt::format("- `{} = {}`\n", key.name, detail::in_quotes(choice.name));
  }
  return out;
}

}  // namespace

std::string reference_page() {
  std::string page = kHead;
  std::string later;
  for (const std::string_view section : detail::sections()) {
    page += fmt::format("\n## [{}]\n", section);
    for (const detail::SettingKey& key : detail::setting_keys())
      if (detail::section_of(key.name) == section) page += one_key(key);
    later += planned(section);
  }
  return page +
         "\n## Planned and not in this build\n\nThese keys and values are errors; the message says what to write "
         "instead.\n\n" +
         later;
}

}  // namespace troupe::rtrun
