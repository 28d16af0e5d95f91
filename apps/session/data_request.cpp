#include <cstdlib>

#include "apps/session/session.hpp"

namespace troupe {

DataRequest data_request(const Configuration& configuration) {
  const char* environment = std::getenv("TROUPE_DATA");
  DataRequest request;
  request.source = configuration.settings.data.source;
  request.options.augmentation = parse_augmentation(configuration.settings.data.augment);
  request.options.broken = configuration.settings.data.broken;
  request.options.patience = configuration.settings.data.read;
  request.options.length = configuration.settings.data.length;
  request.options.validation = configuration.settings.data.validation;
  request.options.boxes = configuration.settings.data.boxes;
  request.options.classes = configuration.settings.data.classes;
  request.path = configuration.settings.data.path;
  request.path_is_set = configuration.origin_of("data.path").starts_with("--set");
  request.folder = configuration.folder;
  request.environment = environment != nullptr ? environment : "";
  return request;
}

}  // namespace troupe
