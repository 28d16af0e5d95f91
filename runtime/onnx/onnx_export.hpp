#pragma once

// The room onnx: models as files of the ONNX format, for other programs.

#include <cstddef>
#include <functional>
#include <span>

#include "runtime/model/graph.hpp"

namespace troupe {

/// Gives the numbers of graph.parameters()[parameter], row-major.
using ParameterNumbers = std::function<void(std::size_t parameter, std::span<float> to)>;
/// Takes the bytes of a file, one piece after another.
using OnnxBytes = std::function<void(std::span<const std::byte>)>;

/// Writes what the graph computes in an evaluation, without its losses, as an ONNX model of opset 20, in f32. Inputs
/// are the fields that its layers read, [rows, extents...] as in a batch (images: height, width, channels), tokens as
/// int64; outputs are the tensors that the losses read. Tensors have the names of fields, layers and parameters. Asks
/// for the numbers of one parameter at a time. Throws Error{unsupported} for a model without layers, and for one whose
/// file would have 2 GiB or more, which no reader of ONNX takes in one file.
void write_onnx(const Graph& graph, const ParameterNumbers& numbers, const OnnxBytes& write);

}  // namespace troupe
