#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/arena.hpp"
#include "runtime/blocking.hpp"
#include "runtime/data/random.hpp"
#include "runtime/device.hpp"

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
  Device& device() {
    if (!device_) device_ = GetParam().make(space_, std::chrono::seconds{20});
    return *device_;
  }
  std::shared_ptr<Arena> arena() { return arena_; }
  Timeline& make_line() { return space_.timeline(arena_->make_timeline()); }

  template <class T>
  Memory put(std::span<const T> values) {
    const Memory memory = arena_->allocate(values.size_bytes());
    if (!values.empty()) std::memcpy(space_.address(memory), values.data(), values.size_bytes());
    return memory;
  }
  Memory put(const std::vector<float>& values) { return put(std::span<const float>{values}); }
  Memory put_sums(const StepSums& sums) { return put(std::span<const StepSums>{&sums, 1}); }
  template <class T = float>
  std::vector<T> get(const Memory& memory) {
    std::vector<T> values(memory.size_bytes / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), space_.address(memory), memory.size_bytes);
    return values;
  }
  template <class T>
  T& at(const Memory& memory) {
    return *space_.address_of<T>(memory);
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
  AddressSpace space_;
  std::shared_ptr<Arena> arena_ = [this] {
    auto arena = Arena::create(arena_id(Peer{0}, 1), kArenaBytes);
    space_.map(arena);
    return arena;
  }();
  std::unique_ptr<Device> device_;
};

}  // namespace troupe::contracts
