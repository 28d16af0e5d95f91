#include "runtime/config/detail/sections.hpp"

namespace troupe::detail {
namespace {

using S = Settings;
using C = Settings::Checkpoint;
using F = Settings::Faults;
using V = TomlValue;

std::optional<Finding> check_resume(const V& v) {
  if (!v.text.empty()) return std::nullopt;
  return invalid("is empty; write \"never\", \"auto\", or the path of a checkpoint");
}

std::optional<Finding> check_report_dir(const V& v) {
  if (!v.text.empty()) return std::nullopt;
  return invalid("is empty; name a folder, as in report.dir = \"run\", or \".\" for the working directory");
}

}  // namespace

Keys checkpoint_keys() {
  return {
      {"checkpoint.dir", at<&S::checkpoint, &C::dir>, text_in_quotes(),
       "folder of checkpoints, relative to the working directory; \"\": the folder checkpoints in report.dir",
       "\"run/checkpoints\"", "Ranks on several hosts need a folder that all of them can reach."},
      {"checkpoint.every_steps", at<&S::checkpoint, &C::every_steps>, integer(0, 1e12),
       "steps from one checkpoint to the next, besides the one at the end; 0: none at all", "500",
       "A save that is due while the previous one is still being written is skipped."},
      {"checkpoint.keep", at<&S::checkpoint, &C::keep>, integer(1, 1e6), "how many of the newest checkpoints are kept",
       "3", "Counts checkpoints of this run; those of other runs in the folder are not removed."},
      {"checkpoint.keep_best", at<&S::checkpoint, &C::keep_best>, yes_or_no(),
       "whether to save after every evaluation too, and to keep the best checkpoint in addition to the newest", "true",
       "Best means the highest accuracy on the test set."},
      {"checkpoint.resume", at<&S::checkpoint, &C::resume>, text_in_quotes(check_resume),
       "\"never\"; \"auto\": resume from the newest complete checkpoint, if there is one; or a checkpoint's path",
       "\"auto\"",
       "`rtrun --resume` sets it. A path names one checkpoint, or a folder of them, of which the newest complete one "
       "is used. auto is an error if the newest checkpoint is of a run that started from the beginning in the folder "
       "and another run there has more steps."},
      {"checkpoint.save_s", at<&S::checkpoint, &C::save>, number(0.1, 86400),
       "how long a save may take, and reading a checkpoint on resume, in seconds", "300",
       "A save that takes longer ends the run."},
  };
}

Keys report_keys() {
  return {
      {"report.dir", at<&S::report, &S::Report::dir>, text_in_quotes(check_report_dir),
       "folder of results, relative to the working directory", "\"run\"",
       "Created if it does not exist. Holds report.html, log (JSON), log.csv, and checkpoints unless checkpoint.dir "
       "names another folder."},
      {"report.format", at<&S::report, &S::Report::format>, one_of({"chainermn", "mxnet", "cntk", "json"}),
       "how results are printed", "\"chainermn\"",
       "chainermn: a table with a line for each epoch. mxnet: the lines of MXNet's fit() and Speedometer. cntk: those "
       "of CNTK's ProgressPrinter. json: one JSON object per line."},
      {"report.every_steps",
       at<&S::report, &S::Report::every_steps>,
       integer(0, 1e12),
       "steps from one line inside an epoch to the next; 0: no such lines",
       "100",
       {},
       {"report.format", {"mxnet", "cntk"}}},
      {"report.trace", at<&S::report, &S::Report::trace>, text_in_quotes(),
       "file for a trace of the run, in the JSON of Chrome's tracing and Perfetto; \"\": none", "\"trace.json\"",
       "The same as rtrun --trace FILE. A row for each stream, lane, link and actor of each rank, with spans named by "
       "what was done, step and bucket. Every rank keeps its first 1,048,576 spans. Ranks that rtrun does not start on "
       "its own machine write separate files, with .rank-N appended to the name. rtrun timeline draws a step of it."},
  };
}

Keys faults_keys() {
  return {
      {"faults.on_loss", at<&S::faults, &F::on_loss>,
       one_of({"abort"}, {"shrink", "wait"}, "faults.on_loss = \"abort\""), "what the others do when a rank is lost",
       "\"abort\"", "abort: the others name the rank, its node and the step, and exit with 4."},
      {"faults.dead_ms", at<&S::faults, &F::dead>, integer(100, 600000),
       "silence after which a rank is declared lost, in milliseconds", "10000",
       "At most faults.exchange_s, which is the default if it is shorter. A killed process is noticed without it; "
       "raise it if ranks may get no processor time for seconds. A silent rank is noted after 300 ms or a tenth of it, "
       "whichever is longer, but after a third of it at the latest."},
      {"faults.start_s", at<&S::faults, &F::start>, number(0.1, 86400),
       "how long ranks may take to connect to rank 0 at the start, in seconds", "60",
       "After that time rank 0 names the missing ranks, and all exit with 4."},
      {"faults.exchange_s", at<&S::faults, &F::exchange>, number(0.1, 86400),
       "how long an exchange may wait, in seconds", "30",
       "At least faults.dead_ms. Waiting for gradients or parameters longer than that ends the run."},
      {"faults.stop_s", at<&S::faults, &F::stop>, number(0.1, 86400), "how long an orderly end may take, in seconds",
       "10", "Counted from Ctrl-C or SIGTERM; processes that have not ended by then are killed."},
  };
}

}  // namespace troupe::detail
