#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/augment.hpp"
#include "runtime/data/broken.hpp"
#include "runtime/data/source.hpp"
#include "runtime/data/stage.hpp"

namespace troupe {

/// How the samples of a data set are made, whatever its format.
struct DataOptions {
  Augmentation augmentation;
  Broken broken = Broken::fatal;
  std::uint32_t length = 256;                    // bytes of a sample of text
  double validation = 0.1;                       // part of a text, its end, that is its test set
  std::uint32_t boxes = 16;                      // most objects of a sample
  std::vector<std::string> classes;              // of objects; empty: the sorted names in the training set
  std::function<void(const std::string&)> note;  // told of files that are skipped, on any thread; may be empty
  StageOptions stage{};                          // of read_data(), for images that are files
  std::chrono::milliseconds patience{0};         // for reading one of them; 0: any time
};

struct DataRequest {
  std::string source = "idx";  // as data.source; idx: search, then generated; generated: at once
  DataOptions options{};
  std::string path;          // data.path as written; relative to `folder`
  bool path_is_set = false;  // by --set: then it is the only place looked at
  std::string folder;        // of app.toml
  std::string environment;   // TROUPE_DATA: a folder that holds mnist/, cifar10/; empty: unset
  std::string cache;         // folder for the generated digits; empty: ${XDG_CACHE_HOME:-~/.cache}/troupe
  bool draw = true;          // digits that are missing are drawn; false: nothing is written, the place says so
  DataProgress progress;     // may be empty
};

/// Where the data are, before they are read.
struct DataPlace {
  std::string folder;       // or a file, where the format is one
  std::string description;  // for people: what it is, where, and which setting led there
  bool generated = false;
  bool there = true;           // false: digits that a run would have to draw first
  std::string format = "idx";  // the word of data.source for the files of the folder
  DataOptions options{};
};

/// What a plan has to know about both sets.
struct DataFacts {
  std::vector<Field> fields;  // of a sample
  std::uint64_t train_samples = 0;
  std::uint64_t test_samples = 0;
  std::uint64_t size_bytes = 0;  // of both, in the memory of a process that has read them
  friend bool operator==(const DataFacts&, const DataFacts&) = default;
};

/// Finds the files of request.source: at the path of --set and nowhere else; or at the configured path where that holds
/// them, then in TROUPE_DATA. Where there are no IDX files, digits are generated once into the cache (60,000 and 10,000
/// as IDX files, each of which appears whole). Error{invalid}, with file, place, cause and cure: nothing is found,
/// --set or TROUPE_DATA leads to a place without data, or files are broken or do not belong together.
DataPlace find_data(const DataRequest& request);
/// Tells what read_data() would find, from the files' headers and the training labels; knows it of digits that are not
/// drawn yet. Throws Error as find_data.
DataFacts look_at_data(const DataPlace& place);
/// Reads both sets from a place.
DataSet read_data(const DataPlace& place);

}  // namespace troupe
