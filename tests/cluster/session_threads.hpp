#pragma once

#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "apps/session/session.hpp"
#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {

/// Runs sessions of this process, each rank on a thread of its own.
class SessionThreads : public ::testing::Test {
 protected:
  using Rank = std::function<RunResult(Blocking&, Session&, std::uint32_t rank)>;

  SessionOptions options(std::vector<std::string> settings = {}) const {
    settings.insert(settings.begin(), {"cluster.nodes=\"local:1\"", "train.deterministic=true",
                                       "data.path=\"" + (folder_.path() / "data").string() + "\"",
                                       "report.dir=\"" + (folder_.path() / "run").string() + "\""});
    return {.configuration = read_configuration(folder_.path() / "app.toml", settings)};
  }

  /// What each rank's session came to.
  std::vector<RunResult> run(std::uint32_t ranks, const SessionOptions& options, const Rank& rank) const {
    std::vector<RunResult> results(ranks);
    const std::uint16_t port = free_port();
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        Blocking blocking = Blocking::on_thread("test");
        SessionOptions own = options;
        if (ranks > 1)
          own.place = LaunchPlace{.rank = r,
                                  .world_size = ranks,
                                  .local_rank = r,
                                  .master_address = "127.0.0.1",
                                  .master_port = port,
                                  .secret = "a secret of more than sixteen letters"};
        try {
          const auto session = Session::start(blocking, std::move(own));
          results[r] = rank(blocking, *session, r);
        } catch (const Error& error) {
          results[r].status = error.status();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  JobFolder folder_;
};

inline RunResult run_to_the_end(Blocking& blocking, Session& session, std::uint32_t) { return session.run(blocking); }

}  // namespace troupe::testing
