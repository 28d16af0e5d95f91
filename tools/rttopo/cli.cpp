#include "tools/rttopo/cli.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

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

/// An empty value, such as that of a variable that is not set, must not mean this host.
void refuse_empty(const CLI::App& app) {
  for (const CLI::App* const command : app.get_subcommands())
    for (const CLI::Option* const option : command->get_options())
      for (const std::string& value : option->results())
        TROUPE_CHECK(option->get_items_expected_max() == 0 || !value.empty(), Code::invalid, option->get_name(),
                     " is empty");
}

/// The command line, and what it is read into.
class Parser {
 public:
  explicit Parser(CommandLine& line) : line_(line) {
    app_.footer(kFooter);
    app_.set_version_flag("--version", "rttopo (troupe) " TROUPE_VERSION);
    member_.group("");  // used only by this program
    member_.add_option("--line", line_.bench_line)->required();
    for (CLI::App* const each : {&show_, &matrix_, &explain_, &doctor_, &export_}) add_sources(*each);
    for (CLI::App* const each : {&show_, &matrix_, &bench_, &diff_, &explain_, &doctor_, &env_})
      each->add_flag("--json", line_.json, "Print JSON");
    for (CLI::App* const each : {&show_, &matrix_, &explain_})
      each->add_option("--figures", line_.figures, "Figures that `rttopo bench` wrote; default: those of this host")
          ->type_name("FILE");
    show_.add_flag("--all", line_.all, "List every part, one by one");
    show_.add_option("--svg", line_.svg, "Write a picture instead")->type_name("FILE");
    show_.add_flag("--schema", line_.schema, "Print the JSON Schema of what --json prints for one machine");
    add_bench();
    add_diff();
    explain_.add_option("PART", line_.of, "Two parts")->required()->expected(2);
    doctor_.add_flag("--rules", line_.rules, "List the rules");
    add_import_and_export();
    completion_.add_option("SHELL", shell_, "bash, zsh or fish")->required();
    app_.require_subcommand(1);
  }

  /// Throws CLI::ParseError, Error{invalid}.
  void read(int argc, const char* const* argv) {
    app_.parse(argc, argv);
    refuse_empty(app_);
    take_sources();
    if (export_.parsed() && line_.format.empty()) throw CLI::RequiredError("--format");
    const int ways = !files_.empty() + !nodes_.empty() + !line_.run.empty();
    if (diff_.parsed() && ways != 1) throw CLI::RequiredError(ways == 0 ? "FILE" : "one of FILE, --nodes and --run");
    line_.arguments.assign(argv, argv + argc);
    for (const auto& [verb, app] : {std::pair{Verb::matrix, &matrix_},
                                    {Verb::bench, &bench_},
                                    {Verb::bench, &member_},
                                    {Verb::diff, &diff_},
                                    {Verb::explain, &explain_},
                                    {Verb::doctor, &doctor_},
                                    {Verb::import_file, &import_},
                                    {Verb::export_file, &export_},
                                    {Verb::env, &env_}})
      if (app->parsed()) line_.verb = verb;
  }

  /// The shell for which a script is wanted; nothing: none is.
  std::optional<std::string> shell() const { return completion_.parsed() ? std::optional{shell_} : std::nullopt; }

  /// `word`: the first one of the command line.
  Answered usage_error(const CLI::ParseError& error, const std::string& word, std::ostream& out,
                       std::ostream& err) const {
    std::ostringstream text;
    if (app_.exit(error, out, text) == 0) return {0};
    const std::string unknown = explain_unknown(word);
    if (!unknown.empty())
      err << "rttopo: error: " << unknown << "?\nRun with --help for more information.\n";
    else if (explain_.parsed() && line_.of.size() < 2 &&
             error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError))
      err << "rttopo: error: explain needs two parts; a part is " << kPartWords << '\n';
    else
      err << "rttopo: error: " << text.str();
    return {2};
  }

 private:
  CLI::App& command(const char* name, const char* help, const char* footer = "") {
    CLI::App& made = *app_.add_subcommand(name, help);
    made.footer(footer);
    return made;
  }

  void add_sources(CLI::App& app) {
    auto* const input =
        app.add_option("-i,--input", input_, "A description of a machine; - is stdin")->type_name("FILE");
    app.add_option("--nodes", nodes_, "Several machines: files that describe them, and how many there are of each")
        ->type_name("FILE:N,...")
        ->excludes(input);
    app.add_option("--run", line_.run, "The machines of a running job: its folder (report.dir)")
        ->type_name("RUN")
        ->excludes(input)
        ->excludes("--nodes");
  }

  void add_bench() {
    bench_.add_option("--out", line_.out, "The file to write")->type_name("FILE");
    bench_.add_option("--repeats", line_.repeats, "How often each figure is measured")->check(CLI::Range(1, 100));
    bench_.add_option("--ms", line_.repeat_ms, "The shortest time of a measurement, in ms; default: 60")
        ->check(CLI::Range(1, 60000));
    bench_
        .add_option("--hosts", line_.hosts,
                    "Hosts; the others must be able to reach the first one by the name given here")
        ->type_name("HOST,...");
    bench_.add_option("--remote-shell", line_.remote_shell,
                      "The command that starts a process on another host; default: ssh");
  }

  void add_diff() {
    diff_.add_option("FILE", files_, "Descriptions of two or more machines; a single one is compared with this host");
    diff_.add_option("--nodes", nodes_, "The same files in one argument, and how many machines there are of each")
        ->type_name("FILE:N,...");
    diff_.add_option("--run", line_.run, "The machines of a running job: its folder (report.dir)")->type_name("RUN");
  }

  void add_import_and_export() {
    import_.add_option("FILE", files_, "The file to read; - is stdin")->required()->expected(1);
    import_.add_option("-o,--out", line_.out, "The file to write; default: stdout");
    import_.add_flag("--json", line_.json, "Has no effect: the output is always JSON");
    auto* const format = export_.add_option("--format", line_.format, "json, hwloc, nccl, dot, svg or simgrid")
                             ->check(CLI::IsMember({"json", "hwloc", "nccl", "dot", "svg", "simgrid"}));
    export_
        .add_flag_callback(
            "--json", [this] { line_.format = "json"; }, "The same as --format json")
        ->excludes(format);
    export_.add_option("-o,--out", line_.out, "The file to write; default: stdout");
  }

  void take_sources() {
    if (!input_.empty()) line_.files.push_back({input_});
    for (FileCount& each : file_counts(nodes_)) line_.files.push_back(std::move(each));
    for (const std::string& file : files_) line_.files.push_back(file_count(file));
  }

  /// "unknown command shwo; did you mean show"; empty: `word` is a command.
  std::string explain_unknown(const std::string& word) const {
    std::vector<std::string> names;
    for (const CLI::App* const each : app_.get_subcommands([](const CLI::App*) { return true; }))
      if (each != &member_) names.push_back(each->get_name());
    if (word.empty() || word == "--help" || std::ranges::find(names, word) != names.end()) return {};
    std::vector<std::string_view> known{names.begin(), names.end()};
    known.push_back("--help");
    const std::string_view near = detail::nearest(word, known);
    if (near.empty() && word.starts_with('-')) return {};
    return text("unknown command ", word, "; did you mean ",
                near.empty() ? "one of " + joined(names) : std::string{near});
  }

  CommandLine& line_;
  std::string input_, nodes_, shell_;
  std::vector<std::string> files_;
  CLI::App app_{"rttopo shows, compares and examines machines.", "rttopo"};
  CLI::App& show_ = command("show", "Print a machine as a tree, a picture or JSON", kShowFooter);
  CLI::App& matrix_ =
      command("matrix", "Print how GPUs, NICs and memory reach each other, and how fast", kMatrixFooter);
  CLI::App& bench_ = command("bench", "Measure this host, or the paths between hosts", kBenchFooter);
  CLI::App& member_ = command("member", "");
  CLI::App& diff_ = command("diff", "Print how machines differ from each other", kDiffFooter);
  CLI::App& explain_ = command("explain", "Print all paths between two parts, and why one is used", kExplainFooter);
  CLI::App& doctor_ =
      command("doctor", "Find problems of a machine by rules, and print a cure for each", kDoctorFooter);
  CLI::App& import_ = command("import", "Convert another tool's description of a machine to JSON", kImportFooter);
  CLI::App& export_ = command("export", "Convert a machine's description for another tool", kExportFooter);
  CLI::App& env_ =
      command("env", "Print which launcher started this process, its rank, and which UCX it uses", kEnvFooter);
  CLI::App& completion_ =
      command("completion", "Print a script with which a shell completes the arguments", kCompletionFooter);
};

}  // namespace

std::variant<CommandLine, Answered> parse_command_line(int argc, const char* const* argv, std::ostream& out,
                                                       std::ostream& err) {
  CommandLine line;
  Parser parser{line};
  try {
    parser.read(argc, argv);
  } catch (const CLI::ParseError& error) {
    return parser.usage_error(error, argc > 1 ? argv[1] : "", out, err);
  } catch (const Error& error) {
    err << "rttopo: error: " << error.what() << '\n';
    return Answered{2};
  }
  if (const auto shell = parser.shell()) {
    const std::string script = completion_script(*shell);
    if (script.empty())
      err << "rttopo: error: there is completion for bash, zsh and fish: write `rttopo completion bash`\n";
    out << script;
    return Answered{script.empty() ? 2 : 0};
  }
  return line;
}

}  // namespace troupe::rttopo
