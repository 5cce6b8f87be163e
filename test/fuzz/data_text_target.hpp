// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/memory_file.hpp"
#include "test/fuzz/property.hpp"

#include <chorale/data/formats/files.hpp>
#include <chorale/data/text/read_text.hpp>
#include <chorale/data/text/tokenizer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::test {

/// The lines of a text that is not packed.
inline std::vector<std::string> plain_lines(std::string_view text) {
  auto lines = std::vector<std::string>{};
  while (!text.empty()) {
    auto const end = std::min(text.find('\n'), text.size());
    auto line      = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// Any bytes as a text file, which may be packed: its lines, the whole, and its characters as a vocabulary.
inline void fuzz_data_text(ConstBytes in) {
  static auto const memory = MemoryFile{};
  constexpr auto most_line = std::size_t{1} << 10, most = std::size_t{1} << 20;
  auto const text   = std::string{reinterpret_cast<char const*>(in.data()), in.size()};
  auto const packed = text.starts_with("\x1f\x8b");
  auto const path   = memory.holding(in);
  auto lines        = std::vector<std::string>{};
  auto complained   = false;
  try {
    auto line   = Sample<char, std::uint64_t>{};
    auto stream = data::TextFile{path, 7, most_line}.stream(0);
    while (stream.next(line)) {
      must(line.x.size() <= most_line, "a line is longer than the cap");
      must(line.y.size() == 2 && line.y[0] == 7 && line.y[1] == lines.size(), "a line has another place");
      if (lines.size() < most_line) lines.emplace_back(line.x.begin(), line.x.end());
      else if (packed) break;
    }
  } catch (BadFile const&) { complained = true; }
  if (!packed) {
    auto const all = plain_lines(text);
    must(complained || lines == all, "a line is not what is there");
    must(!complained || std::ranges::any_of(all, [&](auto const& line) { return line.size() >= most_line; }),
         "a line is too long, and none is");
  }
  try {
    auto const read = data::read_text(path, most);
    must(!read.empty() && read.size() <= most && (packed || read == text), "a text is not what is there");
    if (in.size() % 64 != 0) return;  // what follows looks at all of Unicode
    auto const characters = data::CharacterTokenizer::of(read);
    must(characters.decode(characters.encode(read)) == read, "a text is another one after it was encoded");
    must(data::CharacterTokenizer::load(path).size() == characters.size(), "a vocabulary has another size");
  } catch (BadFile const&) {
  } catch (BadArgument const&) {}
}

}  // namespace chorale::test
