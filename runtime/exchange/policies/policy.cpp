#include "runtime/exchange/policies/policy.hpp"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "runtime/base/error.hpp"
#include "runtime/exchange/policies/detail/round_policies.hpp"

namespace troupe {
namespace {

constexpr std::array<std::string_view, 10> kNames{
    "sync",           "double_buffered", "local_sgd", "post_local_sgd", "model_averaging",
    "block_momentum", "diloco",          "easgd",     "async",          "ssp"};

bool counts_steps(PolicyKind kind) noexcept {
  return kind == PolicyKind::local_sgd || kind == PolicyKind::post_local_sgd || kind == PolicyKind::diloco ||
         kind == PolicyKind::easgd;
}
bool counts_samples(PolicyKind kind) noexcept {
  return kind == PolicyKind::model_averaging || kind == PolicyKind::block_momentum;
}
bool has_outer_momentum(PolicyKind kind) noexcept {
  return kind == PolicyKind::block_momentum || kind == PolicyKind::diloco;
}

std::string outer_text(const PolicySettings& s) {
  std::string out;
  if (s.outer_rate) out += fmt::format(", rate={}", *s.outer_rate);
  if (s.outer_momentum) out += fmt::format(", momentum={}", *s.outer_momentum);
  if (s.time_constant) out += fmt::format(", time_constant={}", *s.time_constant);
  return out + (s.nesterov ? ", nesterov" : "");
}

}  // namespace

std::string_view name_of(PolicyKind kind) noexcept { return kNames.at(static_cast<std::size_t>(kind)); }

std::string_view name_of(PolicySwitch::Trigger trigger) noexcept {
  constexpr std::array<std::string_view, 4> kTriggers{"at_step", "at_epoch", "at_samples", "at_straggler"};
  return kTriggers.at(static_cast<std::size_t>(trigger));
}

PolicySettings resolved(PolicySettings s, std::uint32_t ranks) {
  if (counts_steps(s.kind) && s.every_steps == 0) s.every_steps = s.kind == PolicyKind::diloco ? 500 : 8;
  if (counts_samples(s.kind) && s.block_samples == 0) {
    s.block_samples = s.kind == PolicyKind::block_momentum ? 120000 : 40000;
  }
  if (has_outer_momentum(s.kind)) {
    const bool diloco = s.kind == PolicyKind::diloco;
    if (!s.outer_rate) s.outer_rate = diloco ? 0.7 : 1;
    if (!s.outer_momentum && !s.time_constant) s.outer_momentum = diloco ? 0.9 : 1 - 1.0 / ranks;
  }
  if (s.kind == PolicyKind::easgd && s.elasticity == 0) s.elasticity = 0.9 / ranks;
  return s;
}

std::string to_string(const PolicySettings& s) {
  std::string out{name_of(s.kind)};
  out += fmt::format("(distributed_after={}", s.distributed_after);
  if (s.kind == PolicyKind::sync) out += fmt::format(", accumulate={}", s.accumulate);
  if (counts_steps(s.kind)) out += fmt::format(", every_steps={}", s.every_steps);
  if (counts_samples(s.kind)) out += fmt::format(", block={}", s.block_samples);
  if (has_outer_momentum(s.kind)) out += outer_text(s);
  if (s.kind == PolicyKind::block_momentum) {
    out += fmt::format(", rule={}, reset={}", s.block_rule == BlockRule::paper ? "paper" : "cntk", s.reset_momentum);
  }
  if (s.kind == PolicyKind::ssp) out += fmt::format(", staleness={}", s.staleness);
  if (s.kind == PolicyKind::easgd) out += fmt::format(", elasticity={}", s.elasticity);
  if (s.kind == PolicyKind::async) {
    out += fmt::format(", ramp={}+{} each {}", s.ramp_from, s.ramp_by, s.ramp_every);
  }
  if (s.kind == PolicyKind::async || s.kind == PolicyKind::ssp) {
    out += fmt::format(", divide_by_staleness={}", s.divide_by_staleness);
  }
  return out + ")";
}

PolicyNeeds needs_of(const PolicySettings& settings) {
  switch (settings.kind) {
    case PolicyKind::sync: return {.held = settings.accumulate > 1};
    case PolicyKind::double_buffered: return {.own_weights = true, .held = true, .side_stream = true};
    case PolicyKind::local_sgd:
    case PolicyKind::post_local_sgd:
    case PolicyKind::model_averaging: return {.own_weights = true, .held = true, .whole_state = true};
    case PolicyKind::block_momentum:
    case PolicyKind::diloco: return {.own_weights = true, .held = true, .whole_state = true, .outer_state = true};
    case PolicyKind::easgd:
      return {.own_weights = true, .held = true, .whole_state = true, .hosted = true, .landing = true};
    case PolicyKind::async:
    case PolicyKind::ssp: return {.own_weights = true, .hosted = true};
  }
  return {};
}

PolicyNeeds needs_of(const std::vector<PolicyPhase>& phases) {
  PolicyNeeds all;
  for (const PolicyPhase& phase : phases) all |= needs_of(phase.policy);
  return all;
}

std::string contradiction(const PolicySettings& s) {
  if (s.kind == PolicyKind::post_local_sgd && s.distributed_after == 0) {
    return "post_local_sgd needs update.distributed_after, the samples after which ranks begin to work locally; from "
           "the first sample on, that is local_sgd";
  }
  if (s.outer_momentum && s.time_constant) {
    return "update.outer_momentum and update.time_constant say the same thing twice: leave one of them out";
  }
  return {};
}

std::string check_policy(const PolicySettings& s, std::uint32_t ranks, std::uint32_t batch) {
  if (counts_samples(s.kind) && s.block_samples < std::uint64_t{batch} * ranks) {
    return text("update.block_samples = ", s.block_samples, " is less than one step of ", ranks, " ranks with ", batch,
                " samples each: give at least ", std::uint64_t{batch} * ranks, ", or take update.policy = \"sync\"");
  }
  if (s.kind == PolicyKind::easgd && s.elasticity * ranks > 1) {
    return text("update.elasticity = ", s.elasticity, " with ", ranks, " ranks: the average oscillates when their ",
                "product is above 1; give at most ", 1.0 / ranks);
  }
  return contradiction(s);
}

std::unique_ptr<RoundPolicy> make_round_policy(const PolicySettings& given, std::uint32_t ranks) {
  const PolicySettings settings = resolved(given, ranks);
  switch (settings.kind) {
    case PolicyKind::double_buffered: return policies::double_buffered();
    case PolicyKind::local_sgd:
    case PolicyKind::post_local_sgd: return policies::local_sgd(settings);
    case PolicyKind::model_averaging: return policies::model_averaging(settings);
    case PolicyKind::block_momentum: return policies::block_momentum(settings, ranks);
    case PolicyKind::diloco: return policies::diloco(settings);
    case PolicyKind::easgd: return policies::pushes(/*works_locally=*/true);
    case PolicyKind::async:
    case PolicyKind::ssp: return policies::pushes(/*works_locally=*/false);
    default: return policies::sync(settings);
  }
}

std::string describe(const PolicySettings& s, std::uint32_t ranks) {
  std::string out = fmt::format("{}: ", name_of(s.kind));
  const auto each = [&] {
    return counts_samples(s.kind) ? fmt::format("every {} samples of all ranks", s.block_samples)
                                  : fmt::format("every {} steps", s.every_steps);
  };
  switch (s.kind) {
    case PolicyKind::sync:
      out += s.accumulate == 1 ? std::string{"gradients, every step, never stale"}
                               : fmt::format("gradients, every {} steps, added up, never stale", s.accumulate);
      break;
    case PolicyKind::double_buffered: out += "gradients, every step, one step stale, behind the next step"; break;
    case PolicyKind::local_sgd:
    case PolicyKind::post_local_sgd:
    case PolicyKind::model_averaging: out += "deltas, " + each() + ", averaged"; break;
    case PolicyKind::block_momentum:
    case PolicyKind::diloco:
      out += "deltas, " + each() + ", " + to_string(policies::outer_rule(s, ranks, s.block_samples));
      break;
    case PolicyKind::easgd: out += "elastic differences, " + each(); break;
    case PolicyKind::async: out += "gradients, at once, staleness not bounded"; break;
    case PolicyKind::ssp: out += fmt::format("gradients, every step, at most {} steps stale", s.staleness); break;
  }
  if (s.distributed_after != 0) out += fmt::format("; sync until {} samples", s.distributed_after);
  return out;
}

}  // namespace troupe
