#include <algorithm>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/config/detail/toml.hpp"

namespace troupe::detail {
namespace {

constexpr int kMaxKeyParts = 8;
constexpr std::size_t kMaxNesting = 16;

bool is_ascii(char c) { return (static_cast<unsigned char>(c) & 0x80) == 0; }

/// Reads a text once, before toml++ does.
class Scan {
 public:
  Scan(std::string_view text, std::string_view name) : text_(text), name_(name) {
    if (text_.starts_with("\ufeff")) text_.remove_prefix(3);
  }

  void check() {
    for (; at_ < text_.size(); ++at_) take(text_[at_]);
  }

 private:
  void take(char c) {
    switch (c) {
      case '#': at_ = std::min(text_.find('\n', at_), text_.size()) - 1; break;
      case '"':
      case '\'': at_ = behind_string() - 1; break;
      case '.': refuse_if(++parts_ > kMaxKeyParts, at_, kManyParts); break;
      case '[':
        if (open_.empty() && begins_line()) check_section();
        [[fallthrough]];
      case '{':
        parts_ = 1;
        open_ += c;
        refuse_if(open_.size() > kMaxNesting, at_, kDeep);
        break;
      case ']':
      case '}': close(c); break;
      case '\n':
      case '=':
      case ',': parts_ = 1; break;
      default: refuse_if(!is_ascii(c), at_, kStranger);
    }
  }

  void close(char c) {
    parts_ = 1;
    if (open_.empty()) return;  // the parser reports it
    refuse_if((open_.back() == '[') != (c == ']'), at_,
              "the bracket that is open is closed by another; write [ ... ] or { ... }");
    open_.pop_back();
  }

  /// The index after the string that starts at at_, or the text's end if the string has no end.
  std::size_t behind_string() const {
    const char quote = text_[at_];
    const std::string three(3, quote);
    const bool many_lines = text_.substr(at_, 3) == three;
    for (std::size_t i = at_ + (many_lines ? 3 : 1); i < text_.size(); ++i) {
      if (text_[i] == '\\' && quote == '"') {
        if (many_lines) check_escape(i);
        ++i;
      } else if (many_lines ? text_.substr(i, 3) == three : text_[i] == quote) {
        return i + (many_lines ? 3 : 1);
      } else if (text_[i] == '\n' && !many_lines) {
        return i;  // not TOML: the parser reports it
      }
    }
    return text_.size();
  }

  void check_escape(std::size_t backslash) const {
    const auto next = text_.find_first_not_of(" \t\r\n", backslash + 1);
    refuse_if(next != text_.npos && !is_ascii(text_[next]), backslash,
              "a backslash before a letter that is not ASCII; leave it out, and write the text on one line");
  }

  void check_section() const {
    std::size_t at = at_ + 1;
    const auto skip_space = [&] { at = std::min(text_.find_first_not_of(" \t", at), text_.size()); };
    skip_space();
    if (at < text_.size() && text_[at] == '[') ++at;
    skip_space();
    constexpr std::string_view kMayFollow = "\"'-_]";
    const auto is_between = [&](char low, char high) { return text_[at] >= low && text_[at] <= high; };
    refuse_if(at < text_.size() && is_ascii(text_[at]) && !is_between('0', '9') && !is_between('a', 'z') &&
                  !is_between('A', 'Z') && kMayFollow.find(text_[at]) == kMayFollow.npos,
              at, "no section has such a name; one is written [data]");
  }

  bool begins_line() const {
    const auto before = text_.substr(0, at_).find_last_not_of(" \t");
    return before == text_.npos || text_[before] == '\n';
  }

  void refuse_if(bool wrong, std::size_t at, std::string_view why) const {
    if (!wrong) return;
    if (why == kStranger) why = about_stranger(text_.substr(at));
    const auto line = std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
    const std::size_t start = text_.substr(0, at).rfind('\n') + 1;  // 0 for the first line
    const auto column = 1 + std::count_if(text_.begin() + static_cast<std::ptrdiff_t>(start),
                                          text_.begin() + static_cast<std::ptrdiff_t>(at),
                                          [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
    fail(Code::invalid, troupe::text(name_, ":", line, ":", column, ": ", why));
  }

  std::string_view about_stranger(std::string_view from) const {
    if (text_.starts_with("\xff\xfe") || text_.starts_with("\xfe\xff")) {
      return "this is not UTF-8; save the file as UTF-8 text, not as UTF-16";
    }
    if (from.starts_with("\u00a0") || from.starts_with("\u200b") || from.starts_with("\ufeff")) {
      return "an invisible character; delete it, and type a plain space";
    }
    if (from.starts_with("\u201c") || from.starts_with("\u201d") || from.starts_with("\u201e") ||
        from.starts_with("\u2018") || from.starts_with("\u2019")) {
      return "quotes of another kind; write straight ones, \", at both ends";
    }
    return "a letter that is not ASCII, outside of text in quotes; keys have none, and text needs quotes";
  }

  static constexpr std::string_view kManyParts =
      "a key of more than 8 parts; no setting has more than two, as in data.batch";
  static constexpr std::string_view kDeep =
      "brackets nested more than 16 deep; a setting has one pair at most, as in model.units = [1000, 1000]";
  static constexpr std::string_view kStranger = "";

  std::string_view text_;
  std::string_view name_;
  std::size_t at_ = 0;
  int parts_ = 1;     // of the current key, if it is one
  std::string open_;  // brackets that are open
};

}  // namespace

void check_before_parsing(std::string_view text, std::string_view name) { Scan{text, name}.check(); }

}  // namespace troupe::detail
