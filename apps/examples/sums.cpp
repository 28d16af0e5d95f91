// Every process has its own numbers, and all get the sums, which a device of the program's own computes.
// Start it with RANK=0 and 1, or by `rtrun app.toml -- ./example_sums`.
#include <caf/actor_system.hpp>
#include <iostream>

#include "apps/group/group_communicator.hpp"
#include "apps/group/ucx_group.hpp"
#include "devices/cpu/cpu_device.hpp"

using namespace std::chrono_literals;
using troupe::Deadline;

int main() try {
  caf::actor_system_config config;
  troupe::configure_group(config);
  caf::actor_system system(config);
  auto blocking = troupe::Blocking::on_thread("main");
  auto options = troupe::ucx_group_options();
  options.arena_bytes = 1 << 20;
  const auto group = troupe::Group::join(blocking, system, std::move(options));

  troupe::GroupCommunicator all(blocking, *group, make_cpu_device(group->space(), {}), Deadline::after(10s));
  constexpr std::uint64_t kCount = 1000;
  const troupe::Memory data = group->arena().allocate(kCount * sizeof(float));
  float* const numbers = group->space().address_of<float>(data);
  for (std::uint64_t i = 0; i < kCount; ++i) numbers[i] = static_cast<float>(group->self().value + i);
  all.communicator().all_reduce(all.stream(), data);
  all.finish(blocking, Deadline::after(10s));
  std::cout << "the last sum of " << group->size() << " processes is " << numbers[kCount - 1] << std::endl;
  std::cout << group->stop(blocking, Deadline::after(60s)).text() << std::endl;
} catch (const troupe::Error& error) {
  std::cerr << error.what() << std::endl;
  return troupe::exit_code(error.code());
}
