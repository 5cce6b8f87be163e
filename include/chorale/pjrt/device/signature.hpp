// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/pjrt/device/shape.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace chorale::pjrt {

/// What a program takes and gives, on each device: the parameters and results of its @main.
///
/// donated   0-based arguments, ascending, whose memory a result takes over: those with tf.aliasing_output in the text
struct Signature {
  std::vector<Shape> arguments{}, results{};
  std::vector<std::size_t> donated{};

  friend bool operator==(Signature const&, Signature const&) = default;
};

namespace detail {

/// Reader of the signature of @main in the text of a module:
///
///   func.func public @main(%a: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<i32>) -> tensor<2x3xf32> {
///
/// source  MLIR language reference: the function type of func.func
class SignatureReader {
 public:
  explicit SignatureReader(std::string_view text) : text_{text}, at_{text.find("@main")} {}

  /// throws  BadArgument where the text is not such a line, or has a type that this library does not use
  Signature read() {
    auto signature = Signature{};
    if (at_ == text_.npos) fail("there is no @main");
    at_ += std::string_view{"@main"}.size();
    take("(");
    while (!comes(")")) {
      if (!signature.arguments.empty()) take(",");
      take("%");
      while (at_ < text_.size() && text_[at_] != ':') ++at_;
      take(":");
      signature.arguments.push_back(tensor());
      auto const attributes = dictionary();
      auto const has        = [&](std::string_view name) { return attributes.find(name) != attributes.npos; };
      if (has("tf.aliasing_output") || has("jax.buffer_donor"))
        signature.donated.push_back(signature.arguments.size() - 1);
    }
    take(")");
    if (!comes("->")) return signature;
    take("->");
    if (!comes("(")) {
      signature.results.push_back(tensor());
      return signature;
    }
    take("(");
    while (!comes(")")) {
      if (!signature.results.empty()) take(",");
      signature.results.push_back(tensor());
      dictionary();
    }
    return signature;
  }

 private:
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool comes(std::string_view word) {
    skip_spaces();
    return text_.substr(at_).starts_with(word);
  }
  void take(std::string_view word) {
    if (!comes(word)) fail("`" + std::string{word} + "` is needed");
    at_ += word.size();
  }

  Shape tensor() {
    take("tensor<");
    auto const end = text_.find_first_of(",>", at_);
    if (end == text_.npos) fail("a tensor's type has no end");
    auto inside = text_.substr(at_, end - at_);
    auto dims   = std::vector<std::int64_t>{};
    for (auto x = inside.find('x'); x != inside.npos; x = inside.find('x')) {
      auto value           = std::int64_t{0};
      auto const part      = inside.substr(0, x);
      auto const [to, why] = std::from_chars(part.data(), part.data() + part.size(), value);
      if (why != std::errc{} || to != part.data() + part.size() || value < 0) fail("a dimension is no number");
      dims.push_back(value);
      inside.remove_prefix(x + 1);
    }
    auto type = ElementType::invalid;
    for (int i = 1; i <= static_cast<int>(ElementType::bf16); ++i)
      if (name_of(static_cast<ElementType>(i)) == inside) type = static_cast<ElementType>(i);
    if (type == ElementType::invalid) fail("the element type " + in_quotes(inside) + " is not used");
    if (dims.size() > Dims::most) fail("there are more than " + std::to_string(Dims::most) + " dimensions");
    at_ = text_.find('>', at_);
    if (at_ == text_.npos) fail("a tensor's type has no end");
    ++at_;
    return {type, Dims{dims}};
  }

  /// Takes {...}, if that is next, and returns what is in it: texts in quotes may have braces.
  std::string_view dictionary() {
    if (!comes("{")) return {};
    auto const begin = ++at_;
    for (int depth = 1; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"') at_ = std::min(text_.find('"', at_ + 1), text_.size());
      else if (text_[at_] == '{') ++depth;
      else if (text_[at_] == '}' && --depth == 0) return text_.substr(begin, at_++ - begin);
    }
    fail("an attribute has no end");
  }

  [[noreturn]] void fail(std::string const& what) const {
    auto const from = std::min(at_, text_.size());
    throw BadArgument{
        sentence("cannot read what a program takes and gives: {}, before {}.", what, in_quotes(text_.substr(from, 40))),
        "func.func public @main(%a: tensor<2x3xf32>) -> tensor<f32> {"};
  }

  std::string_view text_;
  std::size_t at_;
};

}  // namespace detail

/// The signature that the text of a module gives its @main.
///
/// throws  BadArgument when the text has none, or a type that this library does not use
inline Signature signature_of(std::string_view text) { return detail::SignatureReader{text}.read(); }

}  // namespace chorale::pjrt
