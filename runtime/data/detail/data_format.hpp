#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/data/find.hpp"

namespace troupe::detail {

/// What one word of data.source stands for, of those that name files. A format is a source file that defines its row
/// and a line in data_formats().
struct DataFormat {
  std::string_view word;   // of data.source
  std::string_view title;  // "IDX data"
  std::string_view set;    // subfolder of TROUPE_DATA where it is looked for; empty: it is not
  std::string_view needs;  // what a folder must hold
  std::string_view cure;   // what else helps where nothing is found; may be empty
  bool is_file = false;    // data.path names a file, `needs` says of what; the functions are given it for a folder
  /// Whether `folder`, which is there, holds any part of a set. Throws Error{invalid} that names what is missing when
  /// it holds some.
  bool (*is_in)(const std::string& folder) = nullptr;
  /// What read() would find, without reading more than it must. Throws Error{invalid} for files that are broken or do
  /// not belong together.
  DataFacts (*look)(const std::string& folder, const DataOptions& options) = nullptr;
  /// Likewise; the origin is left empty.
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

/// Whether there is something at `path`. Throws Error{environment} when the system does not say.
bool is_there(const std::string& path);

}  // namespace troupe::detail
