#include "tools/rtrun/reference.hpp"

#include <fmt/format.h>

#include "runtime/config/detail/schema.hpp"
#include "runtime/model/layer_kinds.hpp"

namespace troupe::rtrun {
namespace {

constexpr const char* kHead = R"(# app.toml

Every key that rtrun takes. `rtrun reference` prints this page from the table of keys that also reads the file.

- The file is TOML and has at most 1 MiB. No key is required.
- It is read strictly. An unknown key, a wrong type, a value out of its range, keys that contradict each other, and a key that is not used with
  the other settings ("Only with ...", "Not with ...") are errors. The message gives file, line and column, and the nearest valid key; no
  process is started (exit code 2).
- `rtrun --set data.batch=50 app.toml` overrides the file. `rtrun check app.toml` prints every value with its origin.
- Relative paths of data are relative to the folder of the file, those of results and checkpoints to the working directory.
- Times whose key ends in `_s` are seconds and may have a fraction, those in `_ms` milliseconds.
)";

std::string one_key(const detail::SettingKey& key) {
  return fmt::format("\n### {}\n\n{}  \nTakes {}. Default: `{}`. Example: `{} = {}`.\n", key.name, detail::meaning(key),
                     detail::expected(key), key.show({}), key.name, key.example);
}

/// The keys of a section that are known but refused: keys, then words of its other keys.
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

constexpr const char* kLayersHead = R"(# Layers

A model is a list of layers. `rtrun reference layers` prints this page from the table that also reads `model.layers` in app.toml and checks
every graph.

```toml
[model]
layers = [
  { kind = "conv2d", filters = 32, kernel = 3, padding = 1, name = "stem" },
  "relu",
  { kind = "conv2d", filters = 32, kernel = 3, padding = 1 },
  { kind = "add", inputs = ["stem", "conv2d_1"] },
  "global_average_pool",
  { kind = "dense", units = 10 },
]
```

- An entry is a table with `kind` and attributes, or the kind alone in quotes. An attribute that is left out has its default.
- A layer reads the output of the previous layer; the first layer reads the data's first field. `inputs = [...]` names other layers, or fields of the data; a
  layer can be read by several others, and must be read by at least one.
- `name` is also that of the layer's parameters (`stem.weight`, `stem.bias`). Without it a layer is named by its kind and a number: `conv2d_1`.
- If the last layer is not a loss, `softmax_cross_entropy` on the data's labels is added; `model.label_smoothing` sets its smoothing.
- A loss reads numbers, then a field of the data: labels, or as many numbers (targets). `{ kind = "smooth_l1", inputs = ["dense_2", "image"] }` trains
  `dense_2` to reconstruct the image. The losses of a model are added up, in evaluations too; the last one counts the samples and which of them are right.
- Images are [height, width, channels]. A size is one number, or `[height, width]`. Shapes that do not fit are an error that names the layer and its
  inputs, before any process is started; `rtrun check` shows the list as rtrun has read it.
- Weights start as N(0, 1/inputs of a unit), biases as 0, scales as `scale`. Numbers are f32, or with `model.dtype` bf16 or f16, where sums are kept in f32.
- In C++ a `LayerList` (`runtime/model/layer_list.hpp`) is the same list, from which a `Graph` is built (`apps/models/models.cpp` has examples).
)";

std::string value_of(const LayerAttribute& attribute, const LayerKind& kind) {
  if (attribute.required) return "required";
  Operation made = kind.made;
  return text_of(attribute.slot(made));
}

std::string one_kind(const LayerKind& kind) {
  std::string out = fmt::format("\n## {}\n\n{}  \nShape: {}.\n", kind.name, kind.help, kind.shape);
  if (kind.attributes.empty()) return out;
  out += "\n| Attribute | Meaning | Default |\n|---|---|---|\n";
  for (const LayerAttribute& attribute : kind.attributes)
    out += fmt::format("| `{}` | {} | {} |\n", attribute.name, attribute.help, value_of(attribute, kind));
  return out;
}

}  // namespace

std::string layers_page() {
  std::string page = kLayersHead;
  for (const LayerKind& kind : layer_kinds()) page += one_kind(kind);
  return page;
}

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
