#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace troupe {
namespace {

namespace fs = std::filesystem;

const fs::path kRuntime{TROUPE_RUNTIME_FOLDER};

/// In the order of runtime/CMakeLists.txt.
std::vector<std::string> rooms() {
  std::istringstream list{TROUPE_RUNTIME_ROOMS};
  std::vector<std::string> names;
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}

std::string content_of(const fs::path& file) {
  std::ostringstream content;
  content << std::ifstream{file}.rdbuf();
  return content.str();
}

/// Paths below runtime/.
std::vector<fs::path> files() {
  std::vector<fs::path> all;
  for (const auto& entry : fs::recursive_directory_iterator(kRuntime)) {
    if (entry.is_regular_file()) all.push_back(fs::relative(entry.path(), kRuntime));
  }
  return all;
}

std::string room_of(const fs::path& file) { return file.has_parent_path() ? file.begin()->string() : ""; }

/// What of runtime/ a source includes, as paths below runtime/.
std::vector<fs::path> included_by(const std::string& source) {
  static const std::regex include{R"x((?:^|\n)#include "runtime/([^"]+)")x"};
  std::vector<fs::path> paths;
  for (std::sregex_iterator at{source.begin(), source.end(), include}, end; at != end; ++at)
    paths.emplace_back((*at)[1].str());
  return paths;
}

/// Every include of a room that comes later than the file's own.
std::vector<std::string> upward(const fs::path& file, const std::string& source) {
  const std::vector<std::string> order = rooms();
  const auto floor = [&](const fs::path& path) { return std::find(order.begin(), order.end(), room_of(path)); };
  std::vector<std::string> wrong;
  for (const fs::path& path : included_by(source))
    if (floor(path) > floor(file)) wrong.push_back(file.string() + " includes " + path.string());
  return wrong;
}

TEST(Rooms, NoFileIncludesARoomThatComesLater) {
  std::vector<std::string> wrong;
  std::size_t includes = 0;
  for (const fs::path& file : files()) {
    const std::string source = content_of(kRuntime / file);
    includes += included_by(source).size();
    for (const std::string& line : upward(file, source)) wrong.push_back(line);
  }
  EXPECT_THAT(wrong, testing::IsEmpty());
  EXPECT_GT(includes, 100u);
}

TEST(Rooms, AnIncludeOfALaterRoomIsFound) {
  const std::string source =
      "#pragma once\n#include \"runtime/base/ids.hpp\"\n#include \"runtime/config/settings.hpp\"\n";
  EXPECT_THAT(upward("exchange/exchange.hpp", source),
              testing::ElementsAre("exchange/exchange.hpp includes config/settings.hpp"));
}

TEST(Rooms, EveryFileLiesInARoom) {
  const std::vector<std::string> order = rooms();
  std::map<std::string, std::size_t> count;
  for (const fs::path& file : files()) {
    if (file == "CMakeLists.txt") continue;
    EXPECT_THAT(order, testing::Contains(room_of(file))) << file << " lies in no room of runtime/CMakeLists.txt";
    ++count[room_of(file)];
  }
  for (const std::string& room : order) EXPECT_GT(count[room], 0u) << room << " is empty";
}

TEST(Rooms, OneHeaderOfEachRoomSaysWhatItIsFor) {
  std::map<std::string, std::size_t> paragraphs;
  for (const fs::path& file : files())
    if (content_of(kRuntime / file).find(" The room " + room_of(file) + ":") != std::string::npos)
      ++paragraphs[room_of(file)];
  for (const std::string& room : rooms()) EXPECT_EQ(paragraphs[room], 1u) << room;
}

}  // namespace
}  // namespace troupe
