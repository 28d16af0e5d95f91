#include "tests/actors/caf_semantics/sides.hpp"

#include <caf/exit_reason.hpp>
#include <caf/sec.hpp>

#include "tests/actors/caf_semantics/roles.hpp"

namespace troupe::test::semantics {
namespace {

SharedSides* shared_sides = nullptr;

}  // namespace

Config::Config() {
  configure_group(*this);
  add_common_roles(*this);
  add_flood_roles(*this);
  add_request_roles(*this);
  add_message_roles(*this);
  add_typed_roles(*this);
  add_size_roles(*this);
  add_difference_roles(*this);
  add_content_roles(*this);
  add_adapter_roles(*this);
  add_behavior_roles(*this);
  add_stream_roles(*this);
  add_mass_roles(*this);
  add_handle_roles(*this);
  set("scheduler.max-threads", std::size_t{4});
  set("logger.verbosity", caf::atom("quiet"));
}

SharedSides::SharedSides() { shared_sides = this; }
SharedSides::~SharedSides() { shared_sides = nullptr; }

Sides& SharedSides::of(const std::string& kind) {
  auto& sides = shared_sides->sides_[kind];
  if (!sides) sides = Sides::make(kind);
  return *sides;
}

void SharedSides::drop(const std::string& kind) { shared_sides->sides_.erase(kind); }

std::string brief(const caf::error& error) {
  if (!error) return "normal";
  if (error.category() == caf::atom("exit")) return "exit " + to_string(static_cast<caf::exit_reason>(error.code()));
  if (error.category() == caf::atom("system")) return "system " + to_string(static_cast<caf::sec>(error.code()));
  return caf::to_string(error.category()) + " " + std::to_string(error.code());
}

void Semantics::SetUp() { self.emplace(system()); }

void Semantics::TearDown() {
  for (const auto& actor : spawned) caf::anon_send_exit(actor, caf::exit_reason::kill);
  spawned.clear();
  self.reset();
  if (HasFailure()) SharedSides::drop(GetParam());  // what is left of it shall not spoil the next test
}

std::string Semantics::next_down() {
  std::string why = "nothing came";
  (*self)->receive([&](const caf::down_msg& down) { why = brief(down.reason); }, caf::after(kLong) >> [] {});
  return why;
}

bool Semantics::lives(const caf::actor& mate) { return ask<std::string>(mate, Log::value).engaged(); }

std::string Semantics::end_of(const caf::actor& actor) {
  (*self)->monitor(actor);
  return next_down();
}

std::string Semantics::log_of(const caf::actor& mate) {
  const auto log = ask<std::string>(mate, Log::value);
  return log ? *log : brief(log.error());
}

bool Semantics::log_becomes(const caf::actor& mate, const std::string& what) {
  const Deadline deadline = Deadline::after(kLong);
  while (log_of(mate) != what) {
    if (deadline.passed()) return false;
  }
  return true;
}

}  // namespace troupe::test::semantics
