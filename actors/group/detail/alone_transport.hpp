#pragma once

#include <memory>

#include "runtime/lanes/transport.hpp"

namespace troupe::group {

/// The transport of a process without peers.
std::unique_ptr<Transport> make_alone_transport();

}  // namespace troupe::group
