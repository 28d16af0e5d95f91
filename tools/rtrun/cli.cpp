#include "tools/rtrun/cli.hpp"

#include <CLI/CLI.hpp>
#include <sstream>

#include "tools/rtrun/reference.hpp"
#include "tools/rtrun/version.hpp"

namespace troupe::rtrun {
namespace {

constexpr const char* kFooter =
    R"(Started without RANK in the environment, rtrun starts the processes that cluster.nodes = "local:N" asks for.
Started once per rank with RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TROUPE_SECRET_FILE, it is that rank.
Ctrl-C or SIGTERM ends the run after the step under way and saves a checkpoint; a second one ends it at once.
kill -USR1 to it or to a rank prints on stderr what each rank is doing.
Exit codes: 0 done, 1 failed, 2 bad configuration, 3 environment, 4 a rank was lost,
75 ended by SIGTERM with a checkpoint to go on from, 128+n stopped by signal n.)";

/// As TOML.
std::string in_quotes(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

void add_common(CLI::App& app, CommandLine& line) {
  // A file and --set are asked for by every verb; the default verb's file cannot be `required` here, since CLI11 would
  // then ask for it beside a subcommand too.
  app.add_option("app.toml", line.file, "The job's configuration");
  app.add_option("--set", line.overrides, "Override a value: --set data.batch=50 (again for more)")
      ->type_name("a.b=c")
      ->allow_extra_args(false);
}

int usage_error(const CLI::App& app, const CLI::ParseError& error, std::ostream& out, std::ostream& err) {
  std::ostringstream text;
  const int code = app.exit(error, out, text);
  if (code == 0) return 0;
  err << "rtrun: error: " << text.str();
  return 2;
}

}  // namespace

std::variant<CommandLine, Answered> parse_command_line(int argc, const char* const* argv, std::ostream& out,
                                                       std::ostream& err) {
  CommandLine line;
  CLI::App app{"rtrun trains what app.toml describes.", "rtrun"};
  app.footer(kFooter);
  app.set_help_flag("-h,--help", "Print this help");
  bool version = false;
  std::string resume;
  app.add_option("--resume", resume,
                 "auto: go on from the newest checkpoint, if there is one; never; or the path of a checkpoint")
      ->type_name("auto|never|PATH");
  app.add_flag("--version", version, "Print the versions of troupe and of what it stands on");
  app.add_flag("-q,--quiet", line.quiet, "No header, table or progress bar: only the last line and errors");
  add_common(app, line);
  CLI::App& check = *app.add_subcommand("check", "Print the effective settings and where each came from; runs nothing");
  add_common(check, line);
  CLI::App& plan = *app.add_subcommand("plan", "Print who would run where and what it would take; runs nothing");
  add_common(plan, line);
  CLI::App& reference = *app.add_subcommand("reference", "Print every key of app.toml, as Markdown");
  app.require_subcommand(0, 1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return Answered{usage_error(app, error, out, err)};
  }
  if (app.count("--resume") > 0) line.overrides.push_back("checkpoint.resume=" + in_quotes(resume));
  if (version) {
    out << version_text();
    return Answered{0};
  }
  if (reference.parsed()) {
    out << reference_page();
    return Answered{0};
  }
  if (check.parsed()) line.verb = Verb::check;
  if (plan.parsed()) line.verb = Verb::plan;
  if (line.file.empty()) {
    err << "rtrun: error: app.toml is required: say which configuration to use, for example `rtrun "
           "apps/mnist/app.toml`\n"
           "Run with --help for more information.\n";
    return Answered{2};
  }
  return line;
}

}  // namespace troupe::rtrun
