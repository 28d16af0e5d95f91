#include "tests/support/cuda_host/faults.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

namespace troupe::cuda::host {
namespace {

constexpr std::array<std::pair<Result, const char*>, 50> kNames{{
    {Result::success, "success"},
    {Result::invalid_value, "invalid_value"},
    {Result::out_of_memory, "out_of_memory"},
    {Result::not_initialized, "not_initialized"},
    {Result::stub_library, "stub_library"},
    {Result::device_unavailable, "device_unavailable"},
    {Result::no_device, "no_device"},
    {Result::invalid_device, "invalid_device"},
    {Result::invalid_image, "invalid_image"},
    {Result::invalid_context, "invalid_context"},
    {Result::no_binary_for_gpu, "no_binary_for_gpu"},
    {Result::ecc_uncorrectable, "ecc_uncorrectable"},
    {Result::peer_access_unsupported, "peer_access_unsupported"},
    {Result::unsupported_ptx_version, "unsupported_ptx_version"},
    {Result::nvlink_uncorrectable, "nvlink_uncorrectable"},
    {Result::contained, "contained"},
    {Result::operating_system, "operating_system"},
    {Result::invalid_handle, "invalid_handle"},
    {Result::not_found, "not_found"},
    {Result::not_ready, "not_ready"},
    {Result::illegal_address, "illegal_address"},
    {Result::launch_timeout, "launch_timeout"},
    {Result::peer_access_already_enabled, "peer_access_already_enabled"},
    {Result::context_is_destroyed, "context_is_destroyed"},
    {Result::host_memory_already_registered, "host_memory_already_registered"},
    {Result::host_memory_not_registered, "host_memory_not_registered"},
    {Result::launch_failed, "launch_failed"},
    {Result::not_permitted, "not_permitted"},
    {Result::not_supported, "not_supported"},
    {Result::system_not_ready, "system_not_ready"},
    {Result::system_driver_mismatch, "system_driver_mismatch"},
    {Result::stream_capture_unsupported, "stream_capture_unsupported"},
    {Result::stream_capture_invalidated, "stream_capture_invalidated"},
    {Result::stream_capture_unmatched, "stream_capture_unmatched"},
    {Result::stream_capture_unjoined, "stream_capture_unjoined"},
    {Result::stream_capture_isolation, "stream_capture_isolation"},
    {Result::captured_event, "captured_event"},
    {Result::unknown, "unknown"},
    {Result{kNcclFault + 2}, "nccl_system_error"},
    {Result{kNcclFault + 3}, "nccl_internal_error"},
    {Result{kNcclFault + 6}, "nccl_remote_error"},
    {Result{kNcclFault + 7}, "nccl_in_progress"},
    {Result{kCublasLtFault + 1}, "cublaslt_not_initialized"},
    {Result{kCublasLtFault + 3}, "cublaslt_alloc_failed"},
    {Result{kCublasLtFault + 13}, "cublaslt_execution_failed"},
    {Result{kCublasLtFault + 15}, "cublaslt_not_supported"},
    {Result{kCudnnFault + 1001}, "cudnn_not_initialized"},
    {Result{kCudnnFault + 3000}, "cudnn_not_supported"},
    {Result{kCudnnFault + 4004}, "cudnn_alloc_failed"},
    {Result{kCudnnFault + 5000}, "cudnn_execution_failed"},
}};

[[noreturn]] void refuse(const std::string& variable, const std::string& value) {
  std::fprintf(stderr, "cuda stand-in: %s=%s is not understood\n", variable.c_str(), value.c_str());
  std::abort();
}

std::string variable(const char* name, const char* otherwise) {
  const char* const value = std::getenv((std::string{"TROUPE_CUDA_HOST_"} + name).c_str());
  return value == nullptr ? otherwise : value;
}

std::uint64_t number(const char* name, const char* otherwise) {
  const std::string text = variable(name, otherwise);
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0') refuse(name, text);
  return value;
}

Result result_of(const std::string& text) {
  for (const auto& [result, name] : kNames)
    if (text == name) return result;
  refuse("TROUPE_CUDA_HOST_FAULT", text);
}

/// "name:3=result" or "name=result".
Fault fault_of(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos) refuse("TROUPE_CUDA_HOST_FAULT", text);
  const auto colon = text.find(':');
  Fault fault{text.substr(0, std::min(colon, equals)), 0, result_of(text.substr(equals + 1))};
  if (colon < equals) fault.call = std::strtoull(text.c_str() + colon + 1, nullptr, 10);
  return fault;
}

/// "name=microseconds,...".
std::optional<std::map<std::string, float>> told_times() {
  const std::string all = variable("TIMES", "");
  if (all.empty()) return std::nullopt;
  std::map<std::string, float> times;
  std::istringstream parts{all};
  for (std::string one; std::getline(parts, one, ',');) {
    const auto equals = one.find('=');
    char* end = nullptr;
    const float time = equals == one.npos ? 0 : std::strtof(one.c_str() + equals + 1, &end);
    if (end == nullptr || *end != '\0' || time <= 0) refuse("TROUPE_CUDA_HOST_TIMES", one);
    times[one.substr(0, equals)] = time;
  }
  return times;
}

}  // namespace

float Settings::microseconds_of(const std::string& name) const {
  constexpr float kOthers = 10;
  const auto found = times->find(name);
  return found == times->end() ? kOthers : found->second;
}

Settings Settings::of_environment() {
  Settings settings;
  settings.seed = number("SEED", "0");
  settings.devices = static_cast<int>(number("DEVICES", "1"));
  if (settings.devices > 8) refuse("DEVICES", std::to_string(settings.devices));
  settings.memory_bytes = number("MEMORY", "2147483648");
  settings.deadline = std::chrono::milliseconds{number("DEADLINE_MS", "20000")};
  settings.driver_version = static_cast<int>(number("DRIVER", "13000"));
  settings.mode = variable("MODE", "");
  settings.closed = number("CLOSED", "0") != 0;
  settings.prepared = variable("PREPARED", "");
  settings.times = told_times();
  std::istringstream faults{variable("FAULT", "")};
  for (std::string one; std::getline(faults, one, ',');) settings.faults.push_back(fault_of(one));
  return settings;
}

const char* name_of(Result result) noexcept {
  for (const auto& [known, name] : kNames)
    if (known == result) return name;
  return nullptr;
}

Result Calls::next(const Settings& settings, const std::string& name) {
  if (settings.faults.empty()) return Result::success;
  const std::uint64_t now = ++count_[name];
  for (const Fault& fault : settings.faults)
    if (fault.name == name && (fault.call == 0 || fault.call == now)) return fault.result;
  return Result::success;
}

}  // namespace troupe::cuda::host
