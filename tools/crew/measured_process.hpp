#pragma once

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/send.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "actors/group/group.hpp"
#include "runtime/base/blocking.hpp"

namespace troupe::crew {

/// How a measured process reaches the others.
struct Means {
  std::string transport = "shm";  // shm, tcp
  std::string device;             // network device of tcp
  std::uint32_t workers = 0;      // CAF's threads; 0: CAF's default
};

/// Makes the transport of a process: for GroupOptions::make_transport. Throws as make_ucx_transport().
std::unique_ptr<Transport> make_transport(const Means& means, AddressSpace& space, Peer self,
                                          std::vector<ProcessLocation> hosts = {});

/// For a measured actor system: the number of workers, and no output.
void configure_workers(caf::actor_system_config& config, std::uint32_t workers);

/// An actor system in the group of all processes of a measurement, assembled as in a program. Threads: main.
class MeasuredProcess {
 public:
  /// Makes the system with the messages that `configure` adds, and joins the group that the environment names; place,
  /// hello and transport in `options` are not used. Throws as Group::join.
  using Configure = void(caf::actor_system_config& config);
  MeasuredProcess(Blocking& blocking, Means means, GroupOptions options, Configure* configure);

  Group& group() const noexcept { return *group_; }
  RemoteActors& remote() const noexcept { return group_->remote(); }
  caf::actor_system& system() noexcept { return system_; }

 private:
  struct Config final : caf::actor_system_config {
    Config(std::uint32_t workers, Configure* configure);
  };
  const Means means_;
  Config config_;
  caf::actor_system system_;
  std::unique_ptr<Group> group_;
};

/// What runs the actors of a measured process: the scheduler, or the control lane.
struct Stage {
  caf::actor_system& system;
  RemoteActors* inline_with = nullptr;

  template <class Function, class... Arguments>
  caf::actor spawn(Function function, Arguments&&... arguments) const {
    if (inline_with != nullptr) return inline_with->spawn_inline(function, std::forward<Arguments>(arguments)...);
    return system.spawn(function, std::forward<Arguments>(arguments)...);
  }
};

/// An actor that is ended when this object is destroyed.
class Ending {
 public:
  explicit Ending(caf::actor actor) : actor_(std::move(actor)) {}
  ~Ending() { caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown); }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  const caf::actor& get() const noexcept { return actor_; }

 private:
  caf::actor actor_;
};

}  // namespace troupe::crew
