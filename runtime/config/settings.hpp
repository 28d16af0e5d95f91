#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/compute/rules/loss_scale.hpp"
#include "runtime/compute/rules/rate_schedule.hpp"
#include "runtime/compute/rules/rule.hpp"
#include "runtime/compute/text_generation.hpp"
#include "runtime/config/hosts.hpp"
#include "runtime/data/broken.hpp"
#include "runtime/data/schedule.hpp"
#include "runtime/data/stage_options.hpp"
#include "runtime/exchange/compression/compression_settings.hpp"
#include "runtime/exchange/policies/policy.hpp"
#include "runtime/model/graph.hpp"

namespace troupe {

/// The settings of one job, complete and checked: every key of app.toml in this build, with its default.
/// Whether a report.format has lines within an epoch.
inline bool has_step_lines(std::string_view format) noexcept { return format == "mxnet" || format == "cntk"; }

struct Settings {
  struct Cluster {
    // At most one of the next three is set. They say what the launcher was given.
    std::uint32_t local = 0;           // "local:N"
    HostList hosts;                    // a list of hosts
    std::string host_file;             // its path, as written
    std::string remote_shell = "ssh";  // words of a shell command, to which a host and a command are appended
    std::uint16_t port = 0;            // TCP port to which ranks of several hosts connect; 0: chosen automatically
    std::string transport = "auto";    // auto, shm, tcp
    std::string collectives = "auto";  // auto, nccl, nccl_in_nodes, own
  } cluster;
  struct Data {
    std::string source = "idx";  // idx, cifar10, folder, map, shards, voc, text, generated
    std::string path;            // as written
    std::uint32_t batch = 100;   // mean per rank; the first batch size of a schedule
    struct Batch {
      std::uint32_t rows = 0;  // mean per rank
      double epochs = 0;       // 0: for the rest of the run
    };
    std::vector<Batch> batches;  // a batch-size schedule; empty: always `batch`
    std::uint32_t prefetch = 3;
    Scatter scatter = Scatter::endless;
    std::string loader = "rank";       // rank, node
    std::uint32_t threads = 0;         // threads that decode batches for the loader; 0: the loader decodes
    std::vector<std::string> augment;  // in the form of parse_augmentation()
    Broken broken = Broken::fatal;
    std::chrono::milliseconds read{20000};  // that reading a file may take
    Stage stage = Stage::none;
    std::string stage_path = "/var/tmp";
    std::uint32_t length = 256;        // bytes of a text sample
    double validation = 0.1;           // fraction of a text that is its test set
    std::uint32_t boxes = 16;          // largest number of objects of a sample with boxes
    std::vector<std::string> classes;  // names of the objects' classes; empty: from the training set
  } data;
  struct Model {
    std::string name = "mlp";
    std::vector<std::uint32_t> units{1000, 1000};  // of the hidden layers
    std::vector<Layer> layers;                     // a model of its own, or what follows that of a file, with its loss
    std::string onnx;                              // a file that has model and weights; empty: none
    std::string onnx_file;                         // its path from the working directory
    std::string onnx_output;                       // the output of the file that is used; empty: the only one
    double label_smoothing = 0;                    // of a last loss that gives none of its own
    std::uint32_t depth = 6;                       // of gpt: blocks
    std::uint32_t width = 384;
    std::uint32_t heads = 6;
    DType dtype = DType::f32;
    bool tf32 = false;    // GPUs may round operands in f32 to TF32
    LossScaling scaling;  // with f16
  } model;
  Rule rule;
  RateSettings rate;                  // how rule.rate changes
  std::vector<std::string> no_decay;  // patterns of parameters without weight decay
  struct Train {
    std::uint32_t epochs = 20;
    std::uint64_t steps = 0;  // 0: the epochs decide; otherwise the number of steps, whatever the epochs
    std::uint64_t seed = 7;
    bool deterministic = false;
    std::vector<std::string> recompute;  // in the form of recomputed_ranges()
    std::uint32_t roll_backs = 3;        // with Rule::stops_non_finite: how often the run returns to a checkpoint
    double roll_back_rate = 0.5;         // the factor for the learning rate each time
  } train;
  PolicySettings update;
  CompressionSettings compression;
  std::vector<PolicySwitch> switches;  // of update.switch, in order
  /// Parameters that are updated differently from the rest.
  struct Group {
    std::string name = "default";
    std::vector<std::string> match;  // patterns of parameter names
    PolicySettings update;
    CompressionSettings compression;
    std::vector<PolicySwitch> switches;
    Rule rule;
    bool running = false;  // running statistics of layers, which are not trained: no rate schedule applies
    friend bool operator==(const Group&, const Group&) = default;
  };
  std::vector<Group> groups;       // of update.group, in order, complete
  std::string update_log;          // folder for the logs of hosted shards; empty: none are written
  std::string update_replay;       // folder of logs whose order the shards follow; empty: order of arrival
  std::uint64_t digest_steps = 0;  // steps from one comparison of all ranks' weights to the next; 0: none
  struct Placement {
    std::string device = "auto";  // auto, cpu
    std::string policy = "auto";  // auto, spread, pack
    struct Mesh {
      std::uint32_t nodes = 0;  // 0: not given
      std::uint32_t ranks = 0;  // of each node
      friend bool operator==(const Mesh&, const Mesh&) = default;
    } mesh;
    std::uint32_t cores = 0;  // per rank; 0: the node's cores shared out
    struct DeviceThreads {
      std::uint32_t count = 0;  // 0: as many as the rank has cores
      bool tried = false;       // a trial at the start finds the count
      friend bool operator==(const DeviceThreads&, const DeviceThreads&) = default;
    } device_threads;
    std::string affinity = "plan";  // plan, threads, none
    std::string split = "equal";    // equal, measured
    double min_share = 0.05;        // fraction of data.batch, with split = "measured"
    double max_share = 4;           // multiple of data.batch, likewise
    std::vector<double> stripes;    // for each rank, its share of the parameters; empty: equal shares
    std::vector<double> bandwidth;  // for each rank; the shares are computed from it; empty: not used
  } placement;
  struct Evaluate {
    std::uint32_t every_epochs = 1;  // 0: never
    std::uint32_t patience = 0;      // evaluations without improvement that end the run; 0: they do not
    double min_change = 0;           // decrease of the loss that counts as an improvement
    TextSettings text;               // that the model generates after each evaluation
  } evaluate;
  struct Checkpoint {
    std::string dir;                  // empty: folder checkpoints in report.dir
    std::uint64_t every_steps = 500;  // 0: no checkpoints
    std::uint32_t keep = 3;           // how many of the newest
    bool keep_best = true;            // also save after evaluations, and keep the best besides the newest
    std::string resume = "never";     // never, auto, a path
    std::chrono::milliseconds save{300000};
  } checkpoint;
  struct Report {
    std::string dir = "run";
    std::string format = "chainermn";  // chainermn, mxnet, cntk, json
    std::uint64_t every_steps = 100;   // lines within an epoch, if the format has them; 0: none
    std::string trace;                 // file; empty: none
  } report;
  struct Faults {
    std::string on_loss = "abort";
    std::chrono::milliseconds dead{10000};  // if not given, at most faults.exchange_s
    std::chrono::milliseconds start{60000};
    std::chrono::milliseconds exchange{30000};
    std::chrono::milliseconds stop{10000};
  } faults;
};

/// All groups by number: first the parameters that no other group matches, which follow the settings above.
inline std::vector<Settings::Group> all_groups(const Settings& settings) {
  std::vector<Settings::Group> all(1);
  all[0].update = settings.update;
  all[0].compression = settings.compression;
  all[0].switches = settings.switches;
  all[0].rule = settings.rule;
  all.insert(all.end(), settings.groups.begin(), settings.groups.end());
  return all;
}

/// The folder of checkpoints.
inline std::string checkpoint_folder(const Settings& settings) {
  return settings.checkpoint.dir.empty() ? settings.report.dir + "/checkpoints" : settings.checkpoint.dir;
}

}  // namespace troupe
