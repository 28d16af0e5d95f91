#include "tools/rttopo/cli.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "runtime/config/detail/schema.hpp"

namespace troupe::rttopo {
namespace {

constexpr const char* kFooter =
    R"(Every command examines this host, or machines that files describe: hwloc's XML (lstopo FILE.xml, hwloc 1 and 2), NCCL's XML
(NCCL_TOPO_DUMP_FILE), or rttopo's own JSON (rttopo show --json).

Examples:
  rttopo show                                 this host as a tree
  rttopo show -i node.xml --svg node.svg      another machine as a picture
  rttopo matrix -i node.xml                   how GPUs, NICs and memory reach each other, and how fast
  rttopo bench                                measure this host, for matrix and for `rtrun plan`
  rttopo explain "GPU 0" mlx5_0 -i node.xml   all paths between two parts, and why one of them is used
  rttopo diff node1.xml node2.xml node3.xml   which machine differs from the others, and in what
  rttopo doctor --nodes a.xml:4,b.xml:2       the problems of six machines of two kinds
  rttopo show --run run                       the machines on which the job of that folder runs
  rttopo export --format nccl -o topo.xml     a file for NCCL_TOPO_FILE

Environment: with NO_COLOR or TERM=dumb there are no colours. Output that is not a terminal never has any.
Exit codes: 0 done, 1 diff found a difference or doctor a problem, 2 wrong use or a bad file, 3 environment.)";

constexpr const char* kShowFooter =
    R"(Prints a tree: packages, memory, cores, PCI switches, and behind them GPUs and NICs with links, bandwidths and health. A
device that several libraries list is shown once. "!" marks a problem.
--json prints {"schema": "troupe.topology", "version": 1, "counts": {...}, ...}; several machines are
{"schema": "troupe.cluster", "version": 1, "counts": {...}, "machines": [{"count", "source", "machine"}]}.

Examples:
  rttopo show
  rttopo show -i node.xml --json | jq .counts
  rttopo show -i node.xml --svg node.svg
Exit codes: 0 done, 2 a bad file, 3 environment.)";

constexpr const char* kMatrixFooter =
    R"(Prints tables GPU x GPU, GPU x NIC and NUMA x NUMA. Each cell has the class of the best path, as in `nvidia-smi topo -m`,
and its modelled bandwidth in GB/s in one direction:
  X     itself                              PIX   one PCI switch
  NV#   # lanes of NVLink (XG#: of xGMI)    PXB   several PCI switches
  NVB   NVLink over another GPU             PHB   a PCI host bridge
  C2C   a coherent link to the processor    NODE  the processor, near the same memory
                                            SYS   another memory node, over the processors' link
Marks: "~" the speed of a PCI link is unknown, and PCI Express 3 x16 is assumed. "d" the firmware's distance. "m" measured
(rttopo bench). "!" one of a few values below 70 % of the median of their class among parts of one kind, or a path over a link
or switch about which doctor warns. Below GPU x GPU are the ring and the tree whose slowest edge is the fastest; below GPU x NIC
are each GPU's nearest NICs.
Exit codes: 0 done, 2 a bad file, 3 environment.)";

constexpr const char* kBenchFooter =
    R"(Measures, each figure several times:
  memory    copies within each memory node, by one core and by all, and between memory nodes
  compute   forward and backward pass of dense layers on the CPU device, f32 and bf16: on one core, on every core with a
            model of its own, and on all cores with one model
  messages  between two processes of this host, over shared memory and TCP: time of 8 bytes, bandwidth with 1 MiB
  network   the same between hosts: with --hosts, or if a launcher has started a process of rttopo on each host
            (mpirun, srun --mpi=pmix, or RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT)
  gpus      each GPU that CUDA lists, by the device that trains on it: copies within its memory, the launch of a recorded
            step, products in f32, TF32 and bf16; and copies between it, the host and each other GPU
This takes about half a minute, longer with GPUs. Nothing else should run on the host. Each figure is printed on stderr at once, and
all are stored in $XDG_CACHE_HOME/troupe/measurements/HOST.json (without that variable below ~/.cache), which `rttopo matrix`,
`rttopo show` and `rtrun plan` read. docs/topology.md describes the file.

Examples:
  rttopo bench
  rttopo bench --json --out node.json
  rttopo bench --hosts node1,node2
Exit codes: 0 done, 2 wrong use, 3 environment, 4 a process was lost, 128+n stopped by signal n.)";

constexpr const char* kDiffFooter =
    R"(Compares hardware, links, firmware, drivers, kernels, limits and settings. Names, serial numbers, addresses and the order
of parts are ignored. With three or more machines it names those that differ from the majority. FILE:N stands for N machines.

Example: rttopo diff node0.xml node1.xml node2.xml
Exit codes: 0 they are alike, 1 they differ, 2 a bad file.)";

constexpr const char* kExplainFooter =
    R"(A PART is "GPU 0" or gpu0, "NUMA 1", a NIC's name, or a PCI bus id such as 0000:3b:00.0, which may be short (3b:00.0, 3b).
Prints all paths between the two parts, beginning with the one that is used, and what limits each of them; with --nodes or --run
for each kind of machine.

Example: rttopo explain "GPU 0" "GPU 3" -i node.xml
Exit codes: 0 done, 2 no such part or a bad file, 3 environment.)";

constexpr const char* kDoctorFooter =
    R"(Prints for each problem the id of its rule, the evidence, and a cure. On this host it also examines the ranks of running jobs,
and for 200 ms the counters of RDMA ports. --rules lists the rules.

Example: rttopo doctor
Exit codes: 0 no problem was found (there may be notes), 1 there is a problem, 2 a bad file, 3 environment.)";

constexpr const char* kImportFooter =
    R"(Reads hwloc's or NCCL's XML and writes the JSON of `rttopo show --json`. XML of hwloc 3 is refused. Every command also reads
these formats itself (-i).

Example: rttopo import node.xml -o node.json
Exit codes: 0 done, 2 a bad file, 3 the file cannot be written.)";

constexpr const char* kExportFooter =
    R"(Formats:
  json      as `rttopo show --json`
  hwloc     XML of hwloc 2, for lstopo and every program with hwloc
  nccl      for NCCL_TOPO_FILE
  dot       for Graphviz: rttopo export --format dot | dot -Tsvg -o node.svg
  svg       the picture of `rttopo show --svg`
  simgrid   a platform for SimGrid; with --nodes of a whole cluster

Example: rttopo export --format simgrid --nodes node.xml:64 -o cluster.xml
Exit codes: 0 done, 2 wrong use or a bad file, 3 environment.)";

constexpr const char* kEnvFooter =
    R"(Prints which launcher's variables are set, which rank a process with this environment has, and which UCX it uses.

Example: srun --mpi=pmix -N2 rttopo env
Exit codes: 0 done, 3 a launcher's variables are incomplete or malformed.)";

constexpr const char* kCompletionFooter = R"(Example: source <(rttopo completion bash)
Exit codes: 0 done, 2 unknown shell.)";

struct Sources {
  std::string input;
  std::string nodes;
  std::string run;
};

void add_sources(CLI::App& app, Sources& sources) {
  auto* const input =
      app.add_option("-i,--input", sources.input, "A description of a machine; - is stdin")->type_name("FILE");
  app.add_option("--nodes", sources.nodes, "Several machines: files that describe them, and how many there are of each")
      ->type_name("FILE:N,...")
      ->excludes(input);
  app.add_option("--run", sources.run, "The machines of a running job: its folder (report.dir)")
      ->type_name("RUN")
      ->excludes(input)
      ->excludes("--nodes");
}

void add_figures(CLI::App& app, CommandLine& line) {
  app.add_option("--figures", line.figures, "Figures that `rttopo bench` wrote; default: those of this host")
      ->type_name("FILE");
}

void add_json(CLI::App& app, CommandLine& line) { app.add_flag("--json", line.json, "Print JSON"); }

/// An empty value, such as that of a variable that is not set, must not mean this host.
void refuse_empty(const CLI::App& app) {
  for (const CLI::App* const command : app.get_subcommands())
    for (const CLI::Option* const option : command->get_options())
      for (const std::string& value : option->results())
        TROUPE_CHECK(option->get_items_expected_max() == 0 || !value.empty(), Code::invalid, option->get_name(),
                     " is empty");
}

void take_sources(const Sources& sources, CommandLine& line) {
  if (!sources.input.empty()) line.files.push_back({sources.input});
  line.run = sources.run;
  for (FileCount& each : file_counts(sources.nodes)) line.files.push_back(std::move(each));
}

}  // namespace

std::variant<CommandLine, Answered> parse_command_line(int argc, const char* const* argv, std::ostream& out,
                                                       std::ostream& err) {
  CommandLine line;
  Sources sources;
  std::vector<std::string> files;
  std::string shell;
  CLI::App app{"rttopo shows, compares and examines machines.", "rttopo"};
  app.footer(kFooter);
  app.set_version_flag("--version", "rttopo (troupe) " TROUPE_VERSION);
  CLI::App& show = *app.add_subcommand("show", "Print a machine as a tree, a picture or JSON");
  CLI::App& matrix = *app.add_subcommand("matrix", "Print how GPUs, NICs and memory reach each other, and how fast");
  CLI::App& bench = *app.add_subcommand("bench", "Measure this host, or the paths between hosts");
  int bench_line = -1;
  CLI::App& member = *app.add_subcommand("member")->group("");  // used only by this program
  member.add_option("--line", bench_line)->required();
  CLI::App& diff = *app.add_subcommand("diff", "Print how machines differ from each other");
  CLI::App& explain = *app.add_subcommand("explain", "Print all paths between two parts, and why one is used");
  CLI::App& doctor = *app.add_subcommand("doctor", "Find problems of a machine by rules, and print a cure for each");
  CLI::App& import_file = *app.add_subcommand("import", "Convert another tool's description of a machine to JSON");
  CLI::App& export_file = *app.add_subcommand("export", "Convert a machine's description for another tool");
  CLI::App& env =
      *app.add_subcommand("env", "Print which launcher started this process, its rank, and which UCX it uses");
  CLI::App& completion = *app.add_subcommand("completion", "Print a script with which a shell completes the arguments");
  for (CLI::App* const each : {&show, &matrix, &explain, &doctor, &export_file}) add_sources(*each, sources);
  for (CLI::App* const each : {&show, &matrix, &bench, &diff, &explain, &doctor, &env}) add_json(*each, line);
  show.add_flag("--all", line.all, "List every part, one by one");
  show.add_option("--svg", line.svg, "Write a picture instead")->type_name("FILE");
  show.add_flag("--schema", line.schema, "Print the JSON Schema of what --json prints for one machine");
  show.footer(kShowFooter);
  matrix.footer(kMatrixFooter);
  for (CLI::App* const each : {&show, &matrix, &explain}) add_figures(*each, line);
  bench.add_option("--out", line.out, "The file to write")->type_name("FILE");
  bench.add_option("--repeats", line.repeats, "How often each figure is measured")->check(CLI::Range(1, 100));
  bench.add_option("--ms", line.repeat_ms, "The shortest time of a measurement, in ms; default: 60")
      ->check(CLI::Range(1, 60000));
  bench
      .add_option("--hosts", line.hosts, "Hosts; the others must be able to reach the first one by the name given here")
      ->type_name("HOST,...");
  bench.add_option("--remote-shell", line.remote_shell,
                   "The command that starts a process on another host; default: ssh");
  bench.footer(kBenchFooter);
  diff.add_option("FILE", files, "Descriptions of two or more machines; a single one is compared with this host");
  diff.add_option("--nodes", sources.nodes, "The same files in one argument, and how many machines there are of each")
      ->type_name("FILE:N,...");
  diff.add_option("--run", sources.run, "The machines of a running job: its folder (report.dir)")->type_name("RUN");
  diff.footer(kDiffFooter);
  explain.add_option("PART", line.of, "Two parts")->required()->expected(2);
  explain.footer(kExplainFooter);
  doctor.add_flag("--rules", line.rules, "List the rules");
  doctor.footer(kDoctorFooter);
  import_file.add_option("FILE", files, "The file to read; - is stdin")->required()->expected(1);
  import_file.add_option("-o,--out", line.out, "The file to write; default: stdout");
  import_file.add_flag("--json", line.json, "Has no effect: the output is always JSON");
  import_file.footer(kImportFooter);
  auto* const format = export_file.add_option("--format", line.format, "json, hwloc, nccl, dot, svg or simgrid")
                           ->check(CLI::IsMember({"json", "hwloc", "nccl", "dot", "svg", "simgrid"}));
  export_file
      .add_flag_callback(
          "--json", [&line] { line.format = "json"; }, "The same as --format json")
      ->excludes(format);
  export_file.add_option("-o,--out", line.out, "The file to write; default: stdout");
  export_file.footer(kExportFooter);
  env.footer(kEnvFooter);
  completion.add_option("SHELL", shell, "bash, zsh or fish")->required();
  completion.footer(kCompletionFooter);
  app.require_subcommand(1);
  try {
    app.parse(argc, argv);
    refuse_empty(app);
    take_sources(sources, line);
    for (const std::string& file : files) line.files.push_back(file_count(file));
    if (export_file.parsed() && line.format.empty()) throw CLI::RequiredError("--format");
    const int ways = !files.empty() + !sources.nodes.empty() + !line.run.empty();
    if (diff.parsed() && ways != 1) throw CLI::RequiredError(ways == 0 ? "FILE" : "one of FILE, --nodes and --run");
  } catch (const CLI::ParseError& error) {
    const std::vector<CLI::App*> commands = app.get_subcommands([](const CLI::App*) { return true; });
    const std::string_view word = argc > 1 ? argv[1] : "";
    const bool known =
        word.empty() || word == "--help" ||
        std::any_of(commands.begin(), commands.end(), [&](const CLI::App* each) { return each->get_name() == word; });
    const std::string_view near = detail::nearest(word, {"show", "matrix", "bench", "diff", "explain", "doctor",
                                                         "import", "export", "env", "completion", "--help"});
    std::ostringstream text;
    if (app.exit(error, out, text) == 0) return Answered{0};
    if (!known && (!near.empty() || !word.starts_with('-'))) {
      err << "rttopo: error: unknown command " << word << "; ";
      if (near.empty()) {
        std::vector<std::string> names;
        for (const CLI::App* const each : commands)
          if (!each->get_group().empty()) names.push_back(each->get_name());
        err << "did you mean one of " << joined(names);
      } else {
        err << "did you mean " << near;
      }
      err << "?\nRun with --help for more information.\n";
    } else if (explain.parsed() && line.of.size() < 2 &&
               error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError)) {
      err << "rttopo: error: explain needs two parts; a part is " << kPartWords << '\n';
    } else {
      err << "rttopo: error: " << text.str();
    }
    return Answered{2};
  } catch (const Error& error) {
    err << "rttopo: error: " << error.what() << '\n';
    return Answered{2};
  }
  if (completion.parsed()) {
    const std::string script = completion_script(shell);
    if (script.empty())
      err << "rttopo: error: there is completion for bash, zsh and fish: write `rttopo completion bash`\n";
    out << script;
    return Answered{script.empty() ? 2 : 0};
  }
  line.arguments.assign(argv, argv + argc);
  line.bench_line = bench_line;
  if (matrix.parsed()) line.verb = Verb::matrix;
  if (bench.parsed() || member.parsed()) line.verb = Verb::bench;
  if (diff.parsed()) line.verb = Verb::diff;
  if (explain.parsed()) line.verb = Verb::explain;
  if (doctor.parsed()) line.verb = Verb::doctor;
  if (import_file.parsed()) line.verb = Verb::import_file;
  if (export_file.parsed()) line.verb = Verb::export_file;
  if (env.parsed()) line.verb = Verb::env;
  return line;
}

}  // namespace troupe::rttopo
