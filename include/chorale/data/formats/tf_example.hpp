// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/formats/numbers.hpp>
#include <chorale/data/pipe.hpp>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

/// The part of protobuf's wire format that small messages need: no schema, no groups.
///
/// source  protobuf.dev/programming-guides/encoding
namespace chorale::data::proto {

/// Thrown for bytes that are not a message. A caller that knows the message rethrows it as a BadFile that names it.
struct Malformed : std::runtime_error {
  Malformed(std::uint64_t at, std::string const& what_is_wrong)
      : runtime_error{"byte " + std::to_string(at) + ": " + what_is_wrong} {}
};

enum class Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

inline char const* name_of(Wire wire) {
  switch (wire) {
    case Wire::varint: return "a varint";
    case Wire::fixed64: return "64 bits";
    case Wire::bytes: return "a length and bytes";
    case Wire::fixed32: return "32 bits";
  }
  return "unknown";
}

/// A part of a message, and its offset in the whole.
struct Part {
  ConstBytes bytes{};
  std::uint64_t offset = 0;

  std::string_view text() const { return {reinterpret_cast<char const*>(bytes.data()), bytes.size()}; }
};

/// One field of a message.
struct Field {
  std::uint32_t number = 0;
  Wire wire            = Wire::varint;
  std::uint64_t value  = 0;  // unless wire is bytes
  Part part{};               // if wire is bytes
  std::uint64_t offset = 0;  // where the field begins

  /// Returns the field. Throws Malformed unless it is of this kind.
  Field const& expect(Wire wanted, char const* what) const {
    if (wire != wanted)
      throw Malformed{offset, std::string{what} + " needs " + name_of(wanted) + ", but the field has " + name_of(wire)};
    return *this;
  }
};

/// Reads a message field by field, from untrusted bytes.
///
/// keeps   never reads beyond the message; every field takes at least one byte
/// throws  Malformed
class Reader {
 public:
  explicit Reader(Part message) : left_{message.bytes}, offset_{message.offset} {}

  bool at_end() const { return left_.empty(); }

  /// Reads the next field. False at the end of the message.
  bool next(Field& out) {
    if (left_.empty()) return false;
    out             = Field{.offset = offset_};
    auto const tag  = varint();
    auto const wire = tag & 7;
    if (tag >> 3 == 0 || tag >> 32 != 0)
      throw Malformed{out.offset, "field number " + std::to_string(tag >> 3) + ", but they go from 1 to 536870911"};
    if (wire == 3 || wire == 4 || wire > 5)
      throw Malformed{out.offset, "wire type " + std::to_string(wire) + ", but 0, 1, 2 and 5 are read"};
    out.number = static_cast<std::uint32_t>(tag >> 3);
    out.wire   = static_cast<Wire>(wire);
    switch (out.wire) {
      case Wire::varint: out.value = varint(); break;
      case Wire::fixed64: out.value = fixed<8>(); break;
      case Wire::fixed32: out.value = fixed<4>(); break;
      case Wire::bytes: out.part = bytes(varint()); break;
    }
    return true;
  }

  std::uint64_t varint() {
    auto const begin = offset_;
    auto value       = std::uint64_t{0};
    for (unsigned shift = 0; shift < 64; shift += 7) {
      auto const byte = std::to_integer<std::uint64_t>(take(1)[0]);
      if (shift == 63 && byte > 1) break;
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw Malformed{begin, "a varint of more than 64 bits"};
  }

  template <unsigned bytes> std::uint64_t fixed() {
    auto const from = take(bytes);
    auto value      = std::uint64_t{0};
    for (auto i = bytes; i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(from[i]);
    return value;
  }

 private:
  Part bytes(std::uint64_t n) {
    auto const begin = offset_;
    return {take(n), begin};
  }
  ConstBytes take(std::uint64_t n) {
    if (n > left_.size())
      throw Malformed{
          offset_, std::to_string(n) + " bytes are needed, but the message ends after " + std::to_string(left_.size())};
    auto const head = left_.first(static_cast<std::size_t>(n));
    left_           = left_.subspan(head.size());
    offset_ += n;
    return head;
  }

  ConstBytes left_;
  std::uint64_t offset_;
};

/// Appends fields to a message.
class Writer {
 public:
  std::vector<std::byte> const& bytes() const { return out_; }
  std::vector<std::byte> take() { return std::move(out_); }

  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<std::byte>(value | 0x80));
    out_.push_back(static_cast<std::byte>(value));
  }
  void fixed32(std::uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) out_.push_back(static_cast<std::byte>(value >> shift & 0xFF));
  }
  void tag(std::uint32_t number, Wire wire) { varint(std::uint64_t{number} << 3 | static_cast<unsigned>(wire)); }

  /// Appends a field of bytes, a text or another message.
  void field(std::uint32_t number, ConstBytes content) {
    tag(number, Wire::bytes);
    varint(content.size());
    out_.insert(out_.end(), content.begin(), content.end());
  }
  void field(std::uint32_t number, std::string_view text) { field(number, std::as_bytes(Span<char const>{text})); }
  void field(std::uint32_t number, Writer const& message) { field(number, ConstBytes{message.out_}); }

 private:
  std::vector<std::byte> out_;
};

}  // namespace chorale::data::proto

namespace chorale::data {

/// One feature of an Example: nothing, byte strings, floats or integers.
using Feature = std::variant<std::monostate, std::vector<std::string>, std::vector<float>, std::vector<std::int64_t>>;

namespace detail {

inline constexpr char const* feature_kinds[] = {"nothing", "byte strings", "floats", "integers"};

/// Reads a list of a Feature: field 1, repeated; numbers may be packed or not.
inline void read_list(proto::Part message, std::vector<std::string>& to) {
  auto reader = proto::Reader{message};
  for (proto::Field field; reader.next(field);)
    if (field.number == 1) to.emplace_back(field.expect(proto::Wire::bytes, "a byte string").part.text());
}
inline void read_list(proto::Part message, std::vector<float>& to) {
  auto const add = [&](std::uint64_t bits) { to.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits))); };
  auto reader    = proto::Reader{message};
  for (proto::Field field; reader.next(field);) {
    if (field.number != 1) continue;
    if (field.wire != proto::Wire::bytes) add(field.expect(proto::Wire::fixed32, "a float").value);
    else
      for (auto packed = proto::Reader{field.part}; !packed.at_end();) add(packed.fixed<4>());
  }
}
inline void read_list(proto::Part message, std::vector<std::int64_t>& to) {
  auto const add = [&](std::uint64_t bits) { to.push_back(static_cast<std::int64_t>(bits)); };
  auto reader    = proto::Reader{message};
  for (proto::Field field; reader.next(field);) {
    if (field.number != 1) continue;
    if (field.wire != proto::Wire::bytes) add(field.expect(proto::Wire::varint, "an integer").value);
    else
      for (auto packed = proto::Reader{field.part}; !packed.at_end();) add(packed.varint());
  }
}

/// Merges a Feature message into the parts of it read before: of two kinds the last one wins.
inline void merge_feature(proto::Part message, Feature& to) {
  auto const add = [&]<class T>(std::vector<T>*, proto::Field const& field) {
    if (!std::holds_alternative<std::vector<T>>(to)) to = std::vector<T>{};
    read_list(field.expect(proto::Wire::bytes, "a list").part, std::get<std::vector<T>>(to));
  };
  auto reader = proto::Reader{message};
  for (proto::Field field; reader.next(field);) {
    if (field.number == 1) add(static_cast<std::vector<std::string>*>(nullptr), field);
    if (field.number == 2) add(static_cast<std::vector<float>*>(nullptr), field);
    if (field.number == 3) add(static_cast<std::vector<std::int64_t>*>(nullptr), field);
  }
}

/// Calls entry(name, reader of the entry) for each feature of an Example.
template <class Entry> void for_each_feature(ConstBytes bytes, Entry entry) {
  auto example = proto::Reader{{bytes}};
  for (proto::Field of_example; example.next(of_example);) {
    if (of_example.number != 1) continue;
    auto features = proto::Reader{of_example.expect(proto::Wire::bytes, "Example.features").part};
    for (proto::Field of_features; features.next(of_features);) {
      if (of_features.number != 1) continue;
      auto const pair = of_features.expect(proto::Wire::bytes, "Features.feature").part;
      auto name       = std::string_view{};
      auto in_pair    = proto::Reader{pair};
      for (proto::Field field; in_pair.next(field);)
        if (field.number == 1) name = field.expect(proto::Wire::bytes, "the name of a feature").part.text();
      entry(name, proto::Reader{pair});
    }
  }
}

/// Reads the Feature of one entry.
inline Feature read_feature(proto::Reader pair) {
  auto feature = Feature{};
  for (proto::Field field; pair.next(field);)
    if (field.number == 2) merge_feature(field.expect(proto::Wire::bytes, "a Feature").part, feature);
  return feature;
}

inline void write_feature(Feature const& feature, proto::Writer& to) {
  auto list = proto::Writer{}, values = proto::Writer{};
  if (auto const* strings = std::get_if<std::vector<std::string>>(&feature))
    for (auto const& s : *strings) list.field(1, std::string_view{s});
  if (auto const* floats = std::get_if<std::vector<float>>(&feature))
    for (auto const f : *floats) values.fixed32(std::bit_cast<std::uint32_t>(f));
  if (auto const* integers = std::get_if<std::vector<std::int64_t>>(&feature))
    for (auto const i : *integers) values.varint(static_cast<std::uint64_t>(i));
  if (!values.bytes().empty()) list.field(1, values);  // packed
  if (feature.index() > 0) to.field(static_cast<std::uint32_t>(feature.index()), list);
}

}  // namespace detail

/// A tf.train.Example: named features.
///
///   auto example = data::Example{};
///   example.features["label"] = std::vector<std::int64_t>{7};
///   to.write(example.bytes());                            // to is a TfRecordWriter
///
/// order   bytes() writes names in order, lists packed: equal examples have equal bytes
/// source  tensorflow/core/example/{example,feature}.proto
struct Example {
  std::map<std::string, Feature, std::less<>> features;

  /// Parses an Example. Unknown fields are skipped.
  ///
  /// where   begins the message of an error: the record
  /// cost    memory in proportion to the bytes of the record
  /// throws  BadFile with the byte of the record; also when two features have one name: protobuf would take the
  ///         last one
  static Example parse(ConstBytes bytes, std::string const& where = "an Example") {
    try {
      auto example = Example{};
      detail::for_each_feature(bytes, [&](std::string_view name, proto::Reader pair) {
        if (!example.features.try_emplace(std::string{name}, detail::read_feature(pair)).second)
          throw BadFile{where + ": two features are called " + in_quotes(name) + ".", "a record that has each once."};
      });
      return example;
    } catch (proto::Malformed const& why) {
      throw BadFile{where + ": " + why.what() + ".", "a record that is a tf.train.Example."};
    }
  }

  std::vector<std::byte> bytes() const {
    auto all = proto::Writer{}, example = proto::Writer{};
    for (auto const& [name, feature] : features) {
      auto pair = proto::Writer{}, value = proto::Writer{};
      detail::write_feature(feature, value);
      pair.field(1, std::string_view{name});
      pair.field(2, value);
      all.field(1, pair);
    }
    example.field(1, all);
    return example.take();
  }

  /// The list of a feature, of std::string, float or std::int64_t; null when no feature has that name, or it has no
  /// list of any kind.
  ///
  /// throws  BadFile when it is of another kind
  template <class T> std::vector<T> const* find(std::string_view name, std::string const& where = "an Example") const& {
    auto const at = features.find(name);
    if (at == features.end() || at->second.index() == 0) return nullptr;
    if (auto const* list = std::get_if<std::vector<T>>(&at->second)) return list;
    throw BadFile{where + ": feature " + in_quotes(name) + " has " + detail::feature_kinds[at->second.index()] +
                      ", but " + detail::feature_kinds[Feature{std::vector<T>{}}.index()] + " are needed.",
                  "another type of the row that it goes to."};
  }
  template <class T> std::vector<T> const* find(std::string_view, std::string const& = "") const&& = delete;

  /// The list of a feature, as find.
  ///
  /// throws  BadFile when no feature has that name, or it is of another kind
  template <class T> std::vector<T> get(std::string_view name, std::string const& where = "an Example") && {
    return std::as_const(*this).template get<T>(name, where);
  }
  template <class T> std::vector<T> const& get(std::string_view name, std::string const& where = "an Example") const& {
    if (auto const* list = find<T>(name, where)) return *list;
    auto names = std::string{};
    for (auto const& [other, feature] : features) names.append(names.empty() ? "" : ", ") += in_quotes(other);
    if (features.contains(name))
      throw BadFile{where + ": feature " + in_quotes(name) + " has nothing, but " +
                        detail::feature_kinds[Feature{std::vector<T>{}}.index()] + " are needed.",
                    "Fields::x_if_missing or y_if_missing, or Example::find."};
    throw BadFile{where + ": no feature " + in_quotes(name) + ".",
                  "one of " + (names.empty() ? "none" : names) +
                      "; for features that records may lack Fields::x_if_missing or y_if_missing, or Example::find."};
  }

 private:
  static std::string in_quotes(std::string_view name) {  // a file may hold any bytes, and this goes to a terminal
    return '"' + printable(name.substr(0, 80)) + '"';
  }
};

/// A function of map that makes a row of two features of each record.
///
///   auto rows = data::tfrecords(files).map<std::uint8_t, int>(data::Fields{.x = "image", .y = "label"});
///
/// X, Y    bytes take the one byte string of a feature, floating-point numbers its floats, other integers its integers
/// width, targets    numbers that a row must have, unless 0
/// x_if_missing, y_if_missing    so many of this number, else one, in place of a feature that a record lacks; none: an
///         error. For lists that may be empty, write a map that calls Example::find
/// throws  BadFile with the number of the file and of the record in it
struct Fields {
  std::string x, y{};  // names; empty: no numbers
  std::size_t width = 0, targets = 0;
  std::optional<double> x_if_missing{}, y_if_missing{};

  template <class X, class Y>
  void operator()(Sample<std::byte, std::uint64_t> const& row, std::vector<X>& to_x, std::vector<Y>& to_y) const {
    auto where = std::string{"an Example"};
    if (row.y.size() == 2)
      where = "file " + std::to_string(row.y[0]) + ", record " + std::to_string(row.y[1]) + ": an Example";
    auto const example = Example::parse(row.x, where);
    fill(example, where, x, width, x_if_missing, to_x);
    fill(example, where, y, targets, y_if_missing, to_y);
  }

 private:
  template <class T>
  static void fill(Example const& example, std::string const& where, std::string const& name, std::size_t count,
                   std::optional<double> if_missing, std::vector<T>& to) {
    using Stored = std::conditional_t<sizeof(T) == 1, std::string,
                                      std::conditional_t<std::floating_point<T>, float, std::int64_t>>;
    to.clear();
    if (name.empty()) return;
    if constexpr (std::is_arithmetic_v<T>)
      if (if_missing && example.find<Stored>(name, where) == nullptr) {
        CHORALE_EXPECTS(detail::fits_in<T>(*if_missing), "data::Fields: the number for a missing feature " + name +
                                                             " " + detail::why_not<T>(*if_missing));
        return to.assign(count == 0 ? 1 : count, static_cast<T>(*if_missing));
      }
    auto const& stored = example.get<Stored>(name, where);
    auto const fail    = [&](std::string const& what) {
      throw BadFile{where + ": feature \"" + name + "\" " + what + ".", "another feature, or other records."};
    };
    if constexpr (sizeof(T) == 1) {
      if (stored.size() != 1) fail("has " + std::to_string(stored.size()) + " byte strings, but 1 is needed");
      to.resize(stored[0].size());
      std::ranges::copy(std::as_bytes(Span<char const>{stored[0]}), std::as_writable_bytes(Span<T>{to}).begin());
    } else if constexpr (std::floating_point<T>) {
      to.assign(stored.begin(), stored.end());
    } else {
      for (auto const i : stored) {
        if (!std::in_range<T>(i))
          fail("has " + std::to_string(i) + ", which an integer of " + std::to_string(8 * sizeof(T)) +
               " bits cannot hold");
        to.push_back(static_cast<T>(i));
      }
    }
    if (count != 0 && to.size() != count)
      fail("has " + std::to_string(to.size()) + " numbers, but " + std::to_string(count) + " are needed");
  }
};

}  // namespace chorale::data
