// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/axis_all_to_all.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/row_gradients.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace chorale::nn::detail {

/// What an owner answers: a vector for each id, or one for each bag of ids.
enum class Answers { each, sums, means };

/// One step of a table that is split over the ranks along an axis, as its layer keeps it from forward to backward.
///
///   forward     ask(owner, row).. end_bag()  ids to their owners; answer()   vectors back; next(owner)
///   backward    give(owner, gradient)        a vector for each bag that an owner was asked of; add_up()
///
/// A question is the row within the owner's part, and a bit that says whether it is the owner's last one of a bag.
///
/// keeps   memory for the longest step so far. An owner checks the questions of all ranks before it reads or writes a row
/// order   an owner adds up gradients in the order of ranks, then of their rows, then of ids, as one device does
class TableExchange {
 public:
  /// to_all    true: every rank is an owner of each id, as it has some columns of the table
  /// rows      of the part of the table that this rank has
  /// table     its name, for errors: called with the rank that has the part
  void begin(AxisGroup const& group, bool to_all, int rows, std::string (*table)(Rank)) {
    exchange_.begin(group);
    to_all_ = to_all;
    rows_   = static_cast<std::uint32_t>(rows);
    table_  = table;
    asked_.begin(to_all ? 1 : group.size);
    begun_.assign(asked_.of.size(), 0);
    bags_.assign(asked_.of.size(), 0);
  }
  Rank rank() const { return exchange_.rank(); }
  int size() const { return exchange_.size(); }

  void ask(Rank owner, std::uint32_t row) { asked_.of[list(owner)].push_back(row); }
  /// Ends a bag at each owner that was asked for rows of it.
  void end_bag() {
    for (std::size_t q = 0; q < asked_.of.size(); ++q) end_bag(q);
  }
  /// Asks for a row that is a bag by itself.
  void ask_alone(Rank owner, std::uint32_t row) {
    ask(owner, row);
    end_bag(list(owner));
  }

  /// Sends all questions, and brings the answers to this rank's.
  ///
  /// part      of the table that this rank has: (rows, width)
  /// throws    Disagreement when a rank asks for a row that is not in the part
  void answer(float const* part, std::size_t width, Answers as) {
    numbers_.clear();
    for (Rank q = 0; q < size(); ++q) numbers_.push_back(static_cast<std::uint32_t>(asked(q).size()));
    auto const counts = exchange_.counts(numbers_);
    send_asked([&](Rank r) { return std::size_t{counts[at(r)]}; });
    for (Rank r = 0; r < size(); ++r) expect_rows(r, wanted_[r]);
    made_.prepare(size());
    got_.prepare(size());
    for (Rank r = 0; r < size(); ++r) look_up(part, width, as, wanted_[r], made_[r]);
    for (Rank q = 0; q < size(); ++q) got_[q].resize(width * (as == Answers::each ? asked(q).size() : bags_[list(q)]));
    exchange_.to_askers(made_, got_);
    next_.assign(at(size()), 0);
    width_ = width;
  }
  /// The next answer of an owner: (width).
  float const* next(Rank owner) { return &got_[owner][width_ * next_[at(owner)]++]; }

  /// Begins backward.
  void begin_gradients() { made_.begin(size()); }
  /// Appends the gradient of the next bag that an owner was asked of: (width).
  void give(Rank owner, float const* gradient) { made_[owner].insert(made_[owner].end(), gradient, gradient + width_); }
  /// Sends all gradients to their owners, which add them to the gradient of their part.
  ///
  /// rows      if not null, of the part; else `whole` is its gradient, (rows, width). Of logical shards, each rank's is
  ///           kept apart
  void add_up(RowGradients* rows, float* whole) {
    exchange_.to_owners(made_, got_, [&](Rank r) { return width_ * bags_in(wanted_[r]); });
    for (Rank r = 0; r < size(); ++r) {
      if (wanted_[r].empty()) continue;
      if (exchange_.in_shards() && rows != nullptr) rows->begin_part(r);
      add(wanted_[r], got_[r].data(), rows, whole);
    }
  }

 private:
  static constexpr std::uint32_t last = std::uint32_t{1} << 31;  // of a bag
  static constexpr std::size_t ahead  = 16;                      // questions whose memory is fetched before
  static std::size_t at(Rank rank) { return static_cast<std::size_t>(rank); }

  std::size_t list(Rank owner) const { return to_all_ ? 0 : at(owner); }
  std::vector<std::uint32_t> const& asked(Rank owner) const { return asked_.of[list(owner)]; }

  void end_bag(std::size_t q) {
    auto& questions = asked_.of[q];
    if (questions.size() == begun_[q]) return;
    questions.back() |= last;
    begun_[q] = questions.size();
    ++bags_[q];
  }
  static std::size_t bags_in(Span<std::uint32_t const> questions) {
    return static_cast<std::size_t>(std::ranges::count_if(questions, [](auto id) { return (id & last) != 0; }));
  }

  template <class SizeOf> void send_asked(SizeOf const& size_of) {
    if (to_all_) exchange_.to_each_owner(Span<std::uint32_t const>{asked_.of[0]}, wanted_, size_of);
    else exchange_.to_owners(asked_, wanted_, size_of);
  }

  void expect_rows(Rank from, Span<std::uint32_t const> questions) const {
    auto most = std::uint32_t{0};
    for (auto const question : questions) most = std::max(most, question & ~last);
    if (questions.empty() || (most < rows_ && (questions.back() & last) != 0)) return;
    auto const whose = sentence("{}, of which rank {} has {} rows", table_(rank()), rank(), rows_);
    throw Disagreement{Fault::collective_mismatch,
                       most < rows_ ? sentence("rank {} asks for {} rows of {}, and the last one ends no bag.", from,
                                               questions.size(), whose)
                                    : sentence("rank {} asks for row {} of {}.", from, most, whose),
                       "the same model on every rank, and a look at the memory of that host."};
  }

  static void look_up(float const* part, std::size_t width, Answers as, Span<std::uint32_t const> questions,
                      std::vector<float>& answers) {
    if (as == Answers::each) answers.resize(width * questions.size());
    else answers.assign(width * bags_in(questions), 0.0F);
    auto* y = answers.data();
    auto n  = 0;  // ids of the bag so far
    for (std::size_t i = 0; i < questions.size(); ++i) {
      if (i + ahead < questions.size()) {
        auto const* const soon = part + (questions[i + ahead] & ~last) * width;
        for (std::size_t c = 0; c < width; c += plan::align) __builtin_prefetch(soon + c);
      }
      auto const question   = questions[i];
      auto const* const row = part + (question & ~last) * width;
      if (as == Answers::each) {
        y = std::copy_n(row, width, y);
        continue;
      }
      for (std::size_t c = 0; c < width; ++c) y[c] += row[c];
      ++n;
      if ((question & last) == 0) continue;
      auto const factor = as == Answers::means ? 1 / static_cast<float>(n) : 1.0F;
      for (std::size_t c = 0; c < width; ++c) y[c] *= factor;
      y += width;
      n = 0;
    }
  }

  void add(Span<std::uint32_t const> questions, float const* d, RowGradients* rows, float* whole) const {
    auto begins = true;  // a bag
    auto shared = std::size_t{0};
    for (std::size_t i = 0; i < questions.size(); ++i) {
      if (rows != nullptr && i + ahead < questions.size()) rows->fetch(questions[i + ahead] & ~last);
      auto const question = questions[i];
      auto const row      = std::size_t{question & ~last};
      auto const ends     = (question & last) != 0;
      if (rows == nullptr) {
        for (std::size_t c = 0; c < width_; ++c) whole[row * width_ + c] += d[c];
      } else if (begins && ends) {
        rows->add(row, d);
      } else {
        if (begins) shared = rows->share(d);
        rows->add_shared(row, shared);
      }
      begins = ends;
      if (ends) d += width_;
    }
  }

  OwnerExchange exchange_;
  bool to_all_                = false;
  std::uint32_t rows_         = 0;  // of the part
  std::string (*table_)(Rank) = nullptr;
  std::size_t width_          = 0;
  ListsOfRanks<std::uint32_t> asked_, wanted_;  // of this rank by owner; of each rank
  ListsOfRanks<float> made_, got_;              // to send, and received
  std::vector<std::size_t> begun_, bags_, next_;
  std::vector<std::uint32_t> numbers_;
};

}  // namespace chorale::nn::detail
