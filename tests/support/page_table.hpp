#pragma once

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

// Tables in pages of docs/, whose path is TROUPE_SOURCE_FOLDER's.
namespace troupe::test {

inline std::vector<std::string> lines_of_page(std::string_view page) {
  std::ifstream file{std::string{TROUPE_SOURCE_FOLDER "/"}.append(page)};
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

/// The rows of the table whose head begins with `head`; nothing when there is none.
inline std::vector<std::string> table_of(std::string_view page, std::string_view head) {
  const std::vector<std::string> lines = lines_of_page(page);
  auto first = std::ranges::find_if(lines, [&](const std::string& line) { return line.starts_with(head); });
  if (lines.end() - first < 2) return {};
  first += 2;
  return {first, std::find_if(first, lines.end(), [](const std::string& line) { return !line.starts_with('|'); })};
}

/// What links to the page's sections end with: "going-back" of "### Going back".
inline std::vector<std::string> sections_of(std::string_view page) {
  std::vector<std::string> names;
  for (const std::string& line : lines_of_page(page)) {
    if (!line.starts_with("##")) continue;
    std::string name;
    for (const char c : line.substr(line.find(' ') + 1)) {
      const bool letter = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '_' || c == '-';
      if (c >= 'A' && c <= 'Z') name += static_cast<char>(c - 'A' + 'a');
      if (letter || c == ' ') name += c == ' ' ? '-' : c;
    }
    names.push_back(name);
  }
  return names;
}

inline std::string lines_of(const std::vector<std::string>& rows) {
  std::string all;
  for (const std::string& row : rows) all += row + '\n';
  return all;
}

}  // namespace troupe::test
