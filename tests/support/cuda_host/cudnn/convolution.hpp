#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "devices/cuda/cudnn_api.hpp"
#include "tests/support/cuda_host/entry.hpp"

namespace troupe::cuda::dnn::host {

using cuda::host::Address;
using cuda::host::PlacePtr;
using cuda::host::Run;

/// A tensor, channels next to each other: extents are images, channels, height, width.
struct TensorForm {
  std::int64_t id = 0, alignment = 0;
  std::array<std::int64_t, 4> extents{};
  DataType type = DataType::f32;
  bool is_virtual = false;

  std::uint64_t count() const noexcept;
  std::uint64_t size_bytes() const noexcept { return count() * (type == DataType::f32 ? 4 : 2); }
  std::string text() const;
};

/// A convolution with what follows it.
struct Form {
  DescriptorType kind = DescriptorType::convolution_forward;
  TensorForm images, weights, output;  // output: what lies in memory behind all of it
  std::optional<TensorForm> bias;
  bool has_relu = false, adds = false;
  std::array<std::int64_t, 2> padding{}, stride{}, dilation{};

  std::int64_t groups() const noexcept { return images.extents[1] / weights.extents[1]; }
  const TensorForm& result() const noexcept;
  /// In the order in which a call names them.
  std::vector<TensorForm> tensors() const;
  /// Other than success: the library has no such operation.
  const char* fault_name() const noexcept;
};

/// What the library computes a form by.
enum class Engine : std::int64_t {
  direct = 0,              // without a workspace
  in_parts = 1,            // of the taps, whose sums go through the workspace
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
std::vector<EngineConfig> proposals(const Form& form, HeuristicsMode mode);
std::vector<NumericalNote> notes_of(Engine engine);
std::uint64_t workspace_bytes(const Form& form, const EngineConfig& config);

/// With addresses: those of tensors().
struct Convolution {
  Form form;
  EngineConfig config;
  std::vector<Address> places;
  Address workspace = 0;

  Address place_of(const TensorForm& tensor) const;
  cuda::host::Uses uses() const;
  /// What is wrong with the addresses; empty: nothing.
  std::string mistake() const;
};
/// As an operation of a stream that is under way.
void run_convolution(Run& run, const Convolution& convolution, const PlacePtr& place);

}  // namespace troupe::cuda::dnn::host
