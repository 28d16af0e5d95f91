#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/data/find_data.hpp"

namespace troupe::detail {

/// The meaning of a word of data.source that names files. A format consists of a source file that defines its row, a
/// line in data_formats(), and the word in the schema; docs/extending.md lists the places.
struct DataFormat {
  std::string_view word;   // of data.source
  std::string_view title;  // "IDX data"
  std::string_view set;    // subfolder of TROUPE_DATA that is searched; empty: none
  std::string_view needs;  // what a folder must contain
  std::string_view cure;   // additional advice if nothing is found; may be empty
  bool is_file = false;    // data.path names a file, described by `needs`; functions get it instead of a folder
  /// Whether `folder`, which exists, contains any part of a set. Throws Error{invalid}, which names the missing parts,
  /// if it contains only some.
  bool (*is_in)(const std::string& folder) = nullptr;
  /// The facts that read() would find, without reading more than necessary; null: all that it reads is necessary.
  /// Throws Error{invalid} for files that are broken or do not belong together.
  DataFacts (*look)(const std::string& folder, const DataOptions& options) = nullptr;
  /// Likewise; leaves the origin empty.
  DataSet (*read)(const std::string& folder, const DataOptions& options) = nullptr;
};

extern const DataFormat kIdxFormat;
extern const DataFormat kCifarFormat;
extern const DataFormat kFolderFormat;
extern const DataFormat kMapFormat;
extern const DataFormat kShardsFormat;
extern const DataFormat kVocFormat;
extern const DataFormat kTextFormat;

std::span<const DataFormat* const> data_formats();

/// Whether something exists at `path`. Throws Error{environment} if the system does not say.
bool is_there(const std::string& path);

}  // namespace troupe::detail
