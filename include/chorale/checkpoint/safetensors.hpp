// SPDX-License-Identifier: Apache-2.0
//
// The format in one piece: the header that is read and written, the file that is mapped, and the image that is saved.
#pragma once

#if !__has_include(<nlohmann/json.hpp>)
#error \
    "chorale: <nlohmann/json.hpp> is not on the include path. Try: apt-get install nlohmann-json3-dev \
(Debian), dnf install json-devel (Fedora), brew install nlohmann-json (Homebrew) or vcpkg install \
nlohmann-json"
#endif

#include <chorale/checkpoint/atomic_file.hpp>
#include <chorale/checkpoint/dtype.hpp>
#include <chorale/checkpoint/mapped_file.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The JSON in front of a safetensors file, read as a stream of events: nothing is built before it has been checked.
namespace chorale::safetensors {

inline constexpr std::uint64_t max_header   = 100'000'000;  // bytes, as in the reference implementation
inline constexpr std::size_t max_tensors    = 1'000'000;    // this and the rest are our limits
inline constexpr std::size_t max_name       = 4096;         // bytes
inline constexpr std::size_t max_dimensions = 64;
inline constexpr int max_depth              = 4;

/// What the header says about one tensor; offsets count from the end of the header.
struct Entry {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::uint64_t> shape{};
  std::array<std::uint64_t, 2> offsets{};  // begin, end
  std::uint64_t byte = 0;                  // of the file, where its description starts
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
  bool binary(auto const&) { return scalar("binary data"); }

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
    has_          = {};
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
    offsets_      = 0;
    return place_ = key_ == "shape" ? Place::shape : Place::offsets, true;
  }

  bool end_array() {
    --depth_;
    if (skipped_ > 0) return --skipped_, true;
    if (place_ == Place::offsets && offsets_ != 2)
      fail(in_quotes() + " has " + std::to_string(offsets_) + " data_offsets, but 2 are needed");
    return place_ = Place::entry, true;
  }

  bool parse_error(std::size_t, std::string const&, std::exception const& error) {
    auto const text   = std::string_view{error.what()};  // "[…] parse error at line 1, column 2: reason"
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
      case Place::outside: fail("the header is " + found + ", but an object is needed");
      case Place::top: fail("\"" + printable(key_) + "\" is " + found + ", but an object is needed");
      case Place::metadata: fail("\"" + printable(key_) + "\" of __metadata__ is " + found + ", but needs a string");
      case Place::entry:
        fail("\"" + key_ + "\"" + of + " is " + found +
             (key_ == "dtype" ? ", but a string is needed" : ", but an array is needed"));
      default: fail("\"" + key_ + "\"" + of + " holds " + found + ", but needs whole numbers below 2^64");
    }
  }

  std::string path_;
  char const* begin_;
  char const* const& at_;
  Place place_ = Place::outside;
  std::string key_;
  std::array<bool, 3> has_{};
  bool has_metadata_   = false;
  std::size_t offsets_ = 0;      // how many data_offsets have been read
  int depth_ = 0, skipped_ = 0;  // levels: in all, and inside an unknown key
};

}  // namespace chorale::safetensors

namespace chorale {

static_assert(std::endian::native == std::endian::little,
              "chorale: safetensors files are little-endian. This header needs a little-endian machine.");

/// A tensor and its name; the bytes belong to the file that was read, or to the caller that writes.
struct NamedTensor {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::uint64_t> shape{};  // empty: one number
  ConstBytes bytes{};                  // row-major, little-endian; may be unaligned
};

/// A safetensors file, open for reading.
///
///   auto file = SafetensorsFile::read("weights.safetensors");
///   file.copy("dense/kernel", kernel);
///
/// keeps   every byte of the file is accounted for, once; the bytes of `tensors()` live as long as this object
/// cost    memory for the header; tensors are read as they are touched
/// source  github.com/huggingface/safetensors. A name that appears twice is refused, an unknown key of a
///         tensor is passed over, white space around the header is accepted; a name may be anything, "../x" too
class SafetensorsFile {
 public:
  /// throws  BadFile with the byte where it went wrong; nothing is allocated for what the file only claims to have
  static SafetensorsFile read(std::filesystem::path const& path) { return {path.string(), MappedFile{path}}; }

  /// Returns the file of bytes that were read already; `path` is for messages.
  static SafetensorsFile of(MappedFile bytes, std::string path) { return {std::move(path), std::move(bytes)}; }

  std::vector<NamedTensor> const& tensors() const& { return tensors_; }  // by name, ascending; bytes of this object
  std::vector<NamedTensor> const& tensors() const&& = delete;            // they would be gone: keep the file
  std::map<std::string, std::string> const& metadata() const& { return metadata_; }
  std::map<std::string, std::string> metadata() && { return std::move(metadata_); }

  /// Returns the tensor of that name, or null.
  NamedTensor const* find(std::string_view name) const& {
    auto const at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                     [](NamedTensor const& t, std::string_view wanted) { return t.name < wanted; });
    return at != tensors_.end() && at->name == name ? &*at : nullptr;
  }
  NamedTensor const* find(std::string_view) const&& = delete;

  /// throws  BadFile when there is none of that name
  NamedTensor const& at(std::string_view name) const& {
    if (auto const* tensor = find(name)) return *tensor;
    auto names = std::string{};
    for (std::size_t i = 0; i < tensors_.size() && i < 8; ++i)
      names.append(i ? ", " : "") += in_quotes(tensors_[i].name);
    throw BadFile{
        path_ + ": has no tensor " + in_quotes(name) + ", but " + std::to_string(tensors_.size()) + " others.",
        tensors_.empty() ? "" : names + (tensors_.size() > 8 ? ", ..." : "") + "."};
  }
  NamedTensor const& at(std::string_view) const&& = delete;

  /// Copies a tensor of float32.
  ///
  /// throws  BadFile when it has another type or another number of elements
  void copy(std::string_view name, Span<float> to) const {
    auto const& tensor = floats_at(name);
    if (tensor.bytes.size() != to.size_bytes())
      throw BadFile{path_ + ": " + in_quotes(name) + " has " + std::to_string(tensor.bytes.size() / sizeof(float)) +
                        " elements, but " + std::to_string(to.size()) + " are needed.",
                    "the file that was saved from this model."};
    if (!to.empty()) std::memcpy(to.data(), tensor.bytes.data(), to.size_bytes());
  }

  std::vector<float> floats(std::string_view name) const {
    auto values = std::vector<float>(floats_at(name).bytes.size() / sizeof(float));
    copy(name, values);
    return values;
  }

 private:
  SafetensorsFile(std::string path, MappedFile file) : path_{std::move(path)}, file_{std::move(file)} {
    auto const bytes = file_.bytes();
    if (bytes.size() < 8)
      fail(0, "the file has " + std::to_string(bytes.size()) + " bytes, but the length of its header alone takes 8");
    auto length = std::uint64_t{0};
    std::memcpy(&length, bytes.data(), sizeof length);
    if (length > safetensors::max_header)
      fail(0, "the header would have " + std::to_string(length) + " bytes, above the limit of " +
                  std::to_string(safetensors::max_header));
    if (length > bytes.size() - 8)
      fail(8, "the header should have " + std::to_string(length) + " bytes, but " + std::to_string(bytes.size() - 8) +
                  " are left");
    data_ = 8 + length;
    place(parse({reinterpret_cast<char const*>(bytes.data()) + 8, static_cast<std::size_t>(length)}));
  }

  /// Iterator over the text that keeps its position in `at`, where HeaderReader sees it.
  struct Walk {
    using iterator_category = std::input_iterator_tag;
    using value_type        = char;
    using difference_type   = std::ptrdiff_t;
    using pointer           = char const*;
    using reference         = char const&;

    char const** at;
    char const* end;
    reference operator*() const { return **at; }
    Walk& operator++() { return ++*at, *this; }
    friend bool operator==(Walk a, Walk b) { return (a.at ? *a.at : a.end) == (b.at ? *b.at : b.end); }
  };

  std::vector<safetensors::Entry> parse(std::string_view text) {
    auto const* at = text.data();
    auto header    = safetensors::HeaderReader{path_, text.data(), at};
    auto const end = text.data() + text.size();
    while (at != end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) ++at;
    if (at == end || *at != '{') header.fail("the header does not begin with {");  // nor a byte order mark
    if (auto const zero = text.find('\0'); zero != text.npos) {
      at += static_cast<std::ptrdiff_t>(zero) - (at - text.data());
      header.fail("the header has a zero byte");  // at which the parser would stop without an error
    }
    nlohmann::json::sax_parse(Walk{&at, end}, Walk{nullptr, end}, &header);
    metadata_ = std::move(header.metadata);
    return std::move(header.entries);
  }

  /// Checks that the tensors follow each other without holes to the end of the file, and gives them their bytes.
  void place(std::vector<safetensors::Entry> entries) {
    std::sort(entries.begin(), entries.end(), [](auto const& a, auto const& b) { return a.offsets < b.offsets; });
    auto const data = file_.bytes().subspan(static_cast<std::size_t>(data_));
    auto next       = std::uint64_t{0};
    tensors_.reserve(entries.size());
    for (auto& entry : entries) {
      auto const [begin, end] = entry.offsets;
      auto const size         = bytes_of(entry.dtype, entry.shape);
      if (!size)
        fail(entry.byte,
             in_quotes(entry.name) + " has a shape that cannot be counted in bytes: more than 64 bits, or half a byte");
      if (begin > end || *size != end - begin)
        fail(entry.byte, in_quotes(entry.name) + " takes " + std::to_string(*size) +
                             " bytes, but has data_offsets from " + std::to_string(begin) + " to " +
                             std::to_string(end));
      if (begin != next)
        fail(data_ + std::min(begin, next), in_quotes(entry.name) + " begins at offset " + std::to_string(begin) +
                                                " of the data, but the one before it ends at " + std::to_string(next));
      if (end > data.size())
        fail(data_ + begin, in_quotes(entry.name) + " ends at offset " + std::to_string(end) +
                                " of the data, but there are " + std::to_string(data.size()) + " bytes");
      tensors_.push_back({std::move(entry.name), entry.dtype, std::move(entry.shape),
                          data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(*size))});
      next = end;
    }
    if (next != data.size())
      fail(data_ + next, "the tensors take " + std::to_string(next) + " bytes, but " + std::to_string(data.size()) +
                             " follow the header");
    std::sort(tensors_.begin(), tensors_.end(), [](auto const& a, auto const& b) { return a.name < b.name; });
    auto const same  = [](auto const& a, auto const& b) { return a.name == b.name; };
    auto const twice = std::adjacent_find(tensors_.begin(), tensors_.end(), same);
    if (twice != tensors_.end()) fail(8, "there are two tensors " + in_quotes(twice->name));
  }

  NamedTensor const& floats_at(std::string_view name) const {
    auto const& tensor = at(name);
    if (tensor.dtype != Dtype::f32)
      throw BadFile{
          path_ + ": " + in_quotes(name) + " is " + std::string{name_of(tensor.dtype)} + ", but F32 is needed.",
          "to convert it where it was made."};
    return tensor;
  }

  static std::string in_quotes(std::string_view name) {
    return "\"" + safetensors::HeaderReader::printable(name) + "\"";
  }

  [[noreturn]] void fail(std::uint64_t byte, std::string const& what) const {
    throw BadFile{path_ + ": byte " + std::to_string(byte) + ": " + what + ".",
                  "a fresh copy: this one is cut off, was changed, or is not safetensors."};
  }

  std::string path_;
  MappedFile file_;
  std::uint64_t data_ = 0;  // the byte of the file after the header
  std::vector<NamedTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

namespace detail {

/// Returns the JSON for tensors in this order, padded so that the first one is aligned.
inline std::string safetensors_header(std::vector<NamedTensor> const& tensors,
                                      std::map<std::string, std::string> const& metadata) {
  auto const in_quotes = [](std::string const& text) {
    try {
      return nlohmann::json(text).dump();
    } catch (nlohmann::json::type_error const&) {
      throw BadArgument{"\"" + safetensors::HeaderReader::printable(text) + "\" is not UTF-8.",
                        "names and metadata in UTF-8: a safetensors file has no other text."};
    }
  };
  auto names = std::set<std::string_view>{"__metadata__"};
  auto text  = std::string{"{"};
  for (auto const& [key, value] : metadata)
    text += (text == "{" ? "\"__metadata__\":{" : ",") + in_quotes(key) + ":" + in_quotes(value);
  if (!metadata.empty()) text += "}";
  auto begin = std::uint64_t{0};
  for (auto const& [name, dtype, shape, bytes] : tensors) {
    auto const size = bytes_of(dtype, shape);
    CHORALE_EXPECTS(size && *size == bytes.size(), in_quotes(name) + " has " + std::to_string(bytes.size()) +
                                                       " bytes, but its shape takes " +
                                                       (size ? std::to_string(*size) : "more than can be counted"));
    CHORALE_EXPECTS(names.insert(name).second, "the name " + in_quotes(name) + " is taken");
    CHORALE_EXPECTS(name.size() <= safetensors::max_name && name.find('\0') == name.npos,
                    "the name " + in_quotes(name.substr(0, 40)) + "... is too long, or has a zero byte");
    auto const end = begin + *size;
    text += (text == "{" ? "" : ",") + in_quotes(name) + ":{\"dtype\":\"" + std::string{name_of(dtype)} +
            "\",\"shape\":" + nlohmann::json(shape).dump() + ",\"data_offsets\":[" + std::to_string(begin) + "," +
            std::to_string(end) + "]}";
    begin = end;
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  CHORALE_EXPECTS(text.size() <= safetensors::max_header && tensors.size() <= safetensors::max_tensors,
                  std::to_string(tensors.size()) + " tensors are too many for one file");
  return text;
}

}  // namespace detail

/// The bytes of a safetensors file, before they are written.
///
/// tensors   in any order; the file has them by type and name, as the reference implementation does
/// keeps     bytes of tensors are not copied: they must live as long as this object
/// throws    BadArgument when two have one name, or when the size of one does not match its shape
class SafetensorsImage {
 public:
  explicit SafetensorsImage(std::vector<NamedTensor> tensors, std::map<std::string, std::string> const& metadata = {})
      : tensors_{std::move(tensors)} {
    std::sort(tensors_.begin(), tensors_.end(), [](auto const& a, auto const& b) {
      return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;  // the widest first: all are aligned
    });
    header_ = detail::safetensors_header(tensors_, metadata);
  }

  std::uint64_t size() const {
    auto bytes = std::uint64_t{8} + header_.size();
    for (auto const& tensor : tensors_) bytes += tensor.bytes.size();
    return bytes;
  }

  /// Calls write(ConstBytes) with piece after piece.
  template <class Write> void write_to(Write&& write) const {
    auto const length = std::uint64_t{header_.size()};
    write(std::as_bytes(Span<std::uint64_t const>{&length, 1}));
    write(std::as_bytes(Span<char const>{header_}));
    for (auto const& tensor : tensors_) write(tensor.bytes);
  }

 private:
  std::vector<NamedTensor> tensors_;
  std::string header_;
};

/// Writes a safetensors file that is whole or absent; an older file of that name stays until the new one is whole.
///
/// throws    BadArgument as SafetensorsImage does; BadFile when it cannot be written: the old file is untouched, and
///           nothing is left beside it
inline void write_safetensors(std::filesystem::path const& path, std::vector<NamedTensor> tensors,
                              std::map<std::string, std::string> const& metadata = {}) {
  auto const image = SafetensorsImage{std::move(tensors), metadata};
  auto file        = AtomicFile{path};
  image.write_to([&](ConstBytes bytes) { file.write(bytes); });
  file.commit();
}

}  // namespace chorale
