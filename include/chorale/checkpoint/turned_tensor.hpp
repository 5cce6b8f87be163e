// SPDX-License-Identifier: Apache-2.0
//
// Shapes and numbers of tensors whose dimensions are in another order, and differences between a file and a network.
#pragma once

#include <chorale/checkpoint/dtype.hpp>
#include <chorale/checkpoint/safetensors.hpp>
#include <chorale/checkpoint/weight_map.hpp>
#include <chorale/core/half.hpp>
#include <chorale/core/text.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale::detail {

template <class Dims> std::string shape_text(Dims const& dims) {
  auto text = std::string{"("};
  for (std::size_t i = 0; i < dims.size(); ++i) text.append(i ? ", " : "") += std::to_string(dims[i]);
  return text + (dims.size() == 1 ? ",)" : ")");
}

using Shape64 = std::vector<std::uint64_t>;

/// The shape of a tensor after it was turned. `axes` has one entry for each dimension, or none.
inline Shape64 turned(Shape64 const& shape, Axes const& axes) {
  auto made = shape;
  for (std::size_t k = 0; k < axes.order.size(); ++k) made[k] = shape[static_cast<std::size_t>(axes.order[k])];
  return made;
}

/// Numbers in the last dimension, and how many such vectors there are.
struct Columns {
  std::size_t columns = 1, rows = 1;

  explicit Columns(Shape64 const& shape) {
    if (!shape.empty()) columns = static_cast<std::size_t>(shape.back());
    for (std::size_t k = 0; k + 1 < shape.size(); ++k) rows *= static_cast<std::size_t>(shape[k]);
  }
};

/// The permutation that undoes another one.
inline Axes inverse(Axes const& axes) {
  auto made = axes;
  for (std::size_t k = 0; k < axes.order.size(); ++k)
    made.order[static_cast<std::size_t>(axes.order[k])] = static_cast<int>(k);
  return made;
}

/// Calls f(place in the tensor as it is) for each number of a tensor in the order of the turned one.
template <class F> void each_turned(Shape64 const& shape, Axes const& axes, F&& f) {
  auto stride = std::vector<std::size_t>(shape.size(), 1), at = std::vector<std::size_t>(shape.size());
  for (std::size_t k = shape.size(); k-- > 1;) stride[k - 1] = stride[k] * static_cast<std::size_t>(shape[k]);
  auto const to = turned(shape, axes);
  auto step     = stride;  // of each dimension of the turned tensor
  for (std::size_t k = 0; k < axes.order.size(); ++k) step[k] = stride[static_cast<std::size_t>(axes.order[k])];
  auto left = std::size_t{1}, place = std::size_t{0};
  for (auto const d : shape) left *= static_cast<std::size_t>(d);
  while (left-- > 0) {
    f(place);
    for (std::size_t k = to.size(); k-- > 0;) {
      place += step[k];
      if (++at[k] < to[k]) break;
      place -= at[k] * step[k];
      at[k] = 0;
    }
  }
}

/// Calls f(read) with a function from a place in a tensor to the number there, as a float. False if the tensor has
/// another kind of elements.
template <class F> bool read_floats(NamedTensor const& tensor, F&& f) {
  auto const as = [&]<class T>(T) {
    f([bytes = tensor.bytes.data()](std::size_t place) {
      auto value = T{};
      std::memcpy(&value, bytes + place * sizeof(T), sizeof(T));
      return static_cast<float>(value);
    });
    return true;
  };
  switch (tensor.dtype) {
    case Dtype::f32: return as(0.0F);
    case Dtype::f64: return as(0.0);
    case Dtype::f16: return as(fp16{});
    case Dtype::bf16: return as(bf16{});
    default: return false;
  }
}
inline bool is_float(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::f64 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

/// Differences between a file and a network. A message names the first three.
class Differences {
 public:
  /// text    makes the text: only the first three are made
  template <std::invocable Text> void add(Text&& text) {
    if (++count_ <= 3) text_.append(count_ == 1 ? "" : "; ") += text();
  }
  void add(std::string text) {
    add([&] { return std::move(text); });
  }
  /// "2 differences from the network: ..; ..", or nothing.
  std::string text() const {
    if (count_ == 0) return {};
    return std::to_string(count_) + (count_ == 1 ? " difference" : " differences") + " from the network: " + text_ +
           (count_ > 3 ? "; and " + std::to_string(count_ - 3) + " more" : "");
  }

 private:
  std::size_t count_ = 0;
  std::string text_;
};

/// The pattern of a variable that is kept, although a rule leads to that variable: every one before the rule, and those
/// after it that name the variable without a '*'. Empty if there is none.
inline std::string kept_against(WeightMap const& names, WeightRule const& rule, std::string const& variable) {
  auto before = true;
  for (auto const& other : names.rules) {
    before = before && &other != &rule;
    if (!other.theirs.all.empty()) continue;
    for (auto const& pattern : other.ours.all)
      if ((before || !pattern.forgets()) && pattern.fits(variable)) return pattern.text();
  }
  return {};
}

/// A pattern of tensors that two rules of a map have in the same words; empty if there is none.
inline std::string pattern_of_two(WeightMap const& names) {
  auto seen = std::set<std::string_view>{};
  for (auto const& rule : names.rules)
    for (auto const& pattern : rule.theirs.all)
      if (!seen.insert(pattern.text()).second) return pattern.text();
  return {};
}

inline std::string to_string(NamePattern::Values const& values) {
  auto text = std::string{};
  for (auto const& [letter, value] : values) text += letter + ("=" + value) + "\n";
  return text;
}

}  // namespace chorale::detail
