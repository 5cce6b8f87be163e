// SPDX-License-Identifier: Apache-2.0
//
// What an example about text needs beside its network: flags, characters as numbers, and a text where no file is given.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace example {

struct TextOptions {
  std::string data;                           // a file of text; empty: sentences are made
  int steps      = 40;                        // updates
  int characters = 100;                       // to write in the end
};

/// Reads the flags over the defaults; ends the program after --help (exit code 0).
///
/// throws  BadArgument in one sentence
TextOptions parse_text_options(int argc, char** argv);

/// The characters of a text: those of ASCII that can be printed, and the end of a line.
inline constexpr int characters = 96;

/// A file of text as numbers below `characters`. What is not ASCII becomes '?'.
///
/// throws  BadFile when it cannot be read, or has less than 10,000 characters
std::vector<int> read_text(std::string const& file);

/// At least n characters of sentences, each drawn of few words.
std::vector<int> sentences(std::size_t n);

/// The text that numbers mean.
std::string as_string(std::vector<int> const& text);

/// The index that logits mean most likely by chance: u in [0, 1) is where the dice fell.
int draw(std::vector<float> const& logits, float u);

/// 0, 1, .. n - 1
std::vector<float> count_to(std::size_t n);

}  // namespace example
