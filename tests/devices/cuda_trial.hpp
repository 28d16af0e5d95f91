#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "devices/cuda/cuda_device.hpp"
#include "runtime/model/f16.hpp"
#include "tests/contracts/device_world.hpp"
#include "tests/support/gpu.hpp"

// Steps of a graph on a CUDA device of their own: for what computes them, and what happens where a library cannot.
namespace troupe {

inline constexpr std::uint32_t kTrialRows = 7;

struct NoSink final : BucketSink {
  void ready(const Bucket&, Stream&) noexcept override {}
};

/// A replica of `graph` (an image, classes) on a device of its own, and a batch.
class Trial {
 public:
  Trial(CudaDeviceOptions options, Graph graph, bool owns_gradients = false)
      : device_(make_cuda_device(space_, std::move(options))), graph_(std::move(graph)) {
    const std::uint64_t count = layout_.count_elements();
    std::vector<float> start(count);
    fill_initial(graph_, layout_, 3, start);
    copies_.prepare();
    memory_ = {put<float>(start), {}, put<float>(std::vector<float>(count))};
    if (graph_.dtype() != DType::f32) {
      std::vector<std::uint16_t> image;
      for (const float value : start) image.push_back(graph_.dtype() == DType::f16 ? to_f16(value) : to_bf16(value));
      memory_.half = put<std::uint16_t>(image);
    }
    memory_.owns_gradients = owns_gradients;
    replica_ = device_->compile(graph_, layout_, rows_, make_buckets(GroupId{}, graph_, layout_, 0), memory_);
    sums_ = put<StepSums>({StepSums{}});
    for (Memory& batch : batches_) batch = take(rows_.size_bytes());
    for (Memory& batch : announced_) {
      batch = take(rows_.size_bytes(), MemoryKind::pinned);
      device_->prepare(std::span{&batch.arena, 1});
    }
    stream_ = device_->stream();
  }

  std::string description() const { return device_->traits().description; }
  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }
  AddressSpace& space() { return space_; }
  /// Enqueues a step on batch `key`. At most two are in progress at a time.
  void step(std::uint64_t key, std::uint32_t rows = kTrialRows) {
    const Memory batch = batches_[key % batches_.size()];
    fill(batch, batch_of(key));
    replica_->step(*stream_, batch, rows, sums_, sink_);
  }
  /// The same for a batch in the host's memory of which the replica is told before. At most six are in progress.
  void announced_step(std::uint64_t key) {
    const Memory batch = announced_[key % announced_.size()];
    const std::vector<std::byte> bytes = batch_of(key);
    std::memcpy(space_.address(batch), bytes.data(), bytes.size());
    replica_->announce(batch, {});
    replica_->step(*stream_, batch, kTrialRows, sums_, sink_);
    (void)stream_->mark();
  }
  Status end() {
    const Point point = stream_->mark();
    Blocking blocking = Blocking::on_thread("test");
    return space_.timeline(point.line).wait(blocking, point.value, Deadline::after(std::chrono::seconds{30}), "a step");
  }
  std::vector<float> gradients() {
    std::vector<float> values(layout_.count_elements());
    copies_.read(memory_.gradients,
                 [&](std::span<const std::byte> bytes) { std::memcpy(values.data(), bytes.data(), bytes.size()); });
    return values;
  }

 private:
  std::vector<std::byte> batch_of(std::uint64_t key) const {
    std::vector<std::byte> bytes(rows_.size_bytes());
    const BatchLayout::Entry& image = rows_.entry(kImage);
    const bool is_f32 = batch_type(graph_.dtype()) == DType::f32;
    for (std::uint64_t i = 0; i < kTrialRows * image.row_elements(); ++i) {
      const auto value = static_cast<float>(random_normal(key, i));
      const std::uint16_t rounded = to_bf16(value);
      std::memcpy(bytes.data() + image.offset + i * (is_f32 ? sizeof value : sizeof rounded),
                  is_f32 ? static_cast<const void*>(&value) : &rounded, is_f32 ? sizeof value : sizeof rounded);
    }
    std::memset(bytes.data() + rows_.entry(kLabel).offset, 0, kTrialRows * sizeof(std::int32_t));
    return bytes;
  }
  Memory take(std::uint64_t size_bytes, MemoryKind kind = MemoryKind::device) {
    return device_->allocate(arena_id(Peer{0}, ++arenas_), kind, size_bytes);
  }
  template <class T>
  void fill(const Memory& to, const std::vector<T>& values) {
    copies_.write(to, [&](std::span<std::byte> bytes) { std::memcpy(bytes.data(), values.data(), bytes.size()); });
  }
  template <class T>
  Memory put(const std::vector<T>& values) {
    const Memory to = take(values.size() * sizeof(T));
    fill(to, values);
    return to;
  }

  AddressSpace space_;
  std::uint32_t arenas_ = 0;
  std::unique_ptr<Device> device_;
  HostCopies copies_{*device_, space_, arena_id(Peer{0}, ++arenas_), std::chrono::seconds{20}};
  const Graph graph_;
  const Layout layout_{graph_};
  const BatchLayout rows_{kTrialRows, graph_.fields()};
  ReplicaMemory memory_;
  std::unique_ptr<Replica> replica_;
  Memory sums_;
  std::array<Memory, 2> batches_;
  std::array<Memory, 6> announced_;
  NoSink sink_;
  std::unique_ptr<Stream> stream_;
};

inline std::vector<float> gradients_of(const Graph& graph, const CudaDeviceOptions& options,
                                       std::uint32_t rows = kTrialRows, bool owns_gradients = false) {
  Trial trial{options, graph, owns_gradients};
  trial.step(5, rows);
  const Status status = trial.end();
  TROUPE_CHECK(status.ok(), status.code(), status.text());
  return trial.gradients();
}

/// The distance of two vectors, divided by the length of one.
inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double apart = 0, length = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    apart += std::pow(static_cast<double>(a[i]) - b[i], 2);
    length += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(apart / length);
}

/// Of the environment: names and values.
using Variables = std::initializer_list<std::pair<const char*, const char*>>;

/// What `say` returns in a process of its own with these variables, or the error.
inline std::string said_with(Variables variables, const std::function<std::string()>& say) {
  return gpu::in_child([&] {
    for (const auto& [name, value] : variables) (void)::setenv(name, value, 1);
    try {
      return say();
    } catch (const Error& error) {
      return text(name_of(error.code()), ": ", error.what());
    }
  });
}
inline void expect_says(const std::string& said, std::initializer_list<const char*> parts) {
  for (const char* const part : parts) EXPECT_NE(said.find(part), said.npos) << said;
}

namespace fs = std::filesystem;

/// A folder of its own, gone when the test ends.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (fs::temp_directory_path() / "troupe-choices-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// The one file of choices in a folder for caches; empty: there is none.
inline fs::path file_in(const fs::path& folder) {
  if (!fs::exists(folder / "troupe")) return {};
  for (const auto& entry : fs::directory_iterator(folder / "troupe")) return entry.path();
  return {};
}
inline std::string content_of(const fs::path& file) {
  std::ostringstream read;
  read << std::ifstream{file}.rdbuf();
  return read.str();
}

/// A step whose stream fails while it waits leaves the gradients of the step before: another rank may be reading them
/// still, and that is what the wait was for.
inline void expect_gradients_as_before_a_failure(const Graph& graph) {
  Trial trial{{}, graph};
  const auto arena = Arena::create(arena_id(Peer{1}, 1), 1 << 12);
  trial.space().map(arena);
  trial.device().prepare(std::array{arena->id()});
  trial.step(1);
  ASSERT_TRUE(trial.end().ok());
  const std::vector<float> before = trial.gradients();
  const TimelineId line = arena->make_timeline();
  trial.stream().wait({line, 1});
  trial.step(2);
  trial.space().timeline(line).poison({Code::peer_lost, "a peer has ended"});
  EXPECT_EQ(trial.end().code(), Code::peer_lost);
  EXPECT_EQ(trial.gradients(), before);
}

/// Of what cuDNN can compute, all by it, or all by kernels of ours.
inline CudaDeviceOptions by_library() { return {.products = "own", .convolutions = "cudnn"}; }
inline CudaDeviceOptions by_kernels() { return {.products = "own", .convolutions = "own"}; }

/// How far a step's gradients by cuDNN are from those by kernels of ours, with these variables.
inline double distance_with(Variables variables, const Graph& graph) {
  return std::stod(said_with(variables, [&graph] {
    return text(distance(gradients_of(graph, by_library()), gradients_of(graph, by_kernels())));
  }));
}

/// The choices that a replica leaves in a folder, with these variables, and the device's description.
inline std::string choices_with(Variables variables, const fs::path& folder, const Graph& graph) {
  const std::string said = said_with(variables, [&graph] {
    Trial trial{by_library(), graph};
    trial.step(1);
    return text(trial.description(), trial.end().ok() ? "; done" : "; failed");
  });
  return text(said, '\n', content_of(file_in(folder)));
}

}  // namespace troupe
