#include "runtime/config/reference.hpp"

#include "runtime/config/detail/schema.hpp"

namespace troupe {
namespace {

using detail::SettingKey;

std::string sentence(std::string_view half) {
  std::string out{half};
  if (out.empty()) return out;
  if (out[0] >= 'a' && out[0] <= 'z') out[0] = static_cast<char>(out[0] - 'a' + 'A');
  return out.back() == '.' ? out : out + '.';
}

KeyReference reference_of(const SettingKey& key) {
  std::string meaning = sentence(key.help);
  for (const std::string& more : {detail::only_for(key), key.more})
    if (!more.empty()) meaning += ' ' + more;
  return {std::string{key.name}, detail::expected(key), key.show({}), meaning, std::string{key.example}};
}

}  // namespace

std::vector<SectionReference> settings_reference() {
  std::vector<SectionReference> all;
  for (const std::string_view name : detail::sections()) {
    SectionReference section{std::string{name}, {}, {}, {}};
    const std::string inside = text(name, '.');
    for (const SettingKey& key : detail::setting_keys()) {
      if (!key.name.starts_with(inside)) continue;
      section.keys.push_back(reference_of(key));
      for (const detail::Choice& choice : key.takes.choices)
        if (!choice.built) section.planned_words.push_back(text(key.name, " = ", detail::quoted(choice.name)));
    }
    for (const detail::PlannedKey& key : detail::planned_keys()) {
      if (key.name.starts_with(inside))
        section.planned.push_back({std::string{key.name}, std::string{key.neutral}, std::string{key.today}});
    }
    all.push_back(std::move(section));
  }
  return all;
}

}  // namespace troupe
