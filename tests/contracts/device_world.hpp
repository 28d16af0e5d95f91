#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "runtime/base/random.hpp"
#include "runtime/compute/device.hpp"
#include "runtime/compute/host_copies.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe::contracts {

/// A kind of device that the suites run on. Each test program instantiates each suite once, e.g.
///   INSTANTIATE_TEST_SUITE_P(Cpu, StreamContract, ::testing::Values(cpu_case()), case_name);
struct DeviceCase {
  std::string name;
  /// Makes a device whose waits fail after `wait_deadline`.
  std::function<std::unique_ptr<Device>(AddressSpace&, std::chrono::milliseconds wait_deadline)> make;
  bool waits_have_deadlines = true;  // false: the device has no time
};
inline std::string case_name(const ::testing::TestParamInfo<DeviceCase>& info) { return info.param.name; }
inline void PrintTo(const DeviceCase& device_case, std::ostream* out) { *out << device_case.name; }

/// A device, and memory that it and the test both see.
class DeviceWorld : public ::testing::TestWithParam<DeviceCase> {
 protected:
  static constexpr std::uint64_t kArenaBytes = 16 << 20;

  AddressSpace& space() { return space_; }
  /// The device takes all memory of a test when it is made: once a stream waits, a driver may let a call that allocates
  /// or registers memory wait, too.
  Device& device() {
    if (device_) return *device_;
    device_ = GetParam().make(space_, std::chrono::seconds{20});
    copies_.emplace(*device_, space_, arena_id(Peer{0}, 3), std::chrono::seconds{20});
    if (device_->traits().memory != MemoryKind::device) return *device_;
    own_ = device_->allocate(arena_id(Peer{0}, 2), MemoryKind::device, kArenaBytes);
    device_->prepare(std::array{arena_->id()});
    copies_->prepare();
    return *device_;
  }
  std::shared_ptr<Arena> arena() { return arena_; }
  Timeline& make_line() { return space_.timeline(arena_->make_timeline()); }

  /// Memory of the kind on which the device works best.
  Memory take(std::uint64_t size_bytes) {
    if (device().traits().memory != MemoryKind::device) return arena_->allocate(size_bytes);
    const Memory part = slice(own_, used_, size_bytes);
    used_ += (size_bytes + 63) / 64 * 64;
    TROUPE_CHECK(used_ <= kArenaBytes, Code::out_of_memory, "a test takes more than ", kArenaBytes, " bytes");
    return part;
  }
  template <class T>
  void write(const Memory& to, std::span<const T> values) {
    copies().write(to, [&](std::span<std::byte> bytes) { std::memcpy(bytes.data(), values.data(), bytes.size()); });
  }
  template <class T>
  void write(const Memory& to, const std::vector<T>& values) {
    write(to, std::span<const T>{values});
  }
  void write_sums(const Memory& to, const StepSums& sums) { write(to, std::span<const StepSums>{&sums, 1}); }
  template <class T>
  Memory put(std::span<const T> values) {
    const Memory memory = take(values.size_bytes());
    write(memory, values);
    return memory;
  }
  Memory put(const std::vector<float>& values) { return put(std::span<const float>{values}); }
  Memory put_sums(const StepSums& sums) { return put(std::span<const StepSums>{&sums, 1}); }
  template <class T = float>
  std::vector<T> get(const Memory& memory) {
    std::vector<T> values(memory.size_bytes / sizeof(T));
    copies().read(memory, [&](std::span<const std::byte> bytes) {
      if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    });
    return values;
  }
  template <class T>
  T value(const Memory& memory) {
    return get<T>(slice(memory, 0, sizeof(T))).at(0);
  }
  /// `count` numbers around 0 of size about 1, none of them tiny.
  static std::vector<float> random_floats(std::uint64_t key, std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(random_normal(key, i));
    return values;
  }

  /// Waits until `point` is reached or failed.
  Status reach(Point point) {
    Blocking blocking = Blocking::on_thread("test");
    return space_.timeline(point.line)
        .wait(blocking, point.value, Deadline::after(std::chrono::seconds{30}), "a test's point");
  }
  /// Waits until everything on `stream` is done; a failure fails the test.
  void finish(Stream& stream) {
    const Status status = reach(stream.mark());
    ASSERT_TRUE(status.ok()) << name_of(status.code()) << ": " << status.text();
  }

 private:
  HostCopies& copies() {
    (void)device();
    return *copies_;
  }

  AddressSpace space_;
  std::shared_ptr<Arena> arena_ = [this] {
    auto arena = Arena::create(arena_id(Peer{0}, 1), kArenaBytes);
    space_.map(arena);
    return arena;
  }();
  std::unique_ptr<Device> device_;
  std::optional<HostCopies> copies_;
  Memory own_;  // the device's, where it has its own
  std::uint64_t used_ = 0;
};

}  // namespace troupe::contracts
