#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "devices/cuda/driver_api.hpp"
#include "tests/support/cuda_host/control.hpp"
#include "tests/support/cuda_host/test_image.hpp"

namespace troupe::cuda::testing {

using Words = std::vector<std::uint64_t>;

// The kernels of these tests. Each is its own HostKernel: their bodies are never compiled for a GPU.

/// to[i] += from[i] * factor.
struct AddArgs {
  std::uint64_t* to;
  const std::uint64_t* from;
  std::uint64_t count;
  std::uint64_t factor;
};
/// The same with a factor that stands in pinned memory, as a step block does.
struct AddBlockArgs {
  std::uint64_t* to;
  const std::uint64_t* from;
  std::uint64_t count;
  const std::uint64_t* factor;
};
/// Writes `value` to the word, or waits until it is there.
struct WordArgs {
  std::uint64_t* word;
  std::uint64_t value;
};
/// Ends the stream, as a kernel of Troupe does whose wait has failed.
struct EndArgs {
  StreamState* stream;
  std::uint64_t* word = nullptr;  // that it would have signalled
};

/// All kernels, in the place of an image for GPUs.
const host::TestImage& image();

/// Ends the process: a program of these tests cannot go on.
[[noreturn]] void give_up(const char* what, Result result);

/// Functions of the stand-in, and a device with its kernels. Calls that are made through it fail the process when they
/// fail; what a test expects to fail it calls by `driver`. Its functions are inlined, so that a report names the
/// program that calls them.
class Rig {
 public:
  explicit Rig(int devices = 1);
  /// Gives back all that it made itself.
  ~Rig();
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  const Driver driver;
  int (*reports)(char* text, std::size_t size_bytes) = nullptr;
  void (*access)(const void* at, std::size_t size_bytes, int writes, const char* what) = nullptr;

  template <class... Parameters, class... Arguments>
  [[gnu::always_inline]] void must(Result (*call)(Parameters...), Arguments... arguments) const {
    const Result result = call(arguments...);
    if (result != Result::success) give_up("a call", result);
  }
  Context context(int device) const { return contexts_[static_cast<std::size_t>(device)]; }
  Function function(const char* name, int device = 0) const;
  /// Made here and destroyed with it.
  StreamHandle stream();
  EventHandle event();
  MemoryPool pool(std::size_t most_bytes = 0);
  std::uint64_t* pinned(std::size_t count);
  DevicePointer memory(std::size_t count);
  /// No longer to be given back.
  void forget(DevicePointer pointer);

  template <class Args>
  [[gnu::always_inline]] Result launch(const char* name, Args args, StreamHandle stream, int device = 0) const {
    void* parameters[] = {&args};
    const Function kernel = function(name, device);
    const Result result = driver.launch_kernel(kernel, 3, 1, 1, 64, 1, 1, 0, stream, parameters, nullptr);
    return result;
  }
  [[gnu::always_inline]] void add(const char* name, DevicePointer to, DevicePointer from, std::size_t count,
                                  StreamHandle stream, std::uint64_t factor = 1) const {
    const Result result = launch(name, AddArgs{words_at(to), words_at(from), count, factor}, stream);
    if (result != Result::success) give_up(name, result);
  }
  [[gnu::always_inline]] void fill(DevicePointer to, std::size_t count, StreamHandle stream,
                                   unsigned char value = 1) const {
    must(driver.memset_d8_async, to, value, count * 8, stream);
  }
  static std::uint64_t* words_at(DevicePointer pointer) { return reinterpret_cast<std::uint64_t*>(pointer); }
  static DevicePointer pointer_to(const void* at) { return reinterpret_cast<DevicePointer>(at); }

 private:
  std::vector<Context> contexts_;
  std::vector<Module> modules_;
  std::vector<StreamHandle> streams_;
  std::vector<EventHandle> events_;
  std::vector<MemoryPool> pools_;
  std::vector<void*> pinned_;
  std::vector<DevicePointer> memory_;
};

/// How a program of the stand-in ended, in a process of its own.
struct Ending {
  int code = -1;     // exit code, 128 + the signal, or -1: not in time
  std::string text;  // of stderr
};

/// Runs program() in a forked process under TROUPE_CUDA_HOST_... as `settings` say ("SEED=3"). Its result is the exit
/// code.
Ending run_apart(int (*program)(), const std::vector<std::string>& settings);

}  // namespace troupe::cuda::testing
