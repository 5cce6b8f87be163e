// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/crc32c.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/data/pipe.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// Windows of a sequence of tokens. See windows.
template <class Now, class Next> class Windows : public Pipe<Windows<Now, Next>> {
  static_assert(Now::rank == 1 && Next::rank == 1 && Now::size == Next::size && Now::size > 0 &&
                    std::is_same_v<typename Now::element_type, int> && std::is_same_v<typename Next::element_type, int>,
                "chorale: data::windows<Now, Next> takes two fields of as many ids: struct Now : Field<int, 64> {}; "
                "struct Next : Field<int, 64> {}");

 public:
  using element                = Row<Now, Next>;
  static constexpr bool stable = true;

  /// shift    at least 1
  Windows(std::shared_ptr<std::vector<int> const> tokens, std::size_t shift)
      : tokens_{std::move(tokens)}, shift_{shift} {
    CHORALE_EXPECTS(tokens_->size() > Now::size, "a window of " + std::to_string(Now::size) +
                                                     " tokens and the one "
                                                     "after them need " +
                                                     std::to_string(Now::size + 1) + " tokens, but there are " +
                                                     std::to_string(tokens_->size()));
  }

  class Stream {
   public:
    Stream(std::shared_ptr<std::vector<int> const> tokens, std::size_t shift, std::size_t n)
        : tokens_{std::move(tokens)}, shift_{shift}, n_{n} {}

    bool next(element& out) {
      if (at_ == n_) return false;
      auto const from = Span<int const>{*tokens_}.subspan(at_++ * shift_);
      out             = element{from.first(Now::size), from.subspan(1, Now::size)};
      return true;
    }

   private:
    std::shared_ptr<std::vector<int> const> tokens_;
    std::size_t shift_, n_, at_ = 0;
  };

  Stream stream(std::size_t) const { return {tokens_, shift_, *size()}; }
  std::optional<std::size_t> size() const { return (tokens_->size() - 1 - Now::size) / shift_ + 1; }

  void describe(std::vector<std::string>& lines) const {
    lines.push_back("windows of " + std::to_string(Now::size) + " shift " + std::to_string(shift_) + " of " +
                    std::to_string(tokens_->size()) + " tokens");
    lines.push_back("checksum of tokens " + std::to_string(crc32c(std::as_bytes(Span<int const>{*tokens_}))));
  }

 private:
  std::shared_ptr<std::vector<int> const> tokens_;
  std::size_t shift_;
};

/// Rows of a language model: T tokens of a sequence, and for each of them the one after it.
///
///   struct Now : Field<int, 64> {};                                         // (B, 64)
///   struct Next : Field<int, 64> {};
///   auto const rows = data::windows<Now, Next>(characters.encode(text), 8).shuffle(10'000, Seed{1}).batch(12);
///
///   tokens   t0 t1 t2 t3 t4 t5 ..        Now  t0 t1 t2 | t3 t4 t5 | ..        with T = 3
///                                        Next t1 t2 t3 | t4 t5 t6 | ..
///
/// shift    tokens between the beginnings of two windows; 0: T, so that each token is in one window. What is left at the
///          end is in none
/// keeps    rows are views of the tokens, which the dataset owns: shuffle() keeps places, not copies
/// order    from the first token on: a function of the tokens alone. The same in all epochs; shuffle() changes it
/// throws   BadArgument when there are fewer than T + 1 tokens
template <IsField Now, IsField Next> Windows<Now, Next> windows(std::vector<int> tokens, std::size_t shift = 0) {
  return {std::make_shared<std::vector<int> const>(std::move(tokens)), shift == 0 ? Now::size : shift};
}

}  // namespace chorale::data
