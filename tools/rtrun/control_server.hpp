#pragma once

#include <functional>
#include <string>

#include "runtime/base/blocking.hpp"
#include "runtime/base/fd.hpp"
#include "tools/rtrun/control.hpp"
#include "tools/rtrun/polled_thread.hpp"

namespace troupe::rtrun {

/// Answers `rtrun control` for one run, one request at a time, on a separate thread. Requests of other users are not
/// read.
class ControlServer {
 public:
  /// Called on that thread; the text of an exception is the answer, too.
  using Handler = std::function<std::string(Blocking&, const ControlRequest&)>;

  /// Throws Error{environment} as listen_for_control. The destructor waits for the request that is being answered.
  ControlServer(const std::string& folder, Handler handler);

 private:
  void serve() const;
  void answer(Blocking& blocking, const Fd& connection) const;
  Handler handler_;
  Fd listener_;
  PolledThread thread_;
};

}  // namespace troupe::rtrun
