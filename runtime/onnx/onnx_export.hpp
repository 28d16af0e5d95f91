#pragma once

// The room onnx: models as files of the ONNX format, for other programs.

#include <cstddef>
#include <functional>
#include <span>

#include "runtime/model/graph.hpp"

namespace troupe {

/// Writes the values of graph.parameters()[parameter] to `to`, row-major.
using ParameterNumbers = std::function<void(std::size_t parameter, std::span<float> to)>;
/// Gets the bytes of a file, piece by piece.
using OnnxBytes = std::function<void(std::span<const std::byte>)>;

/// Writes what the graph computes in an evaluation, without its losses, as an ONNX model of opset 20, in f32. Inputs
/// are the fields that the layers read, [rows, extents...] as in a batch (images: height, width, channels), tokens as
/// int64; outputs are the tensors that the losses read. Tensors have the names of fields, layers and parameters.
/// Requests the numbers of one parameter at a time. Throws Error{unsupported} for a model without layers, and if the
/// file would have 2 GiB or more, which no reader of ONNX accepts in one file.
void write_onnx(const Graph& graph, const ParameterNumbers& numbers, const OnnxBytes& write);

}  // namespace troupe
