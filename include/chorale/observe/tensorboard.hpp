// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/crc32c.hpp>
#include <chorale/core/host.hpp>
#include <chorale/core/types.hpp>
#include <chorale/observe/event.hpp>
#include <chorale/observe/run_file.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// Writes a message in protobuf's wire format, field by field, as far as event files need it.
///
/// field   its number, 1 to 15; fields of value 0 are written too, which readers accept
/// source  protobuf.dev/programming-guides/encoding
class ProtoWriter {
 public:
  std::string const& bytes() const { return out_; }

  ProtoWriter& varint(unsigned field, std::uint64_t value) {
    key(field, 0);
    plain(value);
    return *this;
  }
  ProtoWriter& number(unsigned field, double value) {
    key(field, 1);
    little_endian(out_, std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  ProtoWriter& number(unsigned field, float value) {
    key(field, 5);
    little_endian(out_, std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  ProtoWriter& text(unsigned field, std::string_view value) {
    key(field, 2);
    plain(value.size());
    out_ += value;
    return *this;
  }
  ProtoWriter& message(unsigned field, ProtoWriter const& value) { return text(field, value.out_); }

  /// Appends a "packed" field: numbers without a key for each.
  ProtoWriter& packed(unsigned field, auto const& values) {
    auto content = std::string{};
    for (double const value : values) little_endian(content, std::bit_cast<std::uint64_t>(value));
    return text(field, content);
  }

  /// Appends the bytes of a number, the lowest first.
  template <class T> static void little_endian(std::string& out, T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> 8 * i & 0xFF);
  }

 private:
  void key(unsigned field, unsigned wire) { out_ += static_cast<char>(field << 3 | wire); }
  void plain(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }

  std::string out_;
};

/// A picture as the bytes of a PNG file.
struct PngImage {
  int height, width, channels;  // 1 grey, 3 RGB, 4 RGBA
  ConstBytes png;
};

/// Options of a TensorBoardRun.
struct TensorBoardRunOptions {
  std::uint64_t first_step = 0;  // of a resumed run: the first step that it will write
  WallClock clock          = wall_time;
  std::chrono::seconds flush_every{10};  // and at flush()
};

/// A sink that writes curves, histograms and pictures to a folder, which is one run in TensorBoard. Only the chief has
/// one. The callback TensorBoard has two: see trainer/loggers.hpp.
///
///   auto curves = TensorBoardRun{"run/train"};           // one run for each folder: train, validation, another seed
///   curves.take({.step = step, .values = metrics});      // several curves in one event
///   curves.histogram("dense/kernel", step, values);
///
/// keeps   wall times never decrease, also over restarts, whatever the clock does. Every start marks its first step,
///         so that TensorBoard drops what an earlier start wrote from that step on. After a crash the file may end
///         in a part of an event, which readers take for one that is not written yet
/// throws  BadFile when the file cannot be written
/// source  tensorboard/compat/proto/event.proto and summary.proto; TFRecord frames; values as `simple_value`, `histo`
///         and `image`, which every version of TensorBoard reads
class TensorBoardRun {
 public:
  explicit TensorBoardRun(std::filesystem::path const& folder, TensorBoardRunOptions options = {})
      : options_{std::move(options)}, before_{newest(folder)}, wall_{std::max(before_.wall, options_.clock())},
        file_{folder / name(), RunFile::Open::fresh} {
    frame(event().text(3, "brain.Event:2"));
    frame(event().varint(2, options_.first_step).message(7, ProtoWriter{}.varint(1, start)));
    flush();
  }
  ~TensorBoardRun() {
    try {
      flush();
    } catch (...) {  // a destructor does not throw: flush() reports errors
    }
  }
  TensorBoardRun(TensorBoardRun const&)            = delete;
  TensorBoardRun& operator=(TensorBoardRun const&) = delete;

  void take(Scalars const& scalars) {
    auto summary = ProtoWriter{};
    for (auto const& [name, value] : scalars.values)
      summary.message(1, ProtoWriter{}.text(1, name).number(2, static_cast<float>(value)));
    tell(scalars.step, summary);
  }

  /// Writes a histogram of values, in 30 bins of equal width; values that are not finite are left out.
  void histogram(std::string_view name, std::uint64_t step, Span<float const> values) {
    constexpr std::size_t bins = 30;
    auto low = 0.0, high = 0.0, sum = 0.0, squares = 0.0, count = 0.0;
    for (double const x : values) {
      if (!std::isfinite(x)) continue;
      low  = count == 0 ? x : std::min(low, x);
      high = count == 0 ? x : std::max(high, x);
      sum += x;
      squares += x * x;
      ++count;
    }
    auto limits  = std::vector<double>(low < high ? bins : 1, high);  // right edges; the last is exactly `high`
    auto buckets = std::vector<double>(limits.size());
    for (std::size_t i = 0; i + 1 < limits.size(); ++i)
      limits[i] = low + (high - low) * static_cast<double>(i + 1) / static_cast<double>(bins);
    for (double const x : values)
      if (std::isfinite(x)) ++buckets[bin_of(x, low, high, buckets.size())];
    tell(step, ProtoWriter{}.message(1, ProtoWriter{}.text(1, name).message(5, ProtoWriter{}
                                                                                   .number(1, low)
                                                                                   .number(2, high)
                                                                                   .number(3, count)
                                                                                   .number(4, sum)
                                                                                   .number(5, squares)
                                                                                   .packed(6, limits)
                                                                                   .packed(7, buckets))));
  }

  /// Writes a picture, its bytes unchanged.
  ///
  /// throws  BadArgument when the bytes are not a PNG file, or the size or the number of channels is not valid
  void image(std::string_view name, std::uint64_t step, PngImage const& image) {
    constexpr auto magic = std::string_view{"\x89PNG\r\n\x1a\n"};
    auto const bytes     = std::string_view{reinterpret_cast<char const*>(image.png.data()), image.png.size()};
    CHORALE_EXPECTS(bytes.starts_with(magic),
                    "image " + std::string{name} + ": its " + std::to_string(bytes.size()) + " bytes are no PNG");
    CHORALE_EXPECTS(
        image.height > 0 && image.width > 0 && (image.channels == 1 || image.channels == 3 || image.channels == 4),
        "image " + std::string{name} + ": cannot be " + std::to_string(image.height) + " x " +
            std::to_string(image.width) + " pixels in " + std::to_string(image.channels) + " channels");
    tell(step, ProtoWriter{}.message(
                   1, ProtoWriter{}.text(1, name).message(4, ProtoWriter{}
                                                                 .varint(1, static_cast<unsigned>(image.height))
                                                                 .varint(2, static_cast<unsigned>(image.width))
                                                                 .varint(3, static_cast<unsigned>(image.channels))
                                                                 .text(4, bytes))));
  }

  void flush() {
    flushed_ = std::chrono::steady_clock::now();
    if (!waiting_.empty()) file_.append(std::exchange(waiting_, {}));
  }

  std::filesystem::path const& file() const { return file_.path(); }

 private:
  static constexpr std::uint64_t start = 1;  // SessionLog.status
  static constexpr auto prefix         = std::string_view{"events.out.tfevents."};

  /// The state that an earlier start left in this folder.
  struct Before {
    double wall           = 0;  // of the last event
    std::uint64_t seconds = 0;  // in the name of the newest file
  };

  double now() { return wall_ = std::max(wall_, options_.clock()); }

  /// Makes a file name after those in the folder: TensorBoard reads files in the order of their names.
  std::string name() {
    static auto started = std::atomic<int>{0};  // several in one process may share a folder and a second
    auto const host     = host_name();
    auto seconds        = std::to_string(std::max(static_cast<std::uint64_t>(wall_), before_.seconds + 1));
    seconds.insert(0, 10 - std::min<std::size_t>(10, seconds.size()), '0');
    return std::string{prefix} + seconds + "." + (host.empty() ? "host" : host) + "." + std::to_string(::getpid()) +
           "." + std::to_string(started++);
  }

  static Before newest(std::filesystem::path const& folder) {
    auto code  = std::error_code{};
    auto names = std::vector<std::string>{};
    for (auto const& entry : std::filesystem::directory_iterator{folder, code})
      if (auto name = entry.path().filename().string(); name.starts_with(prefix) && entry.is_regular_file(code))
        names.push_back(std::move(name));
    if (names.empty()) return {};
    auto const& last = *std::ranges::max_element(names);
    auto seconds     = std::uint64_t{0};  // the digits after the prefix
    std::from_chars(last.data() + prefix.size(), last.data() + last.size(), seconds);
    return {last_wall_time(folder / last), seconds};
  }

  /// The largest wall time in a file; reads only the heads of its frames, as far as they are valid.
  static double last_wall_time(std::filesystem::path const& file) {
    auto from       = std::ifstream{file, std::ios::binary};
    auto wall       = 0.0;
    auto head       = std::array<char, 8 + 4 + 1 + 8>{};  // length, its checksum, the key of wall_time, wall_time
    auto code       = std::error_code{};
    auto const size = std::filesystem::file_size(file, code);
    auto at         = std::uint64_t{0};  // where a frame begins
    while (!code && from.seekg(static_cast<std::streamoff>(at)) && from.read(head.data(), head.size())) {
      auto const number = [&](std::size_t offset) {
        auto value = std::uint64_t{0};
        for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(head[offset + i]);
        return value;
      };
      auto const length = number(0);
      auto const time   = std::bit_cast<double>(number(13));
      if (length > size - at || head[12] != 9) break;
      if (std::isfinite(time)) wall = std::max(wall, time);
      at += 16 + length;
    }
    return wall;
  }

  static std::size_t bin_of(double x, double low, double high, std::size_t bins) {
    if (bins == 1) return 0;
    return std::min(bins - 1, static_cast<std::size_t>((x - low) / (high - low) * static_cast<double>(bins)));
  }

  ProtoWriter event() {
    auto event = ProtoWriter{};
    event.number(1, now());
    return event;
  }

  void tell(std::uint64_t step, ProtoWriter const& summary) {
    frame(event().varint(2, step).message(5, summary));
    if (waiting_.size() > (1 << 20) || std::chrono::steady_clock::now() - flushed_ >= options_.flush_every) flush();
  }

  /// Appends a frame: length · its checksum · the event · its checksum
  void frame(ProtoWriter const& event) {
    auto length = std::string{};
    ProtoWriter::little_endian(length, std::uint64_t{event.bytes().size()});
    for (auto const part : {std::string_view{length}, std::string_view{event.bytes()}}) {
      auto const crc = crc32c(std::as_bytes(Span<char const>{part}));
      waiting_ += part;
      ProtoWriter::little_endian(waiting_, (crc >> 15 | crc << 17) + 0xA282EAD8U);  // "masked": TFRecord's
    }
  }

  TensorBoardRunOptions options_;
  Before before_;
  double wall_;  // of the last event
  RunFile file_;
  std::string waiting_;
  std::chrono::steady_clock::time_point flushed_{};
};

}  // namespace chorale
