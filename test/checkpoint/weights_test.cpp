// SPDX-License-Identifier: Apache-2.0
//
// Weights in files of other programs: names, layouts, kinds of numbers, and what does not fit.
#include "test/checkpoint/folder.hpp"

#include <chorale/checkpoint/weight_regex.hpp>
#include <chorale/checkpoint/weights.hpp>
#include <chorale/tensor/run_time_plan.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace weights_test {

using namespace chorale;
using namespace chorale::test;
using Catch::Matchers::Contains;
using weights::oihw;
using weights::transposed;

namespace {

/// Variables with the numbers 0, 1, 2, .. in each.
class Net {
 public:
  explicit Net(std::vector<NamedShape> const& variables) : owner_{variables}, values_(plan_.elements) {
    for (std::size_t i = 0; i < all().size(); ++i)
      for (std::size_t k = 0; k < all()[i].value.size(); ++k) all()[i].value[k] = static_cast<float>(k);
  }

  Variables all() { return {values_, plan_.variables}; }
  std::vector<float> operator[](std::string const& name) {
    for (std::size_t i = 0; i < all().size(); ++i)
      if (all()[i].name == name) return {all()[i].value.begin(), all()[i].value.end()};
    return {};
  }
  std::vector<float> const& numbers() const { return values_; }

 private:
  RunTimePlan owner_;
  PlanView plan_{owner_};
  std::vector<float> values_;
};

/// A file of tensors of T that count in steps of one half from `first`.
class File {
 public:
  template <class T = float>
  File& add(std::string const& name, std::vector<std::uint64_t> shape, float first = 0, Dtype dtype = Dtype::f32) {
    auto n = std::size_t{1};
    for (auto const d : shape) n *= d;
    auto& bytes = bytes_[name];
    bytes.resize(n * sizeof(T));
    for (std::size_t i = 0; i < n; ++i) {
      auto const x = T(first + static_cast<float>(i) / 2);
      std::memcpy(bytes.data() + i * sizeof(T), &x, sizeof(T));
    }
    tensors_.push_back({name, dtype, std::move(shape)});
    return *this;
  }
  std::filesystem::path write(OwnFolder const& folder) const {
    auto const path = folder.path() / "theirs.safetensors";
    auto tensors    = tensors_;
    for (auto& tensor : tensors) tensor.bytes = bytes_.at(tensor.name);  // of this copy
    write_safetensors(path, std::move(tensors));
    return path;
  }

 private:
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::vector<NamedTensor> tensors_;
};

using Floats = std::vector<float>;

}  // namespace

TEST_CASE("a pattern reads the numbers of a name and writes them", "[checkpoint][weights]") {
  auto const read = [](NamePattern const& pattern, std::string const& name) {
    auto const values = pattern.read(name);
    return values ? values->at('i') : std::string{"none"};
  };
  CHECK(read("h.{i}.w", "h.12.w") == "12");
  CHECK(read("h.{i}.w", "h.012.w") == "none");
  CHECK(read("h.{i}.w", "h..w") == "none");
  CHECK(read("h.{i}.w", "h.1.wx") == "none");
  CHECK(read("h.{i}.{i}", "h.3.3") == "3");
  CHECK(read("h.{i}.{i}", "h.3.4") == "none");
  CHECK(read("a.{2i+1}.b.{i}", "a.7.b.3") == "3");
  CHECK(read("a.{2i+1}.b.{i}", "a.8.b.3") == "none");
  CHECK(read("dense{_4i}/kernel", "dense/kernel") == "0");
  CHECK(read("dense{_4i}/kernel", "dense_8/kernel") == "2");
  CHECK(read("dense{_4i}/kernel", "dense_0/kernel") == "none");
  CHECK(read("dense{_4i}/kernel", "dense_3/kernel") == "none");
  CHECK(read("*.{i}.w", "a.1.b.2.w") == "2");
  CHECK(NamePattern{"h.*"}.read("h.x.y")->empty());
  auto const fits = [](char const* pattern, char const* name) { return NamePattern{pattern}.fits(name); };
  CHECK((fits("dense/bias", "dense/bias") && !fits("dense/bias", "dense_1/bias")));
  CHECK((fits("*/bias", "dense/bias") && !fits("*/bias", "dense/kernel")));
  CHECK((fits("dense*", "dense") && fits("*", "") && fits("*", "x") && fits("", "") && !fits("", "x")));
  CHECK((fits("*e*el", "dense/kernel") && !fits("*e*el*x", "dense/kernel") && !fits("ab*bc", "abc")));
  CHECK(read("*.{i}.*.w", "a.1.2.b.3.w") == "1");  // each * is as short as can be
  CHECK(read("*{i}*", "ab12c") == "12");
  CHECK(read("a{_i}*", "a_3") == "3");
  CHECK(read("a{_i}_3", "a_3") == "0");
  CHECK(read("*.{i}.x.{i}", "a.1.x.2.x.2") == "2");
  CHECK(read("{i}", "1234567890") == "none");
  CHECK(NamePattern{"dense{_4i+1}/kernel"}.write({{'i', "2"}}) == "dense_9/kernel");
  CHECK(NamePattern{"dense{_4i}/kernel"}.write({{'i', "0"}}) == "dense/kernel");
  CHECK(NamePattern{"{j}.{2i+1}"}.write({{'i', "2"}, {'j', "x"}}) == "x.5");
  CHECK_FALSE(NamePattern{"h.*"}.writes({}));
  CHECK_FALSE(NamePattern{"h.{i}"}.writes({{'j', "1"}}));
  CHECK_THROWS_WITH(NamePattern{"h.{i"}, Contains("the pattern \"h.{i\" has a { without its }"));
  for (auto const* bad : {"{}", "{3}", "{i+}", "{i-1}", "{ij}", "{0i}", "{I}"})
    CHECK_THROWS_WITH(NamePattern{bad}, Contains("braces hold a letter"));
}

TEST_CASE("kernels are turned as the map declares", "[checkpoint][weights]") {
  auto const folder = OwnFolder{};
  auto net          = Net{{{"dense/kernel", {2, 3}}, {"conv2d/kernel", {2, 1, 3, 2}}}};
  auto const map    = WeightMap{{"fc.weight", "dense/kernel", transposed()}, {"c.weight", "conv2d/kernel", oihw()}};
  load_weights(File{}.add("fc.weight", {3, 2}).add("c.weight", {2, 3, 2, 1}).write(folder), net.all(), map);
  CHECK(net["dense/kernel"] == Floats{0, 1, 2, 0.5F, 1.5F, 2.5F});
  auto conv = Floats{};
  for (int h = 0; h < 2; ++h)  // by definition: (o, i, h, 0) at ((o 3 + i) 2 + h)
    for (int i = 0; i < 3; ++i)
      for (int o = 0; o < 2; ++o) conv.push_back(static_cast<float>((o * 3 + i) * 2 + h) / 2);
  CHECK(net["conv2d/kernel"] == conv);
  save_weights(folder.path() / "ours", net.all(), map);
  CHECK(get(folder.path() / "ours").find("{\"dtype\":\"F32\",\"shape\":[2,3,2,1]") != std::string::npos);
  auto const again = SafetensorsFile::read(folder.path() / "ours");
  CHECK(again.floats("fc.weight") == Floats{0, 0.5F, 1, 1.5F, 2, 2.5F});
  CHECK(again.floats("c.weight") == Floats{0, 0.5F, 1, 1.5F, 2, 2.5F, 3, 3.5F, 4, 4.5F, 5, 5.5F});
}

TEST_CASE("tensors are put side by side, and divided", "[checkpoint][weights]") {
  auto const folder = OwnFolder{};
  auto const file   = File{}
                        .add("l.0.q", {1, 2})
                        .add("l.0.k", {1, 2}, 10)
                        .add("l.1.q", {1, 2}, 20)
                        .add("l.1.k", {1, 2}, 30)
                        .add("all", {2, 3}, 40)
                        .write(folder);
  auto net       = Net{{{"dense/kernel", {2, 2}}, {"dense_1/kernel", {2, 2}}, {"a", {2, 1}}, {"b", {2, 2}}}};
  auto const map = WeightMap{{{"l.{i}.q", "l.{i}.k"}, "dense{_i}/kernel", transposed()}, {"all", {"a", "b"}}};
  load_weights(file, net.all(), map);
  CHECK(net["dense/kernel"] == Floats{0, 10, 0.5F, 10.5F});
  CHECK(net["dense_1/kernel"] == Floats{20, 30, 20.5F, 30.5F});
  CHECK(net["a"] == Floats{40, 41.5F});
  CHECK(net["b"] == Floats{40.5F, 41, 42, 42.5F});
  save_weights(folder.path() / "ours", net.all(), map);
  auto const ours = SafetensorsFile::read(folder.path() / "ours"), theirs = SafetensorsFile::read(file);
  REQUIRE(ours.tensors().size() == 5);
  for (auto const& tensor : theirs.tensors()) {
    CHECK(ours.at(tensor.name).shape == tensor.shape);
    CHECK(ours.floats(tensor.name) == theirs.floats(tensor.name));
  }
}

TEST_CASE("weights in parts are read by their index", "[checkpoint][weights]") {
  auto const folder = OwnFolder{};
  auto const part   = [&](char const* name, File const& file) {
    std::filesystem::rename(file.write(folder), folder.path() / name);
  };
  part("model-1.safetensors", File{}.add("c", {2}, 1).add("a", {2}, 5));
  part("model-2.safetensors", File{}.add("b", {2}, 8));
  auto const load = [&](std::string const& index, WeightMap const& map = {}) {
    put(folder.path() / "model.safetensors.index.json", index);
    auto net = Net{{{"a", {2}}, {"b", {2}}, {"c", {2}}}};
    load_weights(folder.path() / "model.safetensors.index.json", net.all(), map);
    return std::array{net["a"], net["b"], net["c"]};
  };
  auto const one = std::string{R"("a": "model-1.safetensors", "c": "model-1.safetensors")"};
  auto const two = std::string{R"("b": "model-2.safetensors")"};
  CHECK(load(R"({"metadata": {"total_size": 24}, "weight_map": {)" + two + ", " + one + "}}") ==
        std::array{Floats{5, 5.5F}, Floats{8, 8.5F}, Floats{1, 1.5F}});
  auto const turned = WeightMap{{"a", "b"}, {"b", "a"}, {"c", "c"}};
  CHECK(load(R"({"weight_map": {)" + two + ", " + one + "}}", turned)[0] == Floats{8, 8.5F});
  auto const refused = [&](std::string const& index, std::string const& what) {
    CHECK_THROWS_WITH(load(index), Contains("model.safetensors.index.json: " + what));
  };
  refused(R"({"weight_map": {)" + one + "}, \"weight_map\": {}}", "the key \"weight_map\" is there twice.");
  refused(R"({"weight_map": {)" + two + ", " + two + "}}", "the key \"b\" is there twice.");
  refused(R"({"weights": {}})", "has no object \"weight_map\"");
  refused("[1]", "has no object \"weight_map\"");
  refused("{", "it is not JSON from byte");
  refused(R"({"weight_map": {"a": 1}})", "the file of \"a\" is no text");
  for (auto const* file :
       {"../model-1.safetensors", "/etc/x.safetensors", "model-1.bin", "", "model-1.safetensors\\u0000.safetensors"})
    refused(R"({"weight_map": {"a": ")" + std::string{file} + "\"}}", "the file of \"a\" is ");
  refused(R"({"weight_map": {"d": "model-1.safetensors"}})",
          "\"model-1.safetensors\" has no \"d\", unlike the index says.");
  refused(R"({"weight_map": {"a": "model-1.safetensors"}})",
          "\"model-1.safetensors\" has \"c\", unlike the index says.");
  CHECK_THROWS_WITH(load(R"({"weight_map": {"a": "model-3.safetensors"}})"),
                    Contains("model-3.safetensors: cannot be opened: No such file"));
}

TEST_CASE("numbers of 16 and 64 bits become float, with and without a map", "[checkpoint][weights]") {
  auto const folder = OwnFolder{};
  auto const file   = File{}
                        .add<fp16>("a", {3}, 1, Dtype::f16)
                        .add<bf16>("b", {3}, 2, Dtype::bf16)
                        .add<double>("c", {3}, 3, Dtype::f64)
                        .add("d", {}, 4)
                        .write(folder);
  for (auto const& map : {WeightMap{}, WeightMap{{"a", "a"}, {"b", "b"}, {"c", "c"}, {"d", "d"}}}) {
    auto net = Net{{{"a", {3}}, {"b", {3}}, {"c", {3}}, {"d", {}}}};
    load_weights(file, net.all(), map);
    CHECK(net["a"] == Floats{1, 1.5F, 2});
    CHECK(net["b"] == Floats{2, 2.5F, 3});
    CHECK(net["c"] == Floats{3, 3.5F, 4});
    CHECK(net["d"] == Floats{4});
  }
}

TEST_CASE("regular expressions read names, and write none", "[checkpoint][weights]") {
  auto const folder = OwnFolder{};
  auto const file   = File{}.add("h.0.ln_1.weight", {2}).add("h.1.ln_2.weight", {2}, 8).write(folder);
  auto const map =
      WeightMap{{weights::matching(R"((?:transformer\.)?h\.(\d+)\.ln_(1|2)\.weight)"), "norm{_i}_{j}/gamma"}};
  auto net = Net{{{"norm_1/gamma", {2}}, {"norm_1_2/gamma", {2}}}};
  load_weights(file, net.all(), map);
  CHECK(net["norm_1/gamma"] == Floats{0, 0.5F});
  CHECK(net["norm_1_2/gamma"] == Floats{8, 8.5F});
  CHECK_THROWS_WITH(
      save_weights(folder.path() / "ours", net.all(), map),
      Contains("weights cannot be saved by this map") && Contains("it is a regular expression, or has a *"));
  CHECK_FALSE(std::filesystem::exists(folder.path() / "ours"));
  CHECK_THROWS_WITH(weights::matching("h.(\\d+"), Contains("\"h.(\\d+\" is not a regular expression"));
  CHECK_THROWS_WITH(weights::matching("(a|b)\\1"), Contains("is not a regular expression"));  // takes no bounded time
  auto const counts = WeightMap{{weights::matching(R"(h\.\d+\.(ln_.)\.weight)"), "norm{_2i}/gamma"}};
  CHECK_THROWS_WITH(load_weights(file, net.all(), counts),
                    Contains("counts with i, which is \"ln_1\" and not a number"));
}

TEST_CASE("tensors are ignored, and variables kept, by name", "[checkpoint][weights]") {
  auto const folder = OwnFolder{};
  auto net          = Net{{{"dense/bias", {2}}, {"head/bias", {2}}}};
  auto const map    = WeightMap{{"b", "dense/bias"}, weights::ignored("*.mask"), weights::kept("head/*")};
  load_weights(File{}.add("b", {2}, 5).add("h.mask", {7}).write(folder), net.all(), map);
  CHECK(net["dense/bias"] == Floats{5, 5.5F});
  CHECK(net["head/bias"] == Floats{0, 1});
  save_weights(folder.path() / "ours", net.all(), map);
  auto other              = Net{{{"dense/bias", {2}}, {"head/bias", {2}}}};
  other.all()[1].value[0] = 9;
  load_weights(folder.path() / "ours", other.all(), map);  // what was kept is in this file
  CHECK(other.numbers() == net.numbers());
}

TEST_CASE("a name of any length is read in the time of its length", "[checkpoint][weights]") {
  auto const dots = std::string(4'000, '.'), letters = std::string(4'000, 'a'), digits = std::string(4'000, '1');
  CHECK_FALSE(NamePattern{"*.*.*.mask"}.fits(dots));
  CHECK_FALSE(NamePattern{"*.*.*.*.*.*.*.*x*"}.fits(dots));
  CHECK(NamePattern{"*.*.*.*"}.fits(dots));
  CHECK_FALSE(NamePattern{"*{i}*{j}*{i}*x*"}.fits(digits));
  CHECK_FALSE(NamePattern{"*a{_i}*a{_j}*a{_i}*x*"}.fits(letters));
  CHECK_FALSE(weights::matching("(a*)*b").fits(letters));
  CHECK_FALSE(weights::matching("(([a-z.]+)*[a-z]+)*!").fits(letters));
  CHECK(weights::matching("(a*)*").fits(letters));
}

TEST_CASE("rules that contradict each other are a sentence, in every order", "[checkpoint][weights]") {
  auto const folder = OwnFolder{};
  auto const other  = File{}.add("b", {2}, 5).write(folder);
  auto const load   = [&](std::filesystem::path const& file, WeightMap const& map) {
    auto net = Net{{{"dense/bias", {2}}}};
    load_weights(file, net.all(), map);
    return net["dense/bias"];
  };
  auto const rule    = WeightRule{"b", "dense/bias"};
  auto const refuses = [&](std::filesystem::path const& file, WeightMap const& map, std::string const& text) {
    CHECK_THROWS_WITH(load(file, map), Contains("1 difference from the network: " + text));
  };
  auto const keeps = std::string{"\"b\" goes into dense/bias, which weights::kept(\""};
  refuses(other, {rule, weights::kept("dense/bias")}, keeps + "dense/bias\") keeps.");
  refuses(other, {weights::kept("dense/bias"), rule}, keeps + "dense/bias\") keeps.");
  refuses(other, {weights::kept("dense/*"), rule}, keeps + "dense/*\") keeps.");
  CHECK(load(other, {rule, weights::kept("*")}) == Floats{5, 5.5F});  // all that other rules leave
  refuses(other, {rule, {"b", "dense/kernel"}}, "two rules of the map are for \"b\".");
  refuses(other, {weights::ignored("b"), rule, weights::kept("*")}, "two rules of the map are for \"b\".");
  refuses(other, {rule, weights::ignored("b")}, "two rules of the map are for \"b\".");
  CHECK(load(other, {rule, weights::ignored("*")}) == Floats{5, 5.5F});
  CHECK(load(other, {weights::ignored("*"), rule, weights::kept("*")}) == Floats{0, 1});  // ignored first

  auto const both = File{}.add("b", {2}, 5).add("dense/bias", {2}, 8).write(folder);
  auto const two  = std::string{"two tensors go into dense/bias: \"b\" and \"dense/bias\"."};
  refuses(both, {rule, weights::kept("*")}, two);
  refuses(both, {rule, {"dense/bias", "dense/bias"}}, two);
  refuses(both, {{"dense/bias", "dense/bias"}, rule}, two);
  CHECK_THROWS_WITH(load(both, {weights::kept("*"), rule}), Contains(keeps) && Contains(two));
  CHECK(load(both, {weights::kept("dense/*"), weights::ignored("b")}) == Floats{8, 8.5F});
  CHECK(load(both, {rule, weights::ignored("dense/*")}) == Floats{5, 5.5F});

  auto net = Net{{{"dense/bias", {2}}}};
  CHECK_THROWS_WITH(save_weights(folder.path() / "ours", net.all(), {rule, weights::kept("dense/bias")}),
                    Contains("the rule \"b\" names dense/bias, which weights::kept(\"dense/bias\") keeps"));
  CHECK_THROWS_WITH(save_weights(folder.path() / "ours", net.all(), {rule, {"b", "dense/kernel"}}),
                    Contains("two rules of the map are for \"b\""));
  CHECK_FALSE(std::filesystem::exists(folder.path() / "ours"));
}

TEST_CASE("a file that does not fit is one sentence with three differences, and nothing changes",
          "[checkpoint][weights]") {
  auto const folder  = OwnFolder{};
  auto net           = Net{{{"dense/kernel", {2, 3}}, {"dense/bias", {3}}, {"dense_1/bias", {3}}}};
  auto const before  = net.numbers();
  auto const refused = [&](File const& file, WeightMap const& map, std::string const& text) {
    CHECK_THROWS_WITH(load_weights(file.write(folder), net.all(), map), Contains(text));
    CHECK(net.numbers() == before);
  };
  auto const good = File{}.add("dense/bias", {3}, 7).add("dense_1/bias", {3}, 7);
  refused(
      File{good}.add("dense/kernel", {3, 2}), {},
      "theirs.safetensors: 1 difference from the network: \"dense/kernel\" is F32 (3, 2), but dense/kernel is F32 (2, "
      "3).");
  refused(File{good}.add("dense/kernel", {6}), {}, "\"dense/kernel\" is F32 (6,), but dense/kernel is F32 (2, 3).");
  refused(File{good}.add<int>("dense/kernel", {2, 3}, 0, Dtype::i32), {}, "\"dense/kernel\" is I32 (2, 3), but");
  refused(good, {}, "1 difference from the network: the file has nothing for dense/kernel.");
  refused(
      File{}.add("w", {1}).add("x", {1}), {},
      "5 differences from the network: the network has no \"w\"; the network has no \"x\"; the file has nothing for "
      "dense/kernel; and 2 more.");
  auto const map =
      WeightMap{{"w{i}", "dense{_i}/kernel", transposed()}, {{"q", "k"}, "dense/bias"}, {"b{i}", "dense{_i}/bias"}};
  refused(File{}.add("w0", {2, 3}).add("w1", {3, 2}).add("q", {2}).add("b1", {3}), map,
          "3 differences from the network: the network has no dense_1/kernel, where \"w{i}\" leads; ");
  refused(File{}.add("w0", {3, 2}).add("q", {2}).add("b1", {3}), map,
          "1 difference from the network: \"q\" is F32 (2,) and nothing for \"k\", but dense/bias is F32 (3,).");
  refused(File{}.add("w0", {2, 3}).add("q", {2}).add("k", {1}).add("b1", {3}), map,
          "1 difference from the network: \"w0\" is F32 (2, 3), turned (3, 2), but dense/kernel is F32 (2, 3).");
  refused(File{}.add("w0", {6}).add("q", {2}).add("k", {1}).add("b1", {3}), map,
          "\"w0\" is F32 (6,), to be turned with 2 axes, but dense/kernel is F32 (2, 3).");
  refused(File{}.add("w0", {3, 2}).add("q", {2}).add("k", {1}).add("b0", {3}).add("b1", {3}), map,
          "1 difference from the network: two tensors go into dense/bias: \"b0\" and \"k\".");
  refused(File{}.add("x.1", {3}).add("y.1", {3}), {{"*.{i}", "dense{_i}/bias"}, weights::kept("dense/*")},
          "1 difference from the network: \"y.1\" and \"x.1\" are one by the rule \"*.{i}\".");
}

TEST_CASE("a map that has no name for a variable saves nothing", "[checkpoint][weights]") {
  auto const folder  = OwnFolder{};
  auto net           = Net{{{"dense/kernel", {2, 3}}, {"dense/bias", {3}}}};
  auto const refused = [&](WeightMap const& map, std::string const& text) {
    CHECK_THROWS_WITH(save_weights(folder.path() / "ours", net.all(), map), Contains(text));
    CHECK_FALSE(std::filesystem::exists(folder.path() / "ours"));
  };
  refused({{"w", "dense/kernel"}}, "1 difference from the network: no rule of the map has a name for dense/bias");
  refused({{{"q", "k"}, "dense/kernel"}, {"b", "dense/bias"}},
          "dense/kernel, (2, 3), cannot be turned and divided into 2");
  refused({{"w", "dense/kernel"}, {"b", "dense/bias", transposed()}}, "dense/bias, (3,), cannot be turned");
  refused({{"all", {"dense/kernel", "dense_1/kernel"}}, {"b", "dense/bias"}},
          "the network has nothing for \"dense_1/kernel\"");
  CHECK_THROWS_WITH((WeightRule{"a", "b", Axes{{0, 2}}}),
                    Contains("the axes of \"a\" have each number from 0 to 1 once"));
  CHECK_THROWS_WITH(load_weights(File{}.add("a", {3}).write(folder), net.all(), {{"*", "dense{_i}/bias"}}),
                    Contains("the name \"dense{_i}/bias\" cannot be written from what \"*\" finds"));
}

}  // namespace weights_test
