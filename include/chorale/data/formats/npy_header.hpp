// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::data::detail {

/// The content of the header of a .npy file.
struct NpyHeader {
  std::string type;                                        // "f4", "i8", ..; "O": Python objects
  bool big_endian = false, fortran_order = false;
  std::vector<std::size_t> shape;
};

inline constexpr std::size_t npy_max_header = std::size_t{1} << 16;

/// Reads the header's dict: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, keys in any order.
///
/// keeps   complaint() is the first error, empty without one; at() is its position
class NpyHeaderParser {
 public:
  explicit NpyHeaderParser(std::string_view text) : text_{text} {}

  std::string const& complaint() const { return complaint_; }
  std::size_t at() const { return at_; }

  NpyHeader parse() {
    auto header = NpyHeader{};
    auto seen   = std::string{};
    if (!expect('{')) return header;
    while (ok() && !take('}')) {
      auto const begin = at_;
      auto const key   = in_quotes();
      if (!ok() || !expect(':')) break;
      if (key == "descr") descr(header);
      else if (key == "fortran_order") header.fortran_order = boolean();
      else if (key == "shape") header.shape = tuple();
      else fail(begin, "a key that is none of descr, fortran_order and shape");
      seen += key.empty() ? '?' : key[0];
      if (ok() && !take(',') && !ahead('}')) fail(at_, "',' or '}' is missing");
    }
    std::sort(seen.begin(), seen.end());
    if (ok() && seen != "dfs") fail(at_, "the header needs descr, fortran_order and shape, each once");
    skip_space();
    if (ok() && at_ != text_.size()) fail(at_, "the header goes on after its dict");
    return header;
  }

 private:
  bool ok() const { return complaint_.empty(); }
  void fail(std::size_t at, std::string const& what) {
    if (ok()) complaint_ = what, at_ = at;
  }

  void skip_space() {
    while (ok() && at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool ahead(char c) {
    skip_space();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool take(char c) {
    auto const there = ahead(c);
    at_ += there ? 1 : 0;
    return there;
  }
  bool expect(char c) {
    if (!take(c)) fail(at_, std::string{"'"} + c + "' is missing");
    return ok();
  }

  std::string in_quotes() {
    auto const quote = ahead('"') ? '"' : '\'';
    if (!expect(quote)) return {};
    auto const end = text_.find(quote, at_);
    if (end == text_.npos) return fail(at_, "a text that does not end"), std::string{};
    auto const text = text_.substr(at_, end - at_);
    at_             = end + 1;
    return std::string{text};
  }

  void descr(NpyHeader& header) {
    if (ahead('[')) return fail(at_, "a structured array, but arrays of numbers are read");
    auto const begin = at_;
    auto text        = in_quotes();
    if (!ok()) return;
    auto const order = text.empty() ? '?' : text[0];
    header.type      = text.substr(text.empty() ? 0 : 1);
    auto const kind  = header.type.empty() ? '?' : header.type[0];
    auto const size  = header.type.substr(header.type.empty() ? 0 : 1);
    auto const known = std::string_view{"<>|="}.find(order) != std::string_view::npos;
    auto const plain = std::string_view{"fiub"}.find(kind) != std::string_view::npos &&
                       (size == "1" || size == "2" || size == "4" || size == "8");
    if (!known || (!plain && header.type != "O"))
      fail(begin, "a type of numbers that is none of f, i, u and b with 1, 2, 4 or 8 bytes");
    header.big_endian = order == '>' && size != "1";
  }

  bool boolean() {
    skip_space();
    for (auto const* word : {"False", "True"})
      if (text_.substr(at_).starts_with(word)) return at_ += std::string_view{word}.size(), word[0] == 'T';
    fail(at_, "True or False is missing");
    return false;
  }

  std::vector<std::size_t> tuple() {
    auto sizes = std::vector<std::size_t>{};
    if (!expect('(')) return sizes;
    while (ok() && !take(')')) {
      sizes.push_back(number());
      if (sizes.size() > 32) fail(at_, "more than 32 dimensions");
      if (ok() && !take(',') && (sizes.size() == 1 || !ahead(')'))) fail(at_, "',' or ')' is missing");
    }
    return sizes;
  }

  std::size_t number() {
    skip_space();
    auto const begin = at_;
    auto value       = std::size_t{0};
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      auto const digit = static_cast<std::size_t>(text_[at_] - '0');
      if (value > (std::numeric_limits<std::size_t>::max() - digit) / 10)
        return fail(begin, "a dimension above 2^64"), value;
      value = 10 * value + digit;
    }
    if (at_ == begin) fail(begin, "a number is missing");
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string complaint_;
};

/// The header's dict, padded with spaces so that the data begins at a multiple of 64 bytes.
inline std::string npy_dict(std::string const& descr, std::vector<std::size_t> const& shape) {
  auto sizes = std::string{};
  for (auto const size : shape) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  if (shape.size() == 1) sizes += ",";
  auto dict = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + sizes + "), }";
  auto const before = std::size_t{10};                     // magic, version, length
  dict.append(63 - (before + dict.size()) % 64, ' ');
  return dict + '\n';
}

}  // namespace chorale::data::detail
