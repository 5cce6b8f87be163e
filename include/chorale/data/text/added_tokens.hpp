// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale::data::detail {

/// Tokens that are found in a text as they are written, before the text is cut into words: <|endoftext|>, [MASK].
class AddedTokens {
 public:
  /// content    not empty
  void add(std::string content, int id) {
    ids_.emplace(content, id), used_.insert(id);
    all_.emplace_back(std::move(content), id);
  }

  /// The id of a token; -1 if there is none.
  int id_of(std::string_view content) const {
    auto const at = ids_.find(content);
    return at == ids_.end() ? -1 : at->second;
  }
  bool has(int id) const { return used_.contains(id); }

  /// Calls text(part) for what lies between added tokens, and token(id) for each of them, from first to last. Of tokens
  /// that begin at one place it is the longest.
  template <class Text, class Token> void each(std::string_view of, Text&& text, Token&& token) const {
    auto next = std::vector<std::size_t>{};  // where each is, from begin on
    for (auto const& one : all_) next.push_back(of.find(one.first));
    for (std::size_t begin = 0; begin < of.size();) {
      auto first = of.size(), which = all_.size();
      for (std::size_t k = 0; k < all_.size(); ++k) {
        if (next[k] != of.npos && next[k] < begin) next[k] = of.find(all_[k].first, begin);
        auto const at = next[k];
        if (at == of.npos) continue;
        if (at < first || (at == first && all_[k].first.size() > all_[which].first.size())) first = at, which = k;
      }
      text(of.substr(begin, first - begin));
      if (which == all_.size()) break;
      token(all_[which].second);
      begin = first + all_[which].first.size();
    }
  }

 private:
  std::vector<std::pair<std::string, int>> all_;
  std::map<std::string, int, std::less<>> ids_;
  std::set<int> used_;
};

}  // namespace chorale::data::detail
