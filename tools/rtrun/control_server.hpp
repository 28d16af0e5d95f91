#pragma once

#include <functional>
#include <string>
#include <thread>

#include "runtime/base/blocking.hpp"
#include "runtime/base/fd.hpp"
#include "tools/rtrun/control.hpp"

namespace troupe::rtrun {

/// Answers `rtrun control` for one run, one request at a time, on a separate thread. Requests of other users are not
/// read.
class ControlServer {
 public:
  /// Called on that thread; the text of an exception is the answer, too.
  using Handler = std::function<std::string(Blocking&, const ControlRequest&)>;

  /// Throws Error{environment} as listen_for_control.
  ControlServer(const std::string& folder, Handler handler);
  /// Waits for the request that is being answered.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

 private:
  void serve();
  void answer(Blocking& blocking, const Fd& connection) const;
  Handler handler_;
  Fd listener_;
  Fd end_;  // ends the thread (an eventfd)
  std::thread thread_;
};

}  // namespace troupe::rtrun
