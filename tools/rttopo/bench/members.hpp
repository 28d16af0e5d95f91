#pragma once

#include <nlohmann/json.hpp>

#include "runtime/base/blocking.hpp"
#include "runtime/topology/measurements.hpp"
#include "tools/crew/line.hpp"

// What processes do that a measurement started: this program, executed again, with a `role` and a line to who started
// it.
namespace troupe::rttopo {

/// One of two that exchange messages.
void be_message_end(Blocking& blocking, crew::Line& line, const nlohmann::json& role);
/// The owner of one GPU, which copies from the memory of others.
void be_gpu_member(Blocking& blocking, crew::Line& line, const nlohmann::json& role);

/// Figures as they are told over a line.
inline nlohmann::json to_word(const topology::Repeats& figure) { return {figure.least, figure.median, figure.most}; }
inline topology::Repeats from_word(const nlohmann::json& word) {
  return {.median = word.at(1).get<double>(), .least = word.at(0).get<double>(), .most = word.at(2).get<double>()};
}

}  // namespace troupe::rttopo
