#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "runtime/base/error.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::bench {

/// The options of one of the program's commands. Each function returns the option: capture_default_str() shows its
/// default.
struct Options {
  CLI::App& command;

  CLI::Option* choice(const char* name, std::string& value, const char* text, const std::vector<std::string>& of) {
    return command.add_option(name, value, text)->check(CLI::IsMember(of));
  }
  template <class Number, class Limit>
  CLI::Option* number(const char* name, Number& value, const char* text, Limit least, Limit most) {
    return command.add_option(name, value, text)->check(CLI::Range(least, most));
  }
  template <class Value>
  CLI::Option* list(const char* name, std::vector<Value>& values, const char* text) {
    return command.add_option(name, values, text)->delimiter(',');
  }

  /// Sets a value that the command line did not give.
  template <class Value, class Otherwise>
  void fill(const char* name, Value& value, const Otherwise& otherwise) {
    if (command.count(name) == 0) value = otherwise;
  }
};

/// Throws Error{environment} in a build without UCX, which the processes use to communicate.
inline void require_ucx() {
  TROUPE_CHECK(ucx_available(), Code::environment,
               "this build has no UCX, over which processes exchange messages: install libucx-dev and configure with "
               "TROUPE_WITH_UCX=ON");
}

}  // namespace troupe::bench
