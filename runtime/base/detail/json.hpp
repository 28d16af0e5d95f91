#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

// The library's functions for these are templates, and each file that calls them compiles them for about a second.
namespace troupe {

/// On one line, or each level indented by `indent` spaces. What is not UTF-8 is replaced.
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);
/// Discarded (`is_discarded()`) if the text is no JSON, or not all of it.
nlohmann::ordered_json json_from(std::string_view text);

}  // namespace troupe
