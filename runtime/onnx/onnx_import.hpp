#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/model/graph.hpp"

namespace troupe {

/// A model that a file of ONNX has, as a graph can have it.
struct OnnxModel {
  std::string name;
  std::vector<Layer> layers;  // without a loss
  std::string output;         // the layer whose output is the file's
  /// The numbers with which parameters begin, by their names in a graph (layer.weight), row-major, as
  /// Graph::parameters() has them.
  std::map<std::string, std::vector<float>> parameters;
  std::string softmax;     // the node at the end that was left out; empty: none
  std::uint64_t hash = 0;  // xxh3 of the file, and of what it has in other files
};

struct OnnxOptions {
  std::string folder{};  // where numbers in other files lie; empty: nowhere
  std::string output{};  // which one the model puts out; empty: the only one
};

/// Reads what write_onnx writes, and what other programs write of the same layers. `fields`: those of the data, to
/// which the file's inputs belong by name, or, of one input, to the first; images may be [rows, channels, height,
/// width] in the file. A softmax at the end is left out, since the loss has it. Memory: a few times the bytes, and
/// those of the other files, and 32 MiB. Throws Error{invalid} for what is no file of ONNX or does not fit the fields,
/// Error{unsupported} naming the node and its operation for what no layer does. `where` is what messages begin with.
OnnxModel read_onnx(std::span<const std::byte> bytes, const std::vector<Field>& fields, const OnnxOptions& options,
                    const std::string& where);

/// The same of a file on the disk, of up to 2 GiB, whose numbers may lie in other files of its folder. `output`: as in
/// OnnxOptions.
OnnxModel read_onnx_file(const std::string& path, const std::vector<Field>& fields, const std::string& output);

}  // namespace troupe
