// SPDX-License-Identifier: Apache-2.0
//
// A strict reader of event files, written from the formats and not from our writer: whatever is unknown, torn, doubled
// or out of order is an error.
#pragma once

#include <chorale/core/crc32c.hpp>

#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace observe {

struct Bad : std::runtime_error {
  using runtime_error::runtime_error;
};

class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : left_{bytes} {}

  bool at_end() const { return left_.empty(); }
  std::string_view take(std::uint64_t n) {
    if (n > left_.size()) throw Bad{"the end comes too early"};
    auto const head = left_.substr(0, n);
    left_.remove_prefix(n);
    return head;
  }
  template <class T> T number() {
    auto value = T{0};
    auto i     = 0;
    for (auto const c : take(sizeof(T)))
      value |= static_cast<T>(static_cast<T>(static_cast<unsigned char>(c)) << 8 * i++);
    return value;
  }
  std::uint64_t varint() {
    auto value = std::uint64_t{0};
    for (int shift = 0; shift < 64; shift += 7) {
      auto const byte = static_cast<unsigned char>(take(1)[0]);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    throw Bad{"a varint has no end"};
  }

 private:
  std::string_view left_;
};

/// The fields of a message, by their numbers. Only the one in `repeated` may come more than once.
struct Message {
  struct Field {
    unsigned wire;
    std::uint64_t value;     // of wire 0, 1 and 5
    std::string_view bytes;  // of wire 2
  };
  std::multimap<unsigned, Field> fields;

  explicit Message(std::string_view bytes, unsigned repeated = 0) {
    for (auto at = Cursor{bytes}; !at.at_end();) {
      auto const key    = at.varint();
      auto const number = static_cast<unsigned>(key >> 3);
      auto field        = Field{static_cast<unsigned>(key & 7), 0, {}};
      if (field.wire == 0) field.value = at.varint();
      else if (field.wire == 1) field.value = at.number<std::uint64_t>();
      else if (field.wire == 5) field.value = at.number<std::uint32_t>();
      else if (field.wire == 2) field.bytes = at.take(at.varint());
      else throw Bad{"there is no such wire type"};
      if (number != repeated && fields.contains(number)) throw Bad{"field " + std::to_string(number) + " comes twice"};
      fields.emplace(number, field);
    }
  }

  /// Takes a field out; what is left in the end is unknown.
  std::optional<Field> take(unsigned number, unsigned wire) {
    auto const found = fields.find(number);
    if (found == fields.end()) return {};
    if (found->second.wire != wire) throw Bad{"field " + std::to_string(number) + " has another wire type"};
    auto const field = found->second;
    fields.erase(found);
    return field;
  }
  Field need(unsigned number, unsigned wire) {
    if (auto const field = take(number, wire)) return *field;
    throw Bad{"field " + std::to_string(number) + " is missing"};
  }
  double need_double(unsigned number) { return std::bit_cast<double>(need(number, 1).value); }
  std::vector<double> need_doubles(unsigned number) {
    auto values = std::vector<double>{};
    for (auto at = Cursor{need(number, 2).bytes}; !at.at_end();)
      values.push_back(std::bit_cast<double>(at.number<std::uint64_t>()));
    return values;
  }
  void done() const {
    if (!fields.empty()) throw Bad{"field " + std::to_string(fields.begin()->first) + " is unknown"};
  }
};

struct Histogram {
  double min, max, num, sum, sum_squares;
  std::vector<double> limits, buckets;
};

struct Image {
  std::uint64_t height, width, channels;
  std::string png;
};

struct Value {
  std::string tag, plugin;
  std::optional<float> scalar;
  std::optional<Histogram> histogram;
  std::optional<Image> image;
};

struct TensorBoardEvent {
  double wall_time   = 0;
  std::uint64_t step = 0;
  std::string version;
  std::uint64_t session = 0;  // 1: START
  std::vector<Value> values;
};

inline Value value_of(std::string_view bytes) {
  auto message = Message{bytes};
  auto value   = Value{.tag = std::string{message.need(1, 2).bytes}};
  if (auto const scalar = message.take(2, 5))
    value.scalar = std::bit_cast<float>(static_cast<std::uint32_t>(scalar->value));
  if (auto const field = message.take(4, 2)) {
    auto image  = Message{field->bytes};
    value.image = Image{image.need(1, 0).value, image.need(2, 0).value, image.need(3, 0).value,
                        std::string{image.need(4, 2).bytes}};
    image.done();
  }
  if (auto const field = message.take(5, 2)) {
    auto histogram  = Message{field->bytes};
    value.histogram = Histogram{histogram.need_double(1), histogram.need_double(2), histogram.need_double(3),
                                histogram.need_double(4), histogram.need_double(5), histogram.need_doubles(6),
                                histogram.need_doubles(7)};
    histogram.done();
  }
  if (auto const field = message.take(8, 2)) {  // version 2 of a scalar: a tensor without dimensions
    auto tensor = Message{field->bytes};
    if (tensor.need(1, 0).value != 1 || !tensor.need(2, 2).bytes.empty()) throw Bad{"not a single float"};
    value.scalar = std::bit_cast<float>(Cursor{tensor.need(5, 2).bytes}.number<std::uint32_t>());
    tensor.done();
  }
  if (auto const field = message.take(9, 2)) {
    auto metadata = Message{field->bytes};
    auto plugin   = Message{metadata.need(1, 2).bytes};
    value.plugin  = plugin.need(1, 2).bytes;
    metadata.take(4, 0);  // data_class
    metadata.done();
    plugin.done();
  }
  message.done();
  return value;
}

inline TensorBoardEvent event_of(std::string_view bytes) {
  auto message = Message{bytes};
  auto event   = TensorBoardEvent{.wall_time = message.need_double(1)};
  if (auto const step = message.take(2, 0)) event.step = step->value;
  if (auto const version = message.take(3, 2)) event.version = version->bytes;
  if (auto const session = message.take(7, 2)) event.session = Message{session->bytes}.need(1, 0).value;
  if (auto const summary = message.take(5, 2))
    for (auto [_, field] : Message{summary->bytes, 1}.fields) event.values.push_back(value_of(field.bytes));
  message.done();
  return event;
}

/// All events of a file: whole frames, right checksums, the version first and only there, no wall time goes back.
inline std::vector<TensorBoardEvent> events_of(std::string_view file) {
  auto events        = std::vector<TensorBoardEvent>{};
  auto const checked = [](std::string_view bytes, std::uint32_t masked) {
    auto const crc = chorale::crc32c(std::as_bytes(std::span{bytes}));
    if ((crc >> 15 | crc << 17) + 0xa282ead8 != masked) throw Bad{"a checksum is wrong"};
    return bytes;
  };
  for (auto at = Cursor{file}; !at.at_end();) {
    auto const length = at.take(8);  // before its checksum: arguments have no order
    checked(length, at.number<std::uint32_t>());
    auto const bytes = at.take(Cursor{length}.number<std::uint64_t>());
    events.push_back(event_of(checked(bytes, at.number<std::uint32_t>())));
    if ((events.size() == 1) != (events.back().version == "brain.Event:2")) throw Bad{"the version is not first"};
    if (events.size() > 1 && events.back().wall_time < events[events.size() - 2].wall_time)
      throw Bad{"the wall time goes back"};
  }
  return events;
}

}  // namespace observe
