#include <pmix.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"
#include "transports/bootstrap/detail/contact.hpp"
#include "transports/bootstrap/detail/pmix.hpp"
#include "transports/bootstrap/detail/socket.hpp"

namespace troupe::bootstrap {
namespace {

constexpr char kKey[] = "troupe.contact";

void check(pmix_status_t status, const std::string& what) {
  TROUPE_CHECK(status != PMIX_ERR_TIMEOUT, Code::timeout, "PMIx: waited too long ", what);
  TROUPE_CHECK(
      status == PMIX_SUCCESS, Code::environment, "PMIx: ", PMIx_Error_string(status), " ", what,
      "; does the mpirun or srun that started this process still run? A process that is not one of its ranks must be "
      "started without PMIX_* in its environment");
}

/// The attributes of one call: at most a time-out and a flag.
class Attributes {
 public:
  explicit Attributes(Deadline deadline) {
    const auto left = std::chrono::ceil<std::chrono::seconds>(deadline.left()).count();
    const int seconds = std::max(1, static_cast<int>(std::min<std::int64_t>(left, 86'400)));  // 0 would mean no limit
    PMIX_INFO_LOAD(&infos_[count_++], PMIX_TIMEOUT, &seconds, PMIX_INT);
  }
  ~Attributes() {
    for (std::size_t i = 0; i < count_; ++i) PMIX_INFO_DESTRUCT(&infos_[i]);
  }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  void set(const char* flag) {
    const bool yes = true;
    PMIX_INFO_LOAD(&infos_[count_++], flag, &yes, PMIX_BOOL);
  }
  const pmix_info_t* data() const noexcept { return infos_; }
  std::size_t size() const noexcept { return count_; }

 private:
  pmix_info_t infos_[2]{};
  std::size_t count_ = 0;
};

struct FreeValue {
  void operator()(pmix_value_t* value) const noexcept { PMIX_VALUE_RELEASE(value); }
};
using Value = std::unique_ptr<pmix_value_t, FreeValue>;

/// One connection to the server that this process's launcher runs on its host.
class Client {
 public:
  explicit Client(Deadline deadline) : deadline_(deadline) {
    check(PMIx_Init(&self_, nullptr, 0), "while connecting to the launcher's server");
  }
  ~Client() { PMIx_Finalize(nullptr, 0); }  // otherwise mpirun reports an improper end
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  std::uint32_t rank() const noexcept { return self_.rank; }
  const char* name_space() const noexcept { return self_.nspace; }
  /// A number that the server knows about the job, or about this process.
  std::uint32_t number_of_job(const char* key) const { return number(PMIX_RANK_WILDCARD, key); }
  std::uint32_t own_number(const char* key) const { return number(self_.rank, key); }

  void publish(const std::string& word) const {
    pmix_value_t value{};
    value.type = PMIX_STRING;
    value.data.string = const_cast<char*>(word.c_str());  // the call copies it
    check(PMIx_Put(PMIX_GLOBAL, kKey, &value), "while publishing the address of rank 0");
    check(PMIx_Commit(), "while publishing the address of rank 0");
  }
  /// Waits until every rank has called this, and has the values that the others published.
  void fence() const {
    Attributes attributes{deadline_};
    attributes.set(PMIX_COLLECT_DATA);
    const pmix_proc_t all = process(PMIX_RANK_WILDCARD);
    check(PMIx_Fence(&all, 1, attributes.data(), attributes.size()), "for all ranks of the job to meet");
  }
  std::string word_of_rank_zero() const {
    const Value value = get(0, kKey);
    TROUPE_CHECK(value->type == PMIX_STRING && value->data.string != nullptr, Code::corrupt,
                 "PMIx: rank 0 left no word of where it listens");
    return value->data.string;
  }

 private:
  pmix_proc_t process(pmix_rank_t rank) const noexcept {
    pmix_proc_t result{};
    std::copy(std::begin(self_.nspace), std::end(self_.nspace), std::begin(result.nspace));
    result.rank = rank;
    return result;
  }
  Value get(pmix_rank_t rank, const char* key) const {
    const Attributes attributes{deadline_};
    const pmix_proc_t who = process(rank);
    pmix_value_t* value = nullptr;
    check(PMIx_Get(&who, key, attributes.data(), attributes.size(), &value), text("while asking for ", key));
    TROUPE_CHECK(value != nullptr, Code::environment, "PMIx: the server gave no ", key);
    return Value{value};
  }
  std::uint32_t number(pmix_rank_t rank, const char* key) const {
    const Value value = get(rank, key);
    if (value->type == PMIX_UINT16) return value->data.uint16;
    TROUPE_CHECK(value->type == PMIX_UINT32, Code::environment, "PMIx: the server gave a ", key, " of type ",
                 value->type, " instead of a number");
    return value->data.uint32;
  }

  const Deadline deadline_;
  pmix_proc_t self_{};
};

/// The result of place_from_pmix(), with rank 0's listener.
struct Outcome {
  LaunchPlace place;
  Fd listener;
};

/// On rank 0: listens, fills in the address, and returns the contact for the other ranks.
std::string make_contact(Outcome& mine, bool one_host) {
  LaunchPlace& place = mine.place;
  Contact contact;
  if (place.secret.empty()) contact.secret = place.secret = fresh_secret();
  mine.listener = listen_at_free_port(one_host);
  const Address listening = local_address(mine.listener.get());
  contact.port = place.master_port = listening.port();
  if (one_host) {
    contact.addresses.push_back(listening.host());
  } else {
    for (const NetworkAddress& address : own_addresses()) contact.addresses.push_back(address.to_string());
    TROUPE_CHECK(!contact.addresses.empty(), Code::environment,
                 "rank 0 has no network address that the ranks on other hosts could reach");
  }
  place.master_address = contact.addresses.front();
  return to_text(contact);
}

Outcome exchange_contact(const std::string& secret, Deadline deadline) {
  const Client client{deadline};
  Outcome mine;
  LaunchPlace& place = mine.place;
  place.rank = client.rank();
  place.world_size = client.number_of_job(PMIX_JOB_SIZE);
  place.local_rank = client.own_number(PMIX_LOCAL_RANK);
  place.secret = secret;
  place.found_in = text("PMIx (namespace ", client.name_space(), ")");
  TROUPE_CHECK(place.rank < place.world_size, Code::environment, "PMIx: the server says this is rank ", place.rank,
               " of ", place.world_size);
  const bool one_host = client.number_of_job(PMIX_LOCAL_SIZE) == place.world_size;
  if (place.rank == 0) client.publish(make_contact(mine, one_host));
  client.fence();
  if (place.rank == 0) return mine;
  const Contact contact = contact_from(client.word_of_rank_zero());
  if (place.secret.empty()) place.secret = contact.secret;
  place.master_port = contact.port;
  place.master_address = one_host ? contact.addresses.front() : reachable(contact.addresses, own_addresses());
  return mine;
}

}  // namespace

bool pmix_available() noexcept { return true; }

LaunchPlace place_from_pmix(const std::string& secret, Deadline deadline) {
  // On a separate thread, which may outlive the wait: servers do not always obey their time limits.
  auto task = std::make_shared<std::packaged_task<Outcome()>>([=] { return exchange_contact(secret, deadline); });
  std::future<Outcome> answer = task->get_future();
  std::thread thread = start_thread("troupe-pmix", [task] { (*task)(); });
  if (answer.wait_until(deadline.at()) != std::future_status::ready) {
    thread.detach();
    fail(Code::timeout,
         "PMIx: not every rank of the job asked the launcher's server for its place in time, or the server does not "
         "answer; look at the output of the others, and start the same program as every rank");
  }
  thread.join();
  Outcome mine = answer.get();
  mine.place.listen_fd = mine.listener.release();
  return std::move(mine.place);
}

}  // namespace troupe::bootstrap
