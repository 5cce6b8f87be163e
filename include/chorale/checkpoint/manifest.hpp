// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/crc32c.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// Reads the JSON of a manifest from front to back: the caller names what must come next. No recursion, and nothing is
/// allocated but the texts that are asked for.
///
/// throws  BadFile with the byte where the text differs; from the constructor when the text is too long, or its
///         last line is not the checksum of all lines before it
class ManifestText {
 public:
  ManifestText(std::string_view all, std::string where, std::size_t most) : where_{std::move(where)} {
    if (all.size() > most)
      fail("it has " + std::to_string(all.size()) + " bytes, above the limit of " + std::to_string(most));
    auto const last = seal(0).size();
    if (all.size() < last) fail("it ends after " + std::to_string(all.size()) + " bytes");
    all_           = all.substr(0, all.size() - last);
    auto const crc = crc32c(std::as_bytes(Span<char const>{all_}));
    if (all.substr(all_.size()) != seal(crc))
      fail("bytes 0 to " + std::to_string(all_.size()) + " have the CRC-32C " + hex(crc) +
           ", but the last line says something else");
  }

  void expect(char wanted) {
    if (!next_is(wanted)) fail(std::string{"'"} + wanted + "' is needed");
    ++at_;
  }

  /// Skips white space; true if `wanted` comes next.
  bool next_is(char wanted) {
    while (at_ < all_.size() && std::string_view{" \n\t\r"}.find(all_[at_]) != std::string_view::npos) ++at_;
    return at_ < all_.size() && all_[at_] == wanted;
  }

  void key(std::string_view name) {
    auto const before = at_;
    if (text(64) != name) {
      at_ = before;
      fail("the key \"" + std::string{name} + "\" is needed");
    }
    expect(':');
  }

  std::string text(std::size_t most) {
    expect('"');
    auto out = std::string{};
    for (; at_ < all_.size() && all_[at_] != '"'; ++at_) {
      if (all_[at_] == '\\' && (++at_ == all_.size() || (all_[at_] != '"' && all_[at_] != '\\')))
        fail("an escape that no manifest has");
      if (!is_printable(all_.substr(at_, 1))) fail("a text has a byte that is not printable ASCII");
      if (out.size() == most) fail("a text has more than " + std::to_string(most) + " bytes");
      out += all_[at_];
    }
    if (at_ == all_.size()) fail("a text does not end");
    ++at_;
    return out;
  }

  /// Calls read_one() for each of [a, b, ...].
  template <class ReadOne> void list(ReadOne&& read_one) {
    expect('[');
    if (!next_is(']')) {
      for (read_one(); next_is(','); read_one()) expect(',');
    }
    expect(']');
  }

  /// Reads a whole number below 2^64, without a sign and without leading zeros.
  std::uint64_t number() {
    next_is('0');  // steps over white space
    auto const begin = at_;
    auto n           = std::uint64_t{0};
    for (; at_ < all_.size() && all_[at_] >= '0' && all_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, static_cast<unsigned>(all_[at_] - '0'), &n))
        fail("a number is not below 2^64");
    if (at_ == begin || (all_[begin] == '0' && at_ != begin + 1)) fail("a whole number is needed");
    return n;
  }

  std::uint32_t checksum() {
    auto const digits = text(8);
    auto n            = std::uint32_t{0};
    for (char const c : digits) n = n << 4 | static_cast<std::uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    if (hex(n) != digits) fail("a checksum has eight digits, 0 to 9 and a to f");
    return n;
  }

  /// Checks that the last value has been read, and that only the comma before the checksum follows.
  void end() {
    expect(',');
    if (next_is('"') || at_ != all_.size()) fail("something follows what should be the last value");
  }

  [[noreturn]] void fail(std::string const& what) const {
    throw BadFile{where_ + ": byte " + std::to_string(at_) + ": " + what + ".",
                  "another checkpoint: this one is cut off, was changed, or is of another version."};
  }

  /// Returns a text with the line of its checksum added.
  static std::string sealed(std::string text) {
    auto const crc = crc32c(std::as_bytes(Span<char const>{text}));
    return std::move(text) + seal(crc);
  }

  static std::string hex(std::uint32_t n) {
    auto digits = std::string(8, '0');
    for (auto i = digits.rbegin(); i != digits.rend(); ++i, n >>= 4) *i = "0123456789abcdef"[n & 15U];
    return digits;
  }

  static bool is_printable(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  }

 private:
  static std::string seal(std::uint32_t crc) { return "  \"crc32c\": \"" + hex(crc) + "\"\n}\n"; }

  std::string where_;
  std::string_view all_;  // all but the line of the checksum
  std::size_t at_ = 0;
};

/// Sections of a checkpoint: each is one file, or several files when several ranks wrote.
enum class Section { variables, optimizer, state };

inline constexpr auto section_names = std::array<std::string_view, 3>{"variables", "optimizer", "state"};

constexpr std::string_view name_of(Section section) { return section_names[static_cast<std::size_t>(section)]; }

/// Part i of n of a section, i from 0 on.
struct FilePart {
  std::uint64_t i = 0, n = 1;

  friend bool operator==(FilePart, FilePart) = default;
};

/// One file of a checkpoint: its section and part, its size, and the CRC-32C of each block.
struct ManifestFile {
  Section section = Section::variables;
  FilePart part{};
  std::uint64_t size = 0;
  std::vector<std::uint32_t> crc32c{};  // of block after block; the last one may be shorter

  /// "variables.safetensors", or "variables-00002-of-00004.safetensors": nothing else is ever opened.
  std::string name() const {
    auto const five = [](std::uint64_t n) {
      return std::string(n < 10'000 ? 5 - std::to_string(n).size() : 0, '0') + std::to_string(n);
    };
    return std::string{name_of(section)} + (part.n == 1 ? "" : "-" + five(part.i + 1) + "-of-" + five(part.n)) +
           ".safetensors";
  }

  friend bool operator==(ManifestFile const&, ManifestFile const&) = default;
};

/// Manifest of a checkpoint, written last: the position in training, and the size and checksums of each file.
///
/// batch       the next one of `epoch`: with the seed that is all that a dataset needs to continue
/// strategy    as a text for people; a checkpoint of another strategy or world loads all the same
/// plan        hash of the model's plan, or any text; compared when the checkpoint is loaded
/// job         the job that wrote it; see CheckpointOptions::job
/// source      JSON with exactly these keys in this order, then the CRC-32C of everything before it
struct Manifest {
  std::uint64_t step = 0, epoch = 0, batch = 0, seed = 0;
  std::uint64_t world = 1;
  std::string strategy{}, plan{}, job{};
  std::uint64_t block = default_block;  // bytes under one checksum
  std::vector<ManifestFile> files{};

  static constexpr auto file_name              = "manifest.json";
  static constexpr std::uint64_t default_block = 4U << 20, max_block = 1U << 30;
  static constexpr std::size_t max_bytes = 64U << 20, max_files = 65'536, max_text = 4096;

  /// throws  BadArgument when a text is too long or not printable ASCII, or a file occurs twice or is missing
  std::string write() const {
    auto text       = std::string{"{\n"};
    auto const line = [&](char const* key, std::string const& value) {
      text.append("  \"") += std::string{key} + "\": " + value + ",\n";
    };
    auto const number = [&](char const* key, std::uint64_t value) { line(key, std::to_string(value)); };
    line("format", in_quotes(format));
    number("step", step);
    number("epoch", epoch);
    number("batch", batch);
    number("seed", seed);
    number("world", world);
    line("strategy", in_quotes(strategy));
    line("plan", in_quotes(plan));
    line("job", in_quotes(job));
    number("block", block);
    text += "  \"files\": [";
    for (std::size_t i = 0; i < files.size(); ++i) {
      text += std::string{i == 0 ? "" : ","} + "\n    {\"name\": " + in_quotes(files[i].name()) +
              ", \"size\": " + std::to_string(files[i].size) + ", \"crc32c\": [";
      for (std::size_t k = 0; k < files[i].crc32c.size(); ++k)
        text.append(k == 0 ? "\"" : ", \"") += ManifestText::hex(files[i].crc32c[k]) + "\"";
      text += "]}";
    }
    text += "\n  ],\n";
    if (auto const wrong = complaint(); !wrong.empty()) throw BadArgument{"a manifest " + wrong + "."};
    return ManifestText::sealed(std::move(text));
  }

  /// where     for messages: the path of the file
  /// throws    BadFile with the byte, when the text differs from what write() writes in more than white space
  static Manifest parse(std::string_view all, std::string const& where) {
    auto text = ManifestText{all, where, max_bytes};
    auto m    = Manifest{};
    text.expect('{');
    text.key("format");
    if (text.text(max_text) != format) text.fail("the format is not \"" + std::string{format} + "\"");
    auto const number = [&](char const* key) {
      text.expect(',');
      text.key(key);
      return text.number();
    };
    auto const words = [&](char const* key) {
      text.expect(',');
      text.key(key);
      return text.text(max_text);
    };
    m.step     = number("step");
    m.epoch    = number("epoch");
    m.batch    = number("batch");
    m.seed     = number("seed");
    m.world    = number("world");
    m.strategy = words("strategy");
    m.plan     = words("plan");
    m.job      = words("job");
    m.block    = number("block");
    text.expect(',');
    text.key("files");
    text.list([&] { m.files.push_back(parse_file(text)); });
    text.end();
    if (auto const wrong = m.complaint(); !wrong.empty()) text.fail("it " + wrong);
    return m;
  }

  friend bool operator==(Manifest const&, Manifest const&) = default;

 private:
  static constexpr std::string_view format = "chorale checkpoint 1";

  static std::string in_quotes(std::string_view text) {
    CHORALE_EXPECTS(text.size() <= max_text && ManifestText::is_printable(text),
                    "a text of " + std::to_string(text.size()) +
                        " bytes is too long for a manifest, or has bytes that are not printable ASCII");
    auto out = std::string{'"'};
    for (char const c : text) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    return out + '"';
  }

  static ManifestFile parse_file(ManifestText& text) {
    text.expect('{');
    text.key("name");
    auto const name = text.text(200);
    auto file       = named(name);
    if (file.name() != name) text.fail("\"" + name + "\" is no name of a part of a checkpoint");
    text.expect(',');
    text.key("size");
    file.size = text.number();
    text.expect(',');
    text.key("crc32c");
    text.list([&] { file.crc32c.push_back(text.checksum()); });
    text.expect('}');
    return file;
  }

  /// Guesses section and part from a name; the caller checks that name() gives the same name.
  static ManifestFile named(std::string_view name) {
    auto file = ManifestFile{};
    for (std::size_t i = 0; i < section_names.size(); ++i)
      if (name.starts_with(section_names[i])) file.section = static_cast<Section>(i);
    auto const digits = [](std::string_view text) {
      auto n = std::uint64_t{0};
      for (char const c : text)
        n = c >= '0' && c <= '9' && n < 1'000'000 ? 10 * n + static_cast<std::uint64_t>(c - '0') : 0;
      return n;
    };
    auto const rest = name.substr(std::min(name.size(), name_of(file.section).size()));
    auto const of   = rest.find("-of-");
    if (of == rest.npos || rest.empty()) return file;
    file.part = {digits(rest.substr(1, of - 1)) - 1, digits(rest.substr(of + 4, rest.find('.', of) - of - 4))};
    return file;
  }

  /// Describes what is wrong with the manifest, as the rest of a sentence; empty when nothing is.
  std::string complaint() const {
    if (world == 0) return "has a world of 0 ranks";
    if (block == 0 || block > max_block)
      return "has blocks of " + std::to_string(block) + " bytes, but they may have 1 to " + std::to_string(max_block);
    if (files.size() > max_files) return "has " + std::to_string(files.size()) + " files, above the limit";
    auto seen  = std::set<std::pair<Section, std::uint64_t>>{};
    auto parts = std::array<std::uint64_t, section_names.size()>{}, found = parts;
    for (auto const& file : files) {
      auto const section = static_cast<std::size_t>(file.section);
      if (file.crc32c.size() != file.size / block + (file.size % block != 0))
        return "has " + std::to_string(file.crc32c.size()) + " checksums for the " + std::to_string(file.size) +
               " bytes of " + file.name() + " in blocks of " + std::to_string(block);
      if (file.part.i >= file.part.n || file.part.n > max_files || !seen.insert({file.section, file.part.i}).second)
        return "has " + file.name() + " twice, or it cannot be";
      if (found[section] != 0 && parts[section] != file.part.n)
        return "has " + file.name() + " beside parts of " + std::to_string(parts[section]);
      parts[section] = file.part.n;
      ++found[section];
    }
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (found[i] != parts[i])
        return "has " + std::to_string(found[i]) + " of the " + std::to_string(parts[i]) + " parts of " +
               std::string{section_names[i]};
    return {};
  }
};

}  // namespace chorale
