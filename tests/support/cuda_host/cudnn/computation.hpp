#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "devices/cuda/cudnn_api.hpp"
#include "devices/cuda/kernels/numbers.hpp"
#include "tests/support/cuda_host/entry.hpp"

namespace troupe::cuda::dnn::host {

using cuda::host::Address;
using cuda::host::PlacePtr;
using cuda::host::Run;

/// Four of a tensor. Of images: images, channels, height, width.
using Extents = std::array<std::int64_t, 4>;

struct TensorForm {
  std::int64_t id = 0, alignment = 0;
  Extents extents{}, strides{};  // strides in elements
  DataType type = DataType::f32;
  bool is_virtual = false;
  bool is_by_value = false;  // one number, which a call gives by an address of the host

  std::uint64_t count() const noexcept;
  /// From the first element to the last one. Other tensors may lie between them.
  std::uint64_t size_bytes() const noexcept;
  std::uint64_t element_bytes() const noexcept;
  bool is_channels_last() const noexcept;
  std::string text() const;
};
Stored stored(DataType type);

/// One image, or one filter, and its pixels.
struct Grid {
  std::int64_t height, width, channels;
  explicit Grid(const TensorForm& of) : height(of.extents[2]), width(of.extents[3]), channels(of.extents[1]) {}
  std::size_t at(std::int64_t image, std::int64_t y, std::int64_t x) const {
    return static_cast<std::size_t>(((image * height + y) * width + x) * channels);
  }
};

/// What the library computes a graph by.
enum class Engine : std::int64_t {
  direct = 0,              // without a workspace
  in_parts = 1,            // whose results go through the workspace
  tensor_cores = 2,        // which round f32 to TF32
  with_other_bits = 3,     // each time
  cannot_be_recorded = 4,  // it says so when it is asked to
  with_much_memory = 5,
  cannot_be_built = 6,
};
inline constexpr std::int64_t kEngines = 7;
/// The one setting of Engine::in_parts, from 1 to 4.
inline constexpr KnobType kParts{1};

struct EngineConfig {
  Engine engine = Engine::direct;
  std::optional<std::int64_t> parts;
};

/// Where the tensors are for the thread that computes.
struct Found {
  std::vector<void*> tensors;    // in the order of Computation::tensors()
  std::vector<float> constants;  // in that of Computation::constants()
  float* workspace = nullptr;    // null: the engine needs none
};

/// What a graph computes.
class Computation {
 public:
  /// A tensor in memory.
  struct Operand {
    TensorForm tensor;
    bool is_read = true, is_written = false;
  };
  virtual ~Computation() = default;
  virtual std::vector<Operand> tensors() const = 0;
  /// Ids of the numbers that a call gives by value.
  virtual std::vector<std::int64_t> constants() const { return {}; }
  /// Other than success: the library has no such graph.
  virtual const char* fault_name() const noexcept = 0;
  /// Where a call is wrong that only its numbers show: what is wrong with it.
  virtual std::string compute(const EngineConfig& config, const Found& found) const = 0;
};
using ComputationPtr = std::shared_ptr<const Computation>;

std::vector<EngineConfig> proposals(const Computation& of, HeuristicsMode mode);
std::vector<NumericalNote> notes_of(Engine engine);
/// Of a part in the workspace.
std::uint64_t words_of_part(const Computation& of);
std::uint64_t workspace_bytes(const Computation& of, const EngineConfig& config);

/// With addresses: those of tensors().
struct Call {
  ComputationPtr work;
  EngineConfig config;
  std::vector<Address> places{};
  std::vector<float> constants{};
  Address workspace = 0;

  cuda::host::Uses uses() const;
  /// What is wrong with the addresses; empty: nothing.
  std::string mistake() const;
};
/// As an operation of a stream that is under way.
void run_call(Run& run, const Call& call, const PlacePtr& place);

}  // namespace troupe::cuda::dnn::host
