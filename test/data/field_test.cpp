// SPDX-License-Identifier: Apache-2.0
#include <chorale/data/field.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <type_traits>

using namespace chorale;

namespace {

struct Title : Field<int, 40> {};
struct Image : Field<float, 28, 28, 1> {};
struct Body : Field<int, ragged> {};

static_assert(IsField<Title> && IsField<Field<float, 2>> && !IsField<int> && !IsField<std::string>);
static_assert(FieldElement<float> && FieldElement<int> && !FieldElement<double>);

}  // namespace

TEST_CASE("a field has the shape and the element type that it names") {
  CHECK(Image::rank == 3);
  CHECK(Image::dims == std::array{28, 28, 1});
  CHECK(Image::size == 784);
  CHECK(std::is_same_v<Title::element_type, int>);
  CHECK_FALSE(Title::is_ragged);
  CHECK(Body::is_ragged);
  CHECK(Body::size == 0);
}
