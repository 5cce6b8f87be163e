// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/dtype.hpp>
#include <chorale/core/error.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The JSON in front of a safetensors file, read as a stream of events: nothing is built before it has been checked.
namespace chorale::safetensors {

inline constexpr std::uint64_t max_header     = 100'000'000;               // bytes, as in the reference implementation
inline constexpr std::size_t   max_tensors    = 1'000'000;                 // this and the rest are our limits
inline constexpr std::size_t   max_name       = 4096;                      // bytes
inline constexpr std::size_t   max_dimensions = 64;
inline constexpr int           max_depth      = 4;

/// What the header says about one tensor; offsets count from the end of the header.
struct Entry {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::uint64_t> shape{};
  std::array<std::uint64_t, 2> offsets{};                  // begin, end
  std::uint64_t byte = 0;                                  // of the file, where its description starts
};

/// Takes the events of nlohmann::json::sax_parse.
///
/// at      position of the parser in the text; an error names the byte of the file after the fault
/// throws  BadFile from every event that is not allowed; the parser is stopped in no other way
class HeaderReader {
 public:
  HeaderReader(std::string path, char const* begin, char const* const& at)
      : path_{std::move(path)}, begin_{begin}, at_{at} {}

  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;

  bool null() { return scalar("null"); }
  bool boolean(bool) { return scalar("true or false"); }
  bool number_integer(std::int64_t n) { return scalar("the negative number " + std::to_string(n)); }
  bool number_float(double, std::string const& text) { return scalar("the number " + text.substr(0, 40)); }
  bool binary(nlohmann::json::binary_t&) { return scalar("binary data"); }

  bool number_unsigned(std::uint64_t n) {
    if (place_ == Place::shape && skipped_ == 0) {
      if (entry().shape.size() == max_dimensions)
        fail(in_quotes() + " has more than " + std::to_string(max_dimensions) + " dimensions");
      entry().shape.push_back(n);
      return true;
    }
    if (place_ == Place::offsets && skipped_ == 0) {
      if (offsets_ == 2) fail(in_quotes() + " has more than 2 data_offsets");
      entry().offsets[offsets_++] = n;
      return true;
    }
    return scalar("the number " + std::to_string(n));
  }

  bool string(std::string const& text) {
    if (place_ == Place::metadata) {
      if (!metadata.emplace(key_, text).second) fail("__metadata__ has \"" + printable(key_) + "\" twice");
      return true;
    }
    if (place_ == Place::entry && skipped_ == 0 && key_ == "dtype") {
      auto const dtype = dtype_named(text);
      if (!dtype) fail(in_quotes() + " has the unknown dtype \"" + printable(text) + "\"");
      entry().dtype = *dtype;
      return true;
    }
    return scalar("a string");
  }

  bool key(std::string const& text) {
    if (skipped_ > 0) return true;
    if (text.size() > max_name)
      fail("a name has " + std::to_string(text.size()) + " bytes, above the limit of " + std::to_string(max_name));
    if (text.find('\0') != std::string::npos) fail("a name has a zero byte");
    key_ = text;
    if (place_ == Place::entry)
      for (std::size_t i = 0; i < fields.size(); ++i)
        if (key_ == fields[i] && std::exchange(has_[i], true)) fail(in_quotes() + " has two of \"" + key_ + "\"");
    return true;
  }

  bool start_object(std::size_t) {
    deeper();
    if (skipped_ > 0) return ++skipped_, true;
    if (place_ == Place::outside) return place_ = Place::top, true;
    if (place_ == Place::entry && !is_field()) return ++skipped_, true;
    if (place_ != Place::top) return scalar("an object");
    if (key_ == "__metadata__") {
      if (std::exchange(has_metadata_, true)) fail("there are two of __metadata__");
      return place_ = Place::metadata, true;
    }
    if (entries.size() == max_tensors) fail("there are more than " + std::to_string(max_tensors) + " tensors");
    entries.push_back({.name = key_, .byte = byte()});
    has_ = {};
    return place_ = Place::entry, true;
  }

  bool end_object() {
    --depth_;
    if (skipped_ > 0) return --skipped_, true;
    if (place_ == Place::entry)
      for (std::size_t i = 0; i < fields.size(); ++i)
        if (!has_[i]) fail(in_quotes() + " has no \"" + std::string{fields[i]} + "\"");
    return place_ = place_ == Place::top ? Place::outside : Place::top, true;
  }

  bool start_array(std::size_t) {
    deeper();
    if (skipped_ > 0 || (place_ == Place::entry && !is_field())) return ++skipped_, true;
    if (place_ != Place::entry || key_ == "dtype") return scalar("an array");
    offsets_ = 0;
    return place_ = key_ == "shape" ? Place::shape : Place::offsets, true;
  }

  bool end_array() {
    --depth_;
    if (skipped_ > 0) return --skipped_, true;
    if (place_ == Place::offsets && offsets_ != 2)
      fail(in_quotes() + " has " + std::to_string(offsets_) + " data_offsets, but 2 are needed");
    return place_ = Place::entry, true;
  }

  bool parse_error(std::size_t, std::string const&, nlohmann::json::exception const& error) {
    auto const text   = std::string_view{error.what()};    // "[…] parse error at line 1, column 2: reason"
    auto const reason = text.find(": ");
    fail("the header is not JSON: " + printable(reason == text.npos ? text : text.substr(reason + 2), 160));
  }

  [[noreturn]] void fail(std::string const& what) const {
    throw BadFile{path_ + ": byte " + std::to_string(byte()) + ": " + what + ".",
                  "the file from where it was made: this one is not safetensors, or was changed since."};
  }

  /// Returns a text fit for a line on a terminal: not too long, ASCII, no control characters.
  static std::string printable(std::string_view text, std::size_t limit = 40) {
    auto shown = std::string{text.substr(0, limit)};
    for (auto& c : shown)
      if (c < 0x20 || c == 0x7F) c = '?';
    return text.size() > limit ? shown + "..." : shown;
  }

 private:
  enum class Place { outside, top, metadata, entry, shape, offsets };
  static constexpr auto fields = std::array<std::string_view, 3>{"dtype", "shape", "data_offsets"};

  std::uint64_t byte() const { return 8 + static_cast<std::uint64_t>(at_ - begin_); }
  Entry& entry() { return entries.back(); }
  std::string in_quotes() const { return "\"" + printable(entries.back().name) + "\""; }
  bool is_field() const { return key_ == fields[0] || key_ == fields[1] || key_ == fields[2]; }

  void deeper() {
    if (++depth_ > max_depth) fail("the header is nested deeper than " + std::to_string(max_depth) + " levels");
  }

  /// Passes over a value under an unknown key; refuses any other, which this place does not allow.
  bool scalar(std::string const& found) {
    if (skipped_ > 0 || (place_ == Place::entry && !is_field())) return true;
    auto const of = entries.empty() ? std::string{} : " of " + in_quotes();
    switch (place_) {
      case Place::outside:  fail("the header is " + found + ", but an object is needed");
      case Place::top:      fail("\"" + printable(key_) + "\" is " + found + ", but an object is needed");
      case Place::metadata: fail("\"" + printable(key_) + "\" of __metadata__ is " + found + ", but needs a string");
      case Place::entry:    fail("\"" + key_ + "\"" + of + " is " + found +
                                 (key_ == "dtype" ? ", but a string is needed" : ", but an array is needed"));
      default:              fail("\"" + key_ + "\"" + of + " holds " + found + ", but needs whole numbers below 2^64");
    }
  }

  std::string path_;
  char const* begin_;
  char const* const& at_;
  Place place_ = Place::outside;
  std::string key_;
  std::array<bool, 3> has_{};
  bool has_metadata_   = false;
  std::size_t offsets_ = 0;                                // how many data_offsets have been read
  int depth_ = 0, skipped_ = 0;                            // levels: in all, and inside an unknown key
};

}  // namespace chorale::safetensors
