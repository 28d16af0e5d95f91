#include "devices/cuda/engine_choices.hpp"

#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include "runtime/base/error.hpp"
#include "runtime/base/new_file.hpp"
#include "runtime/base/text_stream.hpp"

// A file of choices:
//   troupe cudnn choices 3
//   <identity>
//   <problem> = <engine> <knob>:<value> ... in <microseconds>, or
//   <problem> = own in <microseconds>
//   end <number of choices>
namespace troupe::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTitle = "troupe cudnn choices 3", kIs = " = ", kEnd = "end ", kOwn = "own", kIn = "in";

template <class Number>
Number number_in(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TROUPE_CHECK(error == std::errc{} && end == text.data() + text.size(), Code::corrupt, '"', text, "\" is no number");
  return value;
}

EngineChoice choice_in(const std::string& text) {
  std::istringstream words{text};
  std::string word;
  words >> word;
  EngineChoice choice{.engine = word == kOwn ? EngineChoice::kOwn : number_in<std::int64_t>(word)};
  while (words >> word) {
    if (word == kIn) {
      TROUPE_CHECK(words >> word, Code::corrupt, '"', text, "\" has no time");
      choice.microseconds = number_in<float>(word);
      continue;
    }
    const auto colon = word.find(':');
    TROUPE_CHECK(colon != word.npos, Code::corrupt, '"', word, "\" is no setting of an engine");
    choice.knobs.emplace_back(number_in<std::uint32_t>(std::string_view{word}.substr(0, colon)),
                              number_in<std::int64_t>(std::string_view{word}.substr(colon + 1)));
  }
  return choice;
}

void print(std::ostream& to, const std::string& problem, const EngineChoice& choice) {
  to << problem << kIs;
  choice.engine == EngineChoice::kOwn ? to << kOwn : to << choice.engine;
  for (const auto& [knob, value] : choice.knobs) to << ' ' << knob << ':' << value;
  if (choice.microseconds != 0) to << ' ' << kIn << ' ' << choice.microseconds;
  to << '\n';
}

/// Whether files can be made in `folder`, or in the folders above it that do not exist yet.
bool can_be_written(fs::path folder) {
  std::error_code reason;
  while (!fs::exists(folder, reason) && folder.has_relative_path()) folder = folder.parent_path();
  return fs::is_directory(folder, reason) && ::access(folder.c_str(), W_OK | X_OK) == 0;
}

std::string next_line(std::istream& from) {
  std::string line;
  TROUPE_CHECK(std::getline(from, line), Code::corrupt, "it is not complete");
  return line;
}

}  // namespace

EngineChoices::EngineChoices(std::string file, std::string identity)
    : file_(std::move(file)), identity_(std::move(identity)) {
  std::error_code reason;
  const fs::path folder = fs::path{file_}.parent_path();
  if (!can_be_written(folder)) note_ = text("choices are not kept: ", folder.string(), " cannot be written");
  if (!fs::exists(file_, reason)) return;
  try {
    choices_ = read();
  } catch (const Error& error) {
    note_ = text(file_, " is ignored: ", error.what());
    has_new_ = true;  // it is replaced
  }
}

EngineChoices::Choices EngineChoices::read() const {
  std::ifstream from{file_};
  TROUPE_CHECK(from.good(), Code::corrupt, "it cannot be read");
  TROUPE_CHECK(next_line(from) == kTitle, Code::corrupt, "it is no file of choices that this build writes");
  const std::string identity = next_line(from);
  TROUPE_CHECK(identity == identity_, Code::corrupt, "it is of ", identity, ", and not of ", identity_);
  Choices found;
  std::string line = next_line(from);
  for (; !line.starts_with(kEnd); line = next_line(from)) {
    const auto is = line.find(kIs);
    TROUPE_CHECK(is != line.npos, Code::corrupt, '"', line, "\" is no choice");
    found[line.substr(0, is)] = choice_in(line.substr(is + kIs.size()));
  }
  TROUPE_CHECK(line == text(kEnd, found.size()), Code::corrupt, "it is not complete");
  return found;
}

const EngineChoice* EngineChoices::find(const std::string& problem) const {
  const auto found = choices_.find(problem);
  return found == choices_.end() ? nullptr : &found->second;
}

void EngineChoices::add(const std::string& problem, EngineChoice choice) {
  choices_[problem] = std::move(choice);
  has_new_ = true;
}

void EngineChoices::save() noexcept {
  if (file_.empty() || !std::exchange(has_new_, false)) return;
  try {
    std::error_code absent;
    if (fs::exists(file_, absent)) choices_.merge(read());
  } catch (const Error&) {  // broken, or another identity's: it is replaced
  }
  TextStream written;
  written << kTitle << '\n' << identity_ << '\n';
  for (const auto& [problem, choice] : choices_) print(written, problem, choice);
  written << kEnd << choices_.size() << '\n';
  std::error_code reason;
  fs::create_directories(fs::path{file_}.parent_path(), reason);
  try {
    write_new_file(file_, written.view());
  } catch (const Error&) {  // the folder is full, or was removed: the next run chooses again
  }
}

}  // namespace troupe::cuda
