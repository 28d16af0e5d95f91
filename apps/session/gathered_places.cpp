#include "apps/session/gathered_places.hpp"

#include <cstring>

#include <capnp/message.h>
#include <capnp/serialize.h>

#include "runtime/base/error.hpp"
#include "runtime/wire/place.capnp.h"

namespace troupe {
namespace {

kj::ArrayPtr<const kj::byte> as_data(const void* bytes, std::size_t size) {
  return {static_cast<const kj::byte*>(bytes), size};
}

}  // namespace

std::vector<std::byte> encode(const GatheredPlace& place) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<wire::Place>();
  root.setPlanHash(place.plan_hash);
  root.setSettingsHash(place.settings_hash);
  root.setArena(as_data(&place.arena, sizeof place.arena));
  root.setDeviceMemory(place.device_memory);
  auto start = root.initStart();
  start.setFolder(place.start.folder);
  start.setNumber(place.start.id.number);
  start.setSteps(place.start.id.steps);
  start.setFirstNumber(place.start.first_number);
  start.setRun(place.start.run);
  start.setOver(place.start.over);
  auto rows = root.initRows(static_cast<unsigned>(place.rows.size()));
  for (std::uint32_t rank = 0; rank < place.rows.size(); ++rank) rows.set(rank, place.rows[rank]);
  auto ids = root.initNcclIds(static_cast<unsigned>(place.nccl.size()));
  for (std::uint32_t group = 0; group < place.nccl.size(); ++group)
    ids.set(group, as_data(place.nccl[group].bytes.data(), place.nccl[group].bytes.size()));
  const auto words = capnp::messageToFlatArray(message);
  const auto bytes = words.asBytes();
  const auto* first = reinterpret_cast<const std::byte*>(bytes.begin());
  return {first, first + bytes.size()};
}

GatheredPlace decode_place(std::span<const std::byte> bytes) {
  TROUPE_CHECK(bytes.size() % sizeof(capnp::word) == 0, Code::corrupt, "a rank's place has ", bytes.size(), " bytes");
  std::vector<capnp::word> words(bytes.size() / sizeof(capnp::word));
  if (!bytes.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  GatheredPlace place;
  try {
    capnp::FlatArrayMessageReader reader(kj::arrayPtr(words.data(), words.size()));
    const auto root = reader.getRoot<wire::Place>();
    place.plan_hash = root.getPlanHash();
    place.settings_hash = root.getSettingsHash();
    const auto ticket = root.getArena();
    TROUPE_CHECK(ticket.size() == sizeof place.arena, Code::corrupt, "a rank's arena ticket has ", ticket.size(),
                 " bytes, not ", sizeof place.arena);
    std::memcpy(&place.arena, ticket.begin(), sizeof place.arena);
    place.device_memory = root.getDeviceMemory();
    const auto start = root.getStart();
    place.start.folder = start.getFolder().cStr();
    place.start.id = {start.getNumber(), start.getSteps()};
    place.start.first_number = start.getFirstNumber();
    place.start.over = start.getOver();
    place.start.run = start.getRun().cStr();
    for (const std::uint32_t rows : root.getRows()) place.rows.push_back(rows);
    for (const auto id : root.getNcclIds()) {
      NcclId& own = place.nccl.emplace_back();
      TROUPE_CHECK(id.size() == own.bytes.size(), Code::corrupt, "rank 0's id for NCCL has ", id.size(), " bytes, not ",
                   own.bytes.size());
      std::memcpy(own.bytes.data(), id.begin(), id.size());
    }
  } catch (const kj::Exception& e) {
    fail(Code::corrupt, text("a rank's place cannot be read: ", e.getDescription().cStr()));
  }
  return place;
}

}  // namespace troupe
