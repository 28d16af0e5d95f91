#pragma once

#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "apps/session/session.hpp"
#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {

/// The work of a rank with its session.
using RankBody = std::function<RunResult(Blocking&, Session&, std::uint32_t rank)>;

/// What the sessions of a job's ranks came to, each made on a thread of its own from what `options` gives it.
inline std::vector<RunResult> run_sessions(std::uint32_t ranks,
                                           const std::function<SessionOptions(std::uint32_t rank)>& options,
                                           const RankBody& body) {
  std::vector<RunResult> results(ranks);
  const std::uint16_t port = free_port();
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Blocking blocking = Blocking::on_thread("test");
      try {
        SessionOptions own = options(rank);
        if (ranks > 1)
          own.place = LaunchPlace{.rank = rank,
                                  .world_size = ranks,
                                  .local_rank = rank,
                                  .master_address = "127.0.0.1",
                                  .master_port = port,
                                  .secret = "a secret of more than sixteen letters"};
        const auto session = Session::start(blocking, std::move(own));
        results[rank] = body(blocking, *session, rank);
      } catch (const Error& error) {
        results[rank].status = error.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

inline RunResult run_to_the_end(Blocking& blocking, Session& session, std::uint32_t) { return session.run(blocking); }

/// Sessions of the job in a folder.
class SessionThreads : public ::testing::Test {
 protected:
  using Rank = RankBody;

  SessionOptions options(std::vector<std::string> settings = {}) const {
    settings.insert(settings.begin(), {"cluster.nodes=\"local:1\"", "train.deterministic=true",
                                       "data.path=\"" + (folder_.path() / "data").string() + "\"",
                                       "report.dir=\"" + (folder_.path() / "run").string() + "\""});
    return {.configuration = read_configuration(folder_.path() / "app.toml", settings)};
  }

  /// The result of each rank's session.
  std::vector<RunResult> run(std::uint32_t ranks, const SessionOptions& options, const Rank& rank) const {
    return run_sessions(
        ranks, [&](std::uint32_t) { return options; }, rank);
  }

  JobFolder folder_;
};

}  // namespace troupe::testing
