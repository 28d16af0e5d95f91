#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::topology {

/// A value that was measured several times; all 0: it was not measured.
struct Repeats {
  double median = 0;  // for an even number of values, the mean of the two in the middle
  double least = 0;
  double most = 0;
  friend bool operator==(const Repeats&, const Repeats&) = default;
};
Repeats repeats_of(std::vector<double> values);

/// Copies within memory, by one core or by several at the same time, each in memory of its own.
struct CopyFigure {
  std::uint32_t cores_numa = 0;   // the system's number of the cores' NUMA node
  std::uint32_t memory_numa = 0;  // the same of the memory
  std::uint32_t cores = 1;        // copying at the same time
  std::uint64_t bytes = 0;        // source and target of one core together
  Repeats bytes_per_second;       // read and written bytes, over all cores
  friend bool operator==(const CopyFigure&, const CopyFigure&) = default;
};

/// The forward and backward pass of dense layers on a device.
struct ComputeFigure {
  std::string dtype;          // f32, bf16; on GPUs also tf32: f32 whose products round their operands to TF32
  std::uint32_t rows = 0;     // of a batch
  std::uint32_t units = 0;    // of each layer, and of its input
  std::uint32_t devices = 1;  // computing at the same time, each with a model of its own
  std::uint32_t threads = 1;  // of each device
  Repeats flops_per_second;   // of one device; a multiply-add is 2
  std::uint32_t layers = 4;   // of the model

  /// The weights of the model, which decide which cache holds them; at least 1.
  double weights() const noexcept { return std::max(1.0, 1.0 * layers * units * units); }
  friend bool operator==(const ComputeFigure&, const ComputeFigure&) = default;
};

/// Messages between two processes.
struct MessageFigure {
  std::string means;   // shm, tcp, or what UCX chose between hosts: auto
  std::string from{};  // host names; two processes of one host have the same
  std::string to{};
  bool same_node = true;     // false: between network namespaces or hosts
  std::uint64_t bytes = 0;   // size of the messages for bytes_per_second
  Repeats seconds;           // one way, of a message of 8 bytes
  Repeats bytes_per_second;  // one direction, while nothing is sent in the other
  Repeats both_ways{};       // bytes per second in each direction while both ends send; median 0: not measured

  /// What an exchange gets, whose ranks all send and receive at the same time.
  double exchange_rate() const noexcept { return both_ways.median > 0 ? both_ways.median : bytes_per_second.median; }
  friend bool operator==(const MessageFigure&, const MessageFigure&) = default;
};

/// A GPU, by the device that trains on it.
struct GpuFigure {
  std::string bus;                       // PCI bus id, 0000:3b:00.0
  std::string model;                     // may be empty
  std::string products;                  // what computes them: "cuBLASLt 13.1.0"; empty: own kernels
  Repeats bytes_per_second;              // copies within its memory, read and written bytes
  Repeats launch_seconds;                // of a recorded program of one small kernel, behind others
  Repeats kernel_seconds;                // by which each further small kernel makes such a program longer
  std::vector<ComputeFigure> compute{};  // products by the library: dtype f32, tf32, bf16; empty: there is none
  std::vector<ComputeFigure> own{};      // products by own kernels, which also compute convolutions: f32, bf16
  std::string modelled_from{};           // what the figures follow from; empty: they were measured. In no file
  friend bool operator==(const GpuFigure&, const GpuFigure&) = default;
};

/// Copies by a GPU's stream between its memory and other memory.
struct GpuLinkFigure {
  static constexpr const char* kHost = "host";
  std::string from;          // PCI bus id, or "host"
  std::string to;            // likewise
  std::uint64_t bytes = 0;   // size of a copy for bytes_per_second
  Repeats seconds;           // of a copy of 64 bytes, behind others
  Repeats bytes_per_second;  // in this direction
  friend bool operator==(const GpuLinkFigure&, const GpuLinkFigure&) = default;
};

/// The results of `rttopo bench`, or the values that are assumed without them.
struct Measurements {
  std::string date;                             // 2026-01-31T09:05:00Z; empty: nothing was measured
  std::map<std::string, std::string> versions;  // of troupe, kernel, ucx, onednn, cuda, gpu_driver
  std::string host;
  std::string cpu_model;
  std::uint32_t cores = 0;  // cores that this process could use
  double busy = 0;          // fraction of the CPUs' time that other processes used just before, 0 to 1
  bool winograd = false;    // the CPU device computes f32 convolutions by Winograd's algorithm where that gains
  std::vector<CopyFigure> copies;
  std::vector<ComputeFigure> compute;
  std::vector<MessageFigure> messages;
  std::vector<GpuFigure> gpus{};
  std::vector<GpuLinkFigure> gpu_links{};
  friend bool operator==(const Measurements&, const Measurements&) = default;
};

inline constexpr int kMeasurementsVersion = 1;

/// {"schema": "troupe.measurements", "version": 1, ...} with the fields under their names.
std::string to_json(const Measurements& measurements);
/// Reads the output of to_json(); unknown fields are skipped. Throws Error{invalid}, whose text begins with `source`,
/// for anything else and for impossible figures (negative, not finite, in the wrong order).
Measurements measurements_from_json(std::string_view text, std::string_view source);

/// The file into which `rttopo bench` writes the measurements of `host`, and where others look for them:
/// $XDG_CACHE_HOME/troupe/measurements/HOST.json, by default below ~/.cache; empty: neither variable is set.
std::string measurements_file(const std::string& host);
/// The content of `file`; empty: it does not exist. Throws like measurements_from_json, and Error{environment} if it
/// cannot be read.
std::optional<Measurements> read_measurements(const std::string& file);

}  // namespace troupe::topology
