#include "apps/session/gathered_places.hpp"

#include <cstring>

#include "runtime/wire/detail/messages.hpp"
#include "runtime/wire/place.capnp.h"

namespace troupe {

std::vector<std::byte> encode(const GatheredPlace& place) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<wire::Place>();
  root.setPlanHash(place.plan_hash);
  root.setSettingsHash(place.settings_hash);
  root.setArena(wire::as_data(std::as_bytes(std::span{&place.arena, 1})));
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
    ids.set(group, wire::as_data(std::as_bytes(std::span{place.nccl[group].bytes})));
  return wire::encoded(message);
}

GatheredPlace decode_place(std::span<const std::byte> bytes) {
  return wire::decoded<wire::Place>(bytes, "a rank's place", [](wire::Place::Reader root) {
    GatheredPlace place;
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
    return place;
  });
}

}  // namespace troupe
