// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>

#include <string>

namespace chorale {

/// A part of one, as an option of a layer: a real number as in Keras, or a whole number of percent. Dropout<0.5> is
/// Dropout<50>.
struct Fraction {
  double value;

  consteval Fraction(int percent) : value{percent / 100.0} {}
  consteval Fraction(double part) : value{part} {}
  consteval Fraction(float part) : value{static_cast<double>(part)} {}

  constexpr float as_float() const { return static_cast<float>(value); }
  std::string text() const { return word_of(static_cast<float>(value * 100)); }  // in percent
  friend constexpr bool operator==(Fraction const&, Fraction const&) = default;
};

/// A small number that a layer adds to a variance: a real number as in Keras, or a whole number of millionths.
/// Epsilon<1e-3> is Epsilon<1000>.
struct Tiny {
  double value;

  consteval Tiny(int millionths) : value{millionths / 1e6} {}
  consteval Tiny(double number) : value{number} {}
  consteval Tiny(float number) : value{static_cast<double>(number)} {}

  friend constexpr bool operator==(Tiny const&, Tiny const&) = default;
};

}  // namespace chorale
