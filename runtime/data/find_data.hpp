#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/augment.hpp"
#include "runtime/data/broken.hpp"
#include "runtime/data/source.hpp"
#include "runtime/data/stage_options.hpp"

namespace troupe {

/// How the samples of a data set are made, independent of its format.
struct DataOptions {
  Augmentation augmentation;
  Broken broken = Broken::fatal;
  std::uint32_t length = 256;                    // bytes of a sample of text
  double validation = 0.1;                       // fraction of a text, at its end, that is its test set
  std::uint32_t boxes = 16;                      // largest number of objects of a sample
  std::vector<std::string> classes;              // of objects; empty: the sorted names in the training set
  std::function<void(const std::string&)> note;  // told of files that are skipped, on any thread; may be empty
  StageOptions stage{};                          // of read_data(), for images that are files
  std::chrono::milliseconds patience{0};         // for reading one of them; 0: any time
};

struct DataRequest {
  std::string source = "idx";  // like data.source; idx: search, otherwise generate digits; generated: do not search
  DataOptions options{};
  std::string path;          // data.path as written; relative to `folder`
  bool path_is_set = false;  // by --set: then no other place is searched
  std::string folder;        // of app.toml
  std::string environment;   // TROUPE_DATA: a folder that contains mnist/, cifar10/; empty: not set
  std::string cache;         // folder for the generated digits; empty: ${XDG_CACHE_HOME:-~/.cache}/troupe
  bool draw = true;          // draw missing digits; false: write nothing, and say so in the place
  DataProgress progress;     // may be empty
};

/// The location of the data, before they are read.
struct DataPlace {
  std::string folder;       // or a file, if the format is one file
  std::string description;  // for people: what it is, where, and which setting led to it
  bool generated = false;
  bool there = true;           // false: digits that a run would first have to draw
  std::string format = "idx";  // the word of data.source for the files in the folder
  DataOptions options{};
};

/// The facts about both sets that a plan needs.
struct DataFacts {
  std::vector<Field> fields;  // of a sample
  std::uint64_t train_samples = 0;
  std::uint64_t test_samples = 0;
  std::uint64_t size_bytes = 0;  // of both, in the memory of a process that reads them
  friend bool operator==(const DataFacts&, const DataFacts&) = default;
};

/// Finds the files of request.source: with --set only at its path; otherwise at the configured path if it has them,
/// then in TROUPE_DATA. Without IDX files, digits are generated once into the cache (60,000 and 10,000, as IDX files,
/// each of which appears complete). Throws Error{invalid} with file, position, cause and cure if nothing is found, if
/// --set or TROUPE_DATA leads to a place without data, or if files are broken or do not belong together.
DataPlace find_data(const DataRequest& request);
/// The facts that read_data() would find, from the files' headers and the training labels; also for digits that are not
/// drawn yet. Throws like find_data.
DataFacts look_at_data(const DataPlace& place);
/// Reads both sets from a place.
DataSet read_data(const DataPlace& place);

}  // namespace troupe
