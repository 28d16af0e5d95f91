#include "tools/crew/measured_process.hpp"

#include <unistd.h>

#include <fstream>

#include "runtime/base/error.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::crew {
namespace {

/// UCX lists the devices that are up when it starts; a new device may need a moment.
void await_device(Blocking&, const std::string& device) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  const std::string file = "/sys/class/net/" + device + "/operstate";
  for (std::string state; state != "up" && state != "unknown"; ::usleep(2000)) {
    std::ifstream(file) >> state;
    TROUPE_CHECK(!deadline.passed(), Code::environment, "the network device ", device, " does not come up (", file,
                 " says \"", state, "\")");
  }
}

}  // namespace

void configure_workers(caf::actor_system_config& config, std::uint32_t workers) {
  config.set("scheduler.policy", caf::atom("sharing"));
  if (workers > 0) config.set("scheduler.max-threads", std::size_t{workers});
  config.set("logger.verbosity", caf::atom("quiet"));
}

MeasuredProcess::Config::Config(std::uint32_t workers, Configure* configure) {
  configure_group(*this);
  configure_workers(*this, workers);
  configure(*this);
}

std::unique_ptr<Transport> make_transport(const Means& means, AddressSpace& space, Peer self,
                                          std::vector<ProcessLocation> hosts) {
  UcxOptions ucx{
      .self = self, .means = means.transport == "tcp" ? UcxMeans::tcp : UcxMeans::shm, .hosts = std::move(hosts)};
  ucx.network_devices = means.device;
  return make_ucx_transport(space, ucx);
}

MeasuredProcess::MeasuredProcess(Blocking& blocking, Means means, GroupOptions options, Configure* configure)
    : means_(std::move(means)), config_(means_.workers, configure), system_(config_) {
  if (!means_.device.empty()) await_device(blocking, means_.device);
  options.place = launch_place_from_environment();
  TROUPE_CHECK(options.place, Code::invalid, "a process that is measured is started by rtbench");
  options.hello.ucx_version = ucx_version();
  options.make_transport = [this](const TransportContext& context) {
    return make_transport(means_, context.space, context.self, hosts_of(context.hellos));
  };
  system_.await_actors_before_shutdown(false);  // after an error some actors may still be alive
  group_ = Group::join(blocking, system_, std::move(options));
}

}  // namespace troupe::crew
