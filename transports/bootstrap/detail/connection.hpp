#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "transports/bootstrap/detail/socket.hpp"

namespace troupe::bootstrap {

using Bytes = std::vector<std::byte>;

/// The frames between rank 0 and another rank, in the order of their first use.
enum class Kind : std::uint8_t {
  challenge = 1,  // listener: nonce
  proof,          // connector: nonce, rank, mac
  welcome,        // listener: mac
  hello,          // connector: Hello; listener: all hellos, in the order of ranks
  waiting,        // listener: text for people
  refused,        // listener: code, text; the connection ends
  gather,         // connector: number, length of the name, name, blob
  gathered,       // listener: number, blob; one frame for each rank, in their order
  lost,           // listener: rank, text
  bye,            // a rank that leaves
};

struct Frame {
  Kind kind{};
  Bytes body;
};

constexpr std::size_t kMaxStrangerBytes = 4096;  // from processes that have not proved that they know the secret
constexpr std::size_t kMaxBlobBytes = 16 << 20;
constexpr std::size_t kMaxFrameBytes = kMaxBlobBytes + 4096;

/// Little-endian numbers at the start of a frame's body; reading removes them. Throws Error{corrupt} if the body is too
/// short.
void put_u32(Bytes& to, std::uint32_t value);
std::uint32_t take_u32(std::span<const std::byte>& from);
void put_text(Bytes& to, std::string_view text);
/// The rest as text, with control characters replaced: it may come from any process and is shown on a terminal.
std::string take_text(std::span<const std::byte> from);
/// A status as a body: code, text.
Bytes status_body(const Status& status);
Status take_status(std::span<const std::byte> from);

/// One non-blocking TCP connection that carries frames: magic, kind, length, body. Threads: one at a time.
class Connection {
 public:
  Connection(Fd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  int fd() const noexcept { return fd_.get(); }
  /// Whether more data can come. A connection that has ended keeps its descriptor until close().
  bool open() const noexcept { return fd_.get() >= 0 && !over_; }
  void close() noexcept { fd_.reset(); }
  /// For messages: "rank 1", "127.0.0.1:4711".
  const std::string& name() const noexcept { return name_; }
  void rename(std::string name) { name_ = std::move(name); }

  /// A longer frame ends the connection before anything is allocated for it.
  void accept_frames_of(std::size_t max_bytes) noexcept { max_bytes_ = max_bytes; }
  /// Queues a frame and sends as much as the socket accepts.
  void send(Kind kind, Bytes body) { send(kind, std::make_shared<const Bytes>(std::move(body))); }
  void send(Kind kind, std::shared_ptr<const Bytes> body);
  /// Sends as much of the queue as the socket accepts. A broken connection is noticed by the next receive().
  void flush() noexcept;
  bool has_unsent() const noexcept { return !outbox_.empty(); }
  /// Reads the available data. False: the connection has ended, and why() says why; take() still returns earlier
  /// frames.
  bool receive();
  /// The next complete frame that was received.
  std::optional<Frame> take();
  const std::string& why() const noexcept { return why_; }
  /// Nothing more will be sent; the other side sees the end after what was sent.
  void end_sending() noexcept;

 private:
  static constexpr std::size_t kHeadBytes = 12;
  struct Outgoing {
    std::array<std::byte, kHeadBytes> head;
    std::shared_ptr<const Bytes> body;
    std::size_t sent = 0;
  };
  bool begin_body();
  bool end(std::string why);

  Fd fd_;
  std::string name_;
  std::string why_;
  bool over_ = false;
  std::size_t max_bytes_ = kMaxStrangerBytes;
  std::deque<Outgoing> outbox_;
  std::array<std::byte, kHeadBytes> head_;
  std::size_t head_filled_ = 0;
  Frame incoming_;
  std::size_t body_filled_ = 0;
  std::deque<Frame> inbox_;
};

/// Waits until a connection can be read, or written if it has unsent data, or until `extra_fd` (-1: none) can be read,
/// or until the deadline. Returns which are ready: [i] for connections[i]; the last entry is extra_fd's. Closed
/// connections are left out.
std::vector<bool> wait_ready(std::span<Connection* const> connections, int extra_fd, Deadline deadline);

/// Sends everything that is queued. False if the deadline passed first; a connection that breaks counts as sent.
bool flush_all(std::span<Connection* const> connections, Deadline deadline);

/// Ends connections so that what was sent arrives: sends the rest, shuts down sending, and waits, at most until the
/// deadline, for the others to close. (Closing with unread bytes would reset the connection, and the last messages
/// could be lost.)
void part(std::span<Connection* const> connections, Deadline deadline);

}  // namespace troupe::bootstrap
