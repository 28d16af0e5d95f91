#include "actors/group/mesh.hpp"

#include <algorithm>
#include <caf/actor_registry.hpp>
#include <caf/actor_system.hpp>
#include <caf/deep_to_string.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <set>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/group/detail/broadcaster.hpp"
#include "actors/group/detail/messages.hpp"
#include "actors/group/detail/questions.hpp"

namespace troupe {
namespace {

constexpr std::size_t kMostNamed = 16;

/// At the first request, asks the members, answers the request, and ends.
class Gathering final : public caf::event_based_actor {
 public:
  using Conclude = std::function<Status(const std::vector<Status>&)>;
  Gathering(caf::actor_config& config, group::Questions questions, Conclude conclude)
      : event_based_actor(config), questions_(std::move(questions)), conclude_(std::move(conclude)) {}
  const char* name() const override { return "gathering"; }
  void on_exit() override {
    if (promise_.pending()) promise_.deliver(to_caf(Status{Code::aborted, "nobody waits for the answers any more"}));
  }

 private:
  caf::behavior make_behavior() override {
    return {
        [this](Mesh::Gather) -> caf::result<std::vector<caf::message>> {
          if (promise_.pending()) return to_caf(Status{Code::invalid, "a gathering answers one request"});
          promise_ = make_response_promise();
          group::ask_all(system(), std::move(questions_), [self = caf::actor(this)](std::vector<group::Reply> replies) {
            caf::anon_send(self, group::Replied{std::make_shared<std::vector<group::Reply>>(std::move(replies))});
          });
          return caf::delegated<std::vector<caf::message>>{};
        },
        [this](const group::Replied& replied) {
          std::vector<Status> statuses;
          std::vector<caf::message> answers;
          for (group::Reply& reply : *replied.replies) {
            statuses.push_back(reply.status);
            answers.push_back(std::move(reply.what));
          }
          const Status status = conclude_(statuses);
          if (status.ok()) {
            promise_.deliver(std::move(answers));
          } else {
            promise_.deliver(to_caf(status));
          }
          quit();
        }};
  }

  group::Questions questions_;
  const Conclude conclude_;
  caf::response_promise promise_;
};

}  // namespace

Mesh::Mesh(std::vector<Dimension> dimensions, std::vector<caf::actor> members)
    : dimensions_(std::move(dimensions)), members_(std::move(members)) {
  std::set<std::string> known;
  std::size_t product = 1;
  for (const Dimension& dimension : dimensions_) {
    TROUPE_CHECK(!dimension.name.empty() && known.insert(dimension.name).second && dimension.size > 0, Code::invalid,
                 "a mesh of ", names(), ": every dimension needs a name of its own and a size");
    product *= dimension.size;
  }
  TROUPE_CHECK(product == members_.size(), Code::invalid, "a mesh of ", names(), " has ", product, " members, not ",
               members_.size());
  for (std::size_t i = 0; i < members_.size(); ++i)
    TROUPE_CHECK(members_[i], Code::invalid, "the handle at ", place_of(i), " is empty");
}

/// Returns "{node: 2, device: 4}".
std::string Mesh::names() const {
  std::string all;
  for (const Dimension& dimension : dimensions_)
    all += text(all.empty() ? "" : ", ", dimension.name, ": ", dimension.size);
  return "{" + all + "}";
}

/// Returns "{node 1, device 3}".
std::string Mesh::place_of(std::size_t member) const {
  std::string place;
  for (auto dimension = dimensions_.rbegin(); dimension != dimensions_.rend(); ++dimension) {
    place = text(dimension->name, " ", member % dimension->size, place.empty() ? "" : ", ", place);
    member /= dimension->size;
  }
  return "{" + place + "}";
}

std::size_t Mesh::dimension(const std::string& name) const {
  const auto found = std::find_if(dimensions_.begin(), dimensions_.end(),
                                  [&](const Dimension& dimension) { return dimension.name == name; });
  TROUPE_CHECK(found != dimensions_.end(), Code::invalid, "the mesh has no dimension \"", name, "\", it is ", names());
  return static_cast<std::size_t>(found - dimensions_.begin());
}

constexpr std::size_t kWhole = static_cast<std::size_t>(-1);

/// By dimension; kWhole for a dimension that `place` does not name.
std::vector<std::size_t> Mesh::indices(const std::vector<Coordinate>& place) const {
  std::vector<std::size_t> chosen(dimensions_.size(), kWhole);
  for (const Coordinate& coordinate : place) {
    const std::size_t which = dimension(coordinate.dimension);
    TROUPE_CHECK(chosen[which] == kWhole, Code::invalid, "the dimension \"", coordinate.dimension, "\" is named twice");
    TROUPE_CHECK(coordinate.index < dimensions_[which].size, Code::invalid, "there is no ", coordinate.dimension, " ",
                 coordinate.index, ", the mesh is ", names());
    chosen[which] = coordinate.index;
  }
  return chosen;
}

const caf::actor& Mesh::at(const std::vector<Coordinate>& place) const {
  const auto chosen = indices(place);
  std::size_t member = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    TROUPE_CHECK(chosen[i] != kWhole, Code::invalid, "a member's place must say which ", dimensions_[i].name,
                 ", the mesh is ", names());
    member = member * dimensions_[i].size + chosen[i];
  }
  return members_[member];
}

Mesh Mesh::slice(const std::vector<Coordinate>& place) const {
  const auto chosen = indices(place);
  std::vector<Dimension> rest;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i] == kWhole) rest.push_back(dimensions_[i]);
  }
  std::vector<caf::actor> inside;
  for (std::size_t member = 0; member < members_.size(); ++member) {
    bool fits = true;
    std::size_t left = member;
    for (std::size_t i = chosen.size(); i-- > 0; left /= dimensions_[i].size)
      fits &= chosen[i] == kWhole || chosen[i] == left % dimensions_[i].size;
    if (fits) inside.push_back(members_[member]);
  }
  return Mesh(std::move(rest), std::move(inside));
}

void Mesh::send_all(const caf::message& what) const {
  for (const caf::actor& member : members_) caf::anon_send(member, what);
}

void Mesh::broadcast(const caf::message& what, std::uint32_t fan_out) const {
  TROUPE_CHECK(fan_out > 0, Code::invalid, "a broadcast needs a fan-out of at least 1");
  if (members_.empty()) return;
  caf::actor_system& system = members_.front().home_system();
  const auto broadcaster = system.registry().get<caf::strong_actor_ptr>(group::kBroadcaster);
  if (!broadcaster) return send_all(what);
  group::check_travels(system, what);
  caf::anon_send(caf::actor_cast<caf::actor>(broadcaster), group::Broadcast{members_, what, fan_out});
}

std::vector<caf::message> Mesh::gather(Blocking& blocking, const caf::message& question, Deadline deadline) const {
  if (members_.empty()) return {};
  const Clock::duration within = deadline.left();
  auto replies = group::ask_all(blocking, members_.front().home_system(), {members_, question, within});
  std::vector<Status> statuses;
  std::vector<caf::message> answers;
  for (group::Reply& reply : replies) {
    statuses.push_back(reply.status);
    answers.push_back(std::move(reply.what));
  }
  const Status status = outcome(statuses, within);
  if (!status.ok()) fail(status.code(), std::string(status.text()));
  return answers;
}

caf::actor Mesh::gathering(caf::message question, Clock::duration within) const {
  TROUPE_CHECK(!members_.empty(), Code::invalid, "a mesh without members has nobody to ask");
  return members_.front().home_system().spawn<Gathering, caf::hidden>(
      group::Questions{members_, std::move(question), within},
      [mesh = *this, within](const std::vector<Status>& statuses) { return mesh.outcome(statuses, within); });
}

Status Mesh::outcome(const std::vector<Status>& statuses, Clock::duration within) const {
  Code code = Code::ok;
  std::size_t failed = 0;
  std::string who;
  for (std::size_t i = 0; i < statuses.size(); ++i) {
    const Status& status = statuses[i];
    if (status.ok()) continue;
    if (failed++ < kMostNamed)
      who += text(who.empty() ? "" : "; ", place_of(i), ": ", name_of(status.code()), " ", status.text());
    const bool worse = status.code() == Code::peer_lost || (status.code() == Code::timeout && code != Code::peer_lost);
    if (code == Code::ok || worse) code = status.code();
  }
  if (failed == 0) return {};
  if (failed > kMostNamed) who += text("; and ", failed - kMostNamed, " more");
  return {code, text(failed, " of ", statuses.size(), " members did not answer within ",
                     std::chrono::ceil<std::chrono::milliseconds>(within).count(), " ms: ", who)};
}

void Mesh::refuse_answer(std::size_t member, const caf::message& answer) const {
  fail(Code::unsupported,
       text("the member at ", place_of(member), " answered with something else: ", caf::to_string(answer)));
}

}  // namespace troupe
