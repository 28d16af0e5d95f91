#pragma once

#include <caf/error.hpp>
#include <exception>

#include "runtime/base/error.hpp"

namespace caf {
class actor_system_config;
}

namespace troupe {

/// The error of category "troupe" with this code and text, for ending an actor or answering a request; ok gives no
/// error.
caf::error to_caf(const Status& status);
inline caf::error to_caf(const Error& error) { return to_caf(error.status()); }

/// The opposite conversion, for supervisors: keeps code and text of a troupe error, whichever process it came from.
/// CAF's own errors become timeout (of a request), peer_lost (the receiver or its process has ended), aborted (the
/// actor was asked to end), unsupported (a message that its receiver does not accept or that cannot be sent to another
/// process), otherwise device_fault; their text is CAF's. No error, and a normal exit, give ok.
Status from_caf(const caf::error& error);

/// The error for an exception from a handler: an Error's code and text, device_fault for others.
caf::error to_caf(const std::exception_ptr& thrown);

/// Makes an actor end with the error of an exception that its handler throws; CAF's own handler prints it and loses
/// code and text. Call it in the actor's initialization.
template <class Self>
void end_with_own_errors(Self self) {
  self->set_exception_handler([](std::exception_ptr& thrown) { return to_caf(thrown); });
}

/// Makes actor_system::render print troupe errors as "peer_lost: text".
void add_error_names(caf::actor_system_config& config);

}  // namespace troupe
