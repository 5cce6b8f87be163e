// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a program includes that reads text: tokenizers, and their files.

#include <chorale/chorale.hpp>

#include <chorale/data/text/tokenizer.hpp>
#include <chorale/data/text/word_piece.hpp>
