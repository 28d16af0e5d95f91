#include "runtime/base/trace.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <span>
#include <utility>

#include "runtime/base/new_file.hpp"
#include "runtime/base/printable.hpp"

namespace troupe {
namespace {

std::int64_t nanoseconds(Clock::time_point at) noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

std::string in_json_quotes(const std::string& text) {
  std::string quoted = "\"";
  for (const char letter : printable(text)) {
    if (letter == '\n') {
      quoted += "\\n";
    } else if (letter == '\t') {
      quoted += "\\t";
    } else {
      if (letter == '"' || letter == '\\') quoted += '\\';
      quoted += letter;
    }
  }
  return quoted + '"';
}

std::string name_of(const char* phase, const WorkLabel& label) {
  std::string name = phase;
  if (label.step != WorkLabel::kNoStep) name += fmt::format(", step {}", label.step);
  if (label.bucket != WorkLabel::kNoBucket) name += fmt::format(", bucket {}", label.bucket);
  return name;
}

std::string arguments_of(const char* phase, const WorkLabel& label) {
  std::string all = fmt::format("\"phase\":\"{}\"", phase);
  if (label.step != WorkLabel::kNoStep) all += fmt::format(",\"step\":{}", label.step);
  if (label.bucket != WorkLabel::kNoBucket) all += fmt::format(",\"bucket\":{}", label.bucket);
  return all;
}

}  // namespace

std::int64_t Trace::realtime_less_steady() noexcept {
  const auto realtime = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(realtime).count() - nanoseconds(Clock::now());
}

/// Null: there is no memory.
TraceRow::Block* TraceRow::block_for(std::size_t index) noexcept {
  const std::lock_guard lock{mutex_};
  if (index / kBlock < blocks_.size()) return blocks_.back().get();
  try {
    blocks_.push_back(std::make_unique<Block>());
    return blocks_.back().get();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void TraceRow::span(const char* phase, Clock::time_point begin, Clock::time_point end, WorkLabel label) noexcept {
  // Several rows may take the last places at once: then there are a few spans more than the limit.
  if (trace_.left_.load(std::memory_order_relaxed) <= 0) {
    trace_.left_.store(-1, std::memory_order_relaxed);
    return;
  }
  trace_.left_.fetch_sub(1, std::memory_order_relaxed);
  const std::size_t index = written_.load(std::memory_order_relaxed);
  Block* const block = block_for(index);
  if (block == nullptr) return;
  block->spans[index % kBlock] = {phase, nanoseconds(begin), nanoseconds(end), label};
  // After the span is complete: write() reads `written_` first, and then only spans below it.
  written_.store(index + 1, std::memory_order_release);
}

void TraceRow::begin_range(const char* phase, const WorkLabel& label) const noexcept {
  if (trace_.listener_ != nullptr) trace_.listener_->begin_range((name_ + ": " + name_of(phase, label)).c_str());
}

void TraceRow::end_range() const noexcept {
  if (trace_.listener_ != nullptr) trace_.listener_->end_range();
}

TraceRow& Trace::row(std::string name) {
  const std::lock_guard lock{mutex_};
  rows_.push_back(std::unique_ptr<TraceRow>(new TraceRow(*this, std::move(name))));
  return *rows_.back();
}

void Trace::write(std::ostream& out, std::uint32_t process, const std::string& name) const {
  const std::lock_guard lock{mutex_};
  out << "[\n"
      << fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":{}}}}})", process,
                     in_json_quotes(name));
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    TraceRow& row = *rows_[r];
    const std::size_t written = row.written_.load(std::memory_order_acquire);
    if (written == 0) continue;
    out << fmt::format(
        ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{0},\"tid\":{1},\"args\":{{\"name\":{2}}}}},\n"
        "{{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":{0},\"tid\":{1},\"args\":{{\"sort_index\":{1}}}}}",
        process, r, in_json_quotes(row.name_));
    const std::lock_guard blocks{row.mutex_};
    for (std::size_t i = 0; i < written; ++i) {
      const TraceRow::Span& span = row.blocks_[i / TraceRow::kBlock]->spans[i % TraceRow::kBlock];
      out << fmt::format(
          ",\n{{\"name\":\"{}\",\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"args\":{{{}}}}}",
          name_of(span.phase, span.label), process, r, static_cast<double>(span.begin_ns + epoch_ns_) / 1e3,
          static_cast<double>(span.end_ns - span.begin_ns) / 1e3, arguments_of(span.phase, span.label));
    }
  }
  out << "\n]\n";
}

std::string trace_part(const std::string& file, std::uint32_t process) {
  return fmt::format("{}.rank-{}", file, process);
}

namespace {

/// Collects the events of a trace, and passes them on in long pieces.
class EventWriter {
 public:
  explicit EventWriter(const std::string& file) : file_(file) {}
  void add(std::string_view event) {
    if (std::exchange(begun_, true)) text_ += ",\n";
    text_ += event;
    if (text_.size() >= kPiece) pass_on();
  }
  void finish() {
    text_ += "\n]\n";
    pass_on();
    file_.publish();
  }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 20;
  void pass_on() {
    file_.write(std::as_bytes(std::span{text_}));
    text_.clear();
  }
  NewFile file_;
  std::string text_ = "[\n";
  bool begun_ = false;
};

/// A part has "[", then an event in each line, with a comma at its end except in the last one, then "]". Where the
/// process was killed before it had written all, the last line may be incomplete, and is left out.
void add_events(std::istream& part, EventWriter& to) {
  std::string event, line;
  std::getline(part, line);
  while (std::getline(part, line)) {
    if (event.ends_with(',')) event.pop_back();
    if (!event.empty()) to.add(event);
    if (line == "]") return;
    event = std::exchange(line, {});
  }
}

/// Removes the parts of a trace, also if they could not be joined: nothing else removes them.
struct PartsRemoval {
  const std::string& file;
  std::uint32_t count;
  ~PartsRemoval() {
    for (std::uint32_t process = 0; process < count; ++process) std::remove(trace_part(file, process).c_str());
  }
};

}  // namespace

std::uint32_t join_trace_parts(const std::string& file, std::uint32_t count) {
  const PartsRemoval removal{file, count};
  std::uint32_t joined = 0;
  std::optional<EventWriter> out;
  for (std::uint32_t process = 0; process < count; ++process) {
    std::ifstream in{trace_part(file, process)};
    if (!in) continue;
    if (joined++ == 0) out.emplace(file);
    add_events(in, *out);
  }
  if (out) out->finish();
  return joined;
}

}  // namespace troupe
