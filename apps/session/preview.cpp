#include <algorithm>

#include "apps/models/models.hpp"
#include "apps/session/session.hpp"
#include "devices/discovery/discovery.hpp"
#include "runtime/planner.hpp"

namespace troupe {

Plan preview(const Configuration& configuration, const DataPlace& place) {
  const Settings& settings = configuration.settings;
  const DataFacts data = look_at_data(place);
  const Graph graph = build_model(settings, data.shape, data.count_classes);
  const Topology topology = discover();
  PlanInputs inputs;
  inputs.ranks.resize(std::max(1u, settings.cluster.local), RankFacts{topology.identity, topology.host});
  inputs.topologies = {topology};
  inputs.train_samples = data.train_samples;
  inputs.test_samples = data.test_samples;
  inputs.data_bytes = data.size_bytes;
  return make_plan(settings, graph, inputs);
}

}  // namespace troupe
