// SPDX-License-Identifier: Apache-2.0
//
// What an example about text needs beside its network: flags, characters as numbers, and a text where no file is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace example {

struct TextOptions {
  std::string data;      // a file of text; empty: sentences are made
  int steps      = 40;   // updates
  int characters = 100;  // to write in the end
};

/// Reads the flags over the defaults; ends the program after --help (exit code 0).
///
/// throws  BadArgument in one sentence
TextOptions parse_text_options(int argc, char** argv);

struct Gpt2Options : TextOptions {
  std::string size = "small";  // or 124m
  std::string weights;         // of the package transformers, to begin from; empty: drawn by a seed
  std::string tokenizer;       // a tokenizer.json; empty: characters of the text
  std::string save;            // a file for the weights, which transformers reads; empty: none
  std::string prompt;          // the text that goes on; empty: the beginning of the data
  float rate   = 1e-3F;        // the learning rate after its warm-up
  int replicas = 1;
};

/// Reads the flags over the defaults; ends the program after --help (exit code 0).
///
/// throws  BadArgument in one sentence
Gpt2Options parse_gpt2_options(int argc, char** argv);

struct SentenceOptions {
  std::string data;     // a file with a sentence in each line; empty: those of the program
  std::string weights;  // a folder with all-MiniLM-L6-v2; empty: a small encoder is trained
  int epochs = 4;       // of the small one
};

/// Reads the flags over the defaults; ends the program after --help (exit code 0).
///
/// throws  BadArgument in one sentence
SentenceOptions parse_sentence_options(int argc, char** argv);

/// The lines of a text that are not empty.
std::vector<std::string> lines_of(std::string const& text);

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

/// A sentence about a topic, 0 to 2: a function of both arguments.
std::string topic_sentence(std::size_t topic, std::uint64_t number);
/// The words of such sentences, and what begins, ends and is not known of them: a vocabulary of WordPiece.
std::vector<std::string> topic_tokens();

/// The index that logits mean most likely by chance: u in [0, 1) is where the dice fell.
int draw(std::vector<float> const& logits, float u);

/// 0, 1, .. n - 1
std::vector<float> count_to(std::size_t n);

}  // namespace example
