#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::topology {

/// A figure that was measured several times; all 0: it was not.
struct Repeats {
  double median = 0;  // of an even number the mean of the two in the middle
  double least = 0;
  double most = 0;
  friend bool operator==(const Repeats&, const Repeats&) = default;
};
Repeats repeats_of(std::vector<double> values);

/// Copies within memory, by one core or several at once, each with memory of its own.
struct CopyFigure {
  std::uint32_t cores_numa = 0;   // operating system's number of the NUMA node of the cores
  std::uint32_t memory_numa = 0;  // of the memory
  std::uint32_t cores = 1;        // that copy at once
  std::uint64_t bytes = 0;        // source and target of one core together
  Repeats bytes_per_second;       // read and written ones, of all the cores together
  friend bool operator==(const CopyFigure&, const CopyFigure&) = default;
};

/// The forward and backward pass of dense layers on the CPU device.
struct ComputeFigure {
  std::string dtype;          // f32, bf16
  std::uint32_t rows = 0;     // of a batch
  std::uint32_t units = 0;    // of each layer, and of its input
  std::uint32_t devices = 1;  // that compute at once, each a model of its own
  std::uint32_t threads = 1;  // of each device
  Repeats flops_per_second;   // of one device; a multiply-add is 2
  friend bool operator==(const ComputeFigure&, const ComputeFigure&) = default;
};

/// Messages between two processes.
struct MessageFigure {
  std::string means;   // shm, tcp, or what UCX chose between hosts: auto
  std::string from{};  // host names; two processes of one host have the same
  std::string to{};
  bool same_node = true;     // false: between network namespaces, or hosts
  std::uint64_t bytes = 0;   // of a message of those whose rate is told
  Repeats seconds;           // one way, of a message of 8 bytes
  Repeats bytes_per_second;  // one direction
  friend bool operator==(const MessageFigure&, const MessageFigure&) = default;
};

/// What `rttopo bench` measured, or what is assumed where nobody did.
struct Measurements {
  std::string date;                             // 2026-01-31T09:05:00Z; empty: nothing was measured
  std::map<std::string, std::string> versions;  // of troupe, kernel, ucx, onednn
  std::string host;
  std::string cpu_model;
  std::uint32_t cores = 0;  // that this process might use
  double busy = 0;          // part of the CPUs' time that others had just before, 0 to 1
  bool winograd = false;    // the CPU device computes f32 convolutions by Winograd's algorithm where that gains
  std::vector<CopyFigure> copies;
  std::vector<ComputeFigure> compute;
  std::vector<MessageFigure> messages;
  friend bool operator==(const Measurements&, const Measurements&) = default;
};

inline constexpr int kMeasurementsVersion = 1;

/// {"schema": "troupe.measurements", "version": 1, ...} with the names of the fields.
std::string to_json(const Measurements& measurements);
/// Reads what to_json() wrote; fields that it does not know are skipped. Throws Error{invalid} with `source` in front
/// for anything else, and for figures that nothing could have (negative, not finite, in no order).
Measurements measurements_from_json(std::string_view text, std::string_view source);

/// Where `rttopo bench` puts what it measured on `host`, and where others look for it:
/// $XDG_CACHE_HOME/troupe/measurements/HOST.json, by default below ~/.cache; empty: neither variable is set.
std::string measurements_file(const std::string& host);
/// What is in `file`; nothing: it is not there. Throws as measurements_from_json, and Error{environment} when it cannot
/// be read.
std::optional<Measurements> read_measurements(const std::string& file);

}  // namespace troupe::topology
