#pragma once

#include <caf/error.hpp>
#include <exception>

#include "runtime/base/error.hpp"

namespace caf {
class actor_system_config;
}

namespace troupe {

/// The error of category "troupe" with this code and text, for quitting, for answering requests; ok gives no error.
caf::error to_caf(const Status& status);
inline caf::error to_caf(const Error& error) { return to_caf(error.status()); }

/// The way back, for supervisors: code and text of a troupe error are kept, whatever process it came from. CAF's own
/// errors become timeout (a request's), peer_lost (its receiver or its process is gone), aborted (somebody asked the
/// actor to end), unsupported (a message that its receiver does not take or that cannot travel), else device_fault;
/// their text is CAF's. No error, and a normal exit, give ok.
Status from_caf(const caf::error& error);

/// The error of what a handler threw: an Error's code and text, device_fault for others.
caf::error to_caf(const std::exception_ptr& thrown);

/// Lets an actor whose handler throws end with what was thrown; CAF's own handler prints it and forgets code and text.
/// In the actor's initialization.
template <class Self>
void end_with_own_errors(Self self) {
  self->set_exception_handler([](std::exception_ptr& thrown) { return to_caf(thrown); });
}

/// Makes actor_system::render print troupe errors as "peer_lost: text".
void add_error_names(caf::actor_system_config& config);

}  // namespace troupe
