// SPDX-License-Identifier: Apache-2.0
//
// What a user waits for: seconds of compilers over programs of the project, in both forms of the library.
//
//   tools/run bench/compile --json                   in the project's folder
//   tools/run bench/compile --only empty readme --compilers g++ --levels 0
//
// Programs: an empty one with chorale.hpp, one with processes.hpp, README's, four examples; and libtorch's MNIST, where
// its headers are. Forms: `headers`; `compiled`, over declarations that tools/compiled.py makes; `precompiled`, the same
// where chorale.hpp was read before, which is not counted. All of a round are compiled in turn, one after the other, to an
// object; medians of the rounds.
//
//   user_s           of the compiler's processes together
//   peak_mb          of the largest of them
//   functions        that the object defines; bytes: of code and constants; longest: of a symbol, in characters
//   over_headers     user_s over that of the form `headers`
//   over_torch       user_s over that of libtorch's program
//
// Times are not predicted: nothing here models a compiler.
#include "support/folder.hpp"
#include "support/report.hpp"

#include <CLI/CLI.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

/// Seconds and memory of a compiler, and what it made.
struct Made {
  std::vector<double> seconds{};
  double peak_mb = 0, functions = 0, bytes = 0, longest = 0;
};

/// Runs a compiler with its errors in `log`. Returns the time and memory of it and of the processes that it starts.
///
/// throws  std::runtime_error with the end of the log when it does not end with 0
::rusage run(std::vector<std::string> const& command, fs::path const& log) {
  auto arguments = std::vector<char*>{};
  for (auto const& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  auto const child = ::fork();
  if (child == 0) {
    if (std::freopen(log.c_str(), "w", stderr) == nullptr || std::freopen("/dev/null", "w", stdout) == nullptr)
      ::_exit(126);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  auto status = 0;
  auto used   = ::rusage{};
  if (child < 0 || ::wait4(child, &status, 0, &used) != child || status != 0) {
    auto file = std::ifstream{log};
    throw std::runtime_error{"chorale: " + command[0] + " does not compile " + command.back() + ":\n" +
                             std::string{std::istreambuf_iterator<char>{file}, {}}.substr(0, 1000)};
  }
  return used;
}

/// Reads functions, bytes and symbols of an object.
void look_at(fs::path const& object, Made& made) {
  auto symbols   = std::istringstream{bench::output_of("nm --defined-only '" + object.string() + "'")};
  made.functions = made.longest = 0;
  for (auto line = std::string{}; std::getline(symbols, line);) {
    auto words = std::istringstream{line};
    auto value = std::string{}, kind = std::string{}, name = std::string{};
    if (!(words >> value >> kind >> name)) continue;
    made.functions += kind == "T" || kind == "t" || kind == "W" ? 1 : 0;
    made.longest = std::max(made.longest, static_cast<double>(name.size()));
  }
  auto sizes = std::istringstream{bench::output_of("size '" + object.string() + "'")};
  auto head  = std::string{};
  std::getline(sizes, head);
  sizes >> made.bytes;
}

/// The first program of README.
std::string of_readme(fs::path const& root) {
  auto file        = std::ifstream{root / "README.md"};
  auto const text  = std::string{std::istreambuf_iterator<char>{file}, {}};
  auto const begin = text.find("```cpp\n");
  if (begin == std::string::npos)
    throw std::runtime_error{"chorale: README.md has no block of C++: " + (root / "README.md").string()};
  return text.substr(begin + 7, text.find("```", begin + 7) - begin - 7);
}

}  // namespace

int main(int argc, char** argv) try {
  auto compilers = std::vector<std::string>{"g++", "clang++"};
  auto forms     = std::vector<std::string>{"headers", "compiled", "precompiled"};
  auto only      = std::vector<std::string>{};
  auto levels    = std::vector<int>{0, 3};
  auto rounds    = 3;
  auto root      = std::string{"."};
  auto json      = false;
  auto app       = CLI::App{"Seconds, memory and bytes of compilers."};
  app.add_option("--only", only, "programs")
      ->check(CLI::IsMember(
          {"empty", "processes", "readme", "04_multi_worker", "15_character_gpt", "16_dlrm", "21_gpt2", "torch"}));
  app.add_option("--compilers", compilers, "g++ clang++");
  app.add_option("--forms", forms, "headers compiled precompiled")
      ->check(CLI::IsMember({"headers", "compiled", "precompiled"}));
  app.add_option("--levels", levels, "of optimisation")->check(CLI::Range(0, 3));
  app.add_option("--rounds", rounds, "medians of them are printed")->check(CLI::Range(1, 1000));
  app.add_option("--root", root, "the project's folder");
  app.add_flag("--json", json, "a JSON object for each row");
  CLI11_PARSE(app, argc, argv);
  auto const here = fs::absolute(root);
  if (!fs::exists(here / "include/chorale/chorale.hpp"))
    throw std::runtime_error{"chorale: include/chorale/chorale.hpp is not in " + here.string() +
                             ".\n         Try: --root FOLDER"};

  auto const folder = bench::Folder{};
  auto const work   = fs::path{folder.path};
  std::ofstream{work / "empty.cpp"} << "#include <chorale/chorale.hpp>\nint main() {}\n";
  std::ofstream{work / "processes.cpp"}
      << "#include <chorale/chorale.hpp>\n#include <chorale/processes.hpp>\nint main() {}\n";
  auto const wanted = [&](std::string const& name) {
    return only.empty() || std::ranges::find(only, name) != only.end();
  };
  if (wanted("readme")) std::ofstream{work / "readme.cpp"} << of_readme(here);
  auto sources = std::vector<std::pair<std::string, fs::path>>{};
  for (auto const* const name : {"empty", "processes", "readme"})
    sources.emplace_back(name, work / (name + std::string{".cpp"}));
  for (auto const* const name : {"04_multi_worker", "15_character_gpt", "16_dlrm", "21_gpt2"})
    sources.emplace_back(name, here / "examples" / (name + std::string{".cpp"}));
  auto torch = std::string{};  // the folder of its headers
  if (wanted("torch")) {
    if (bench::has_torch())
      torch = bench::output_of(bench::python() + " -c 'import os, torch; print(os.path.dirname(torch.__file__))'");
    if (torch = torch.substr(0, torch.find('\n')); !torch.empty())
      sources.emplace_back("torch", here / "bench/support/torch_mnist.cpp");
  }
  std::erase_if(sources, [&](auto const& source) { return !wanted(source.first); });
  if (forms != std::vector<std::string>{"headers"})
    bench::output_of("python3 '" + (here / "tools/compiled.py").string() + "' '" + (here / "include").string() + "' '" +
                     (work / "compiled").string() + "'");

  auto const start = [&](std::string const& compiler, int level) {
    return std::vector<std::string>{
        compiler,          "-std=c++20", "-O" + std::to_string(level), "-march=x86-64-v3", "-ffp-contract=off",
        "-fno-math-errno", "-w"};
  };
  auto const declared   = std::vector<std::string>{"-I" + (work / "compiled/include").string(), "-DCHORALE_COMPILED"};
  auto const headers_of = [&](std::string const& compiler, int level) {  // both compilers look for a .gch beside it
    auto const header = work / (compiler + std::to_string(level)) / "all.hpp";
    if (!fs::exists(header)) {
      fs::create_directory(header.parent_path());
      std::ofstream{header} << "#include <chorale/chorale.hpp>\n";
      auto command = start(compiler, level);
      command.insert(command.end(), declared.begin(), declared.end());
      if (compiler == "clang++") command.emplace_back("-fpch-instantiate-templates");
      command.insert(command.end(), {"-x", "c++-header", header.string(), "-o", header.string() + ".gch"});
      run(command, work / "log");
    }
    return header.string();
  };

  auto all       = std::map<std::string, Made>{};
  auto const key = [](auto const& name, auto const& compiler, int level, auto const& form) {
    return "compile/" + name + "/" + compiler + "/O" + std::to_string(level) + "/" + form;
  };
  auto const each = [&](auto&& f) {
    for (auto const& [name, source] : sources)
      for (auto const& compiler : compilers)
        for (auto const level : levels)
          for (auto const& form : forms)
            if (name != "torch" || form == forms[0]) f(name, source, compiler, level, form);
  };
  for (int round = 0; round < rounds; ++round)
    each([&](auto const& name, auto const& source, auto const& compiler, int level, auto const& form) {
      auto command = start(compiler, level);
      if (name == "torch") {
        for (auto const* const part : {"/include", "/include/torch/csrc/api/include"})
          command.insert(command.end(), {"-isystem", torch + part});
      } else if (form == "headers") {
        command.push_back("-I" + (here / "include").string());
      } else {
        if (form == "precompiled") command.insert(command.end(), {"-include", headers_of(compiler, level)});
        command.insert(command.end(), declared.begin(), declared.end());
      }
      auto const object = work / "object.o";
      command.insert(command.end(), {"-c", "-o", object.string(), source.string()});
      auto const used = run(command, work / "log");
      auto& made      = all[key(name, compiler, level, form)];
      made.seconds.push_back(static_cast<double>(used.ru_utime.tv_sec) +
                             1e-6 * static_cast<double>(used.ru_utime.tv_usec));
      made.peak_mb = std::max(made.peak_mb, static_cast<double>(used.ru_maxrss) / 1024);
      look_at(object, made);
    });

  if (!json) std::printf("%s\n", bench::machine().c_str());
  each([&](auto const& name, auto const&, auto const& compiler, int level, auto const& form) {
    auto const& made   = all.at(key(name, compiler, level, form));
    auto const seconds = bench::median(made.seconds);
    auto row           = bench::Row{key(name, compiler, level, form)};
    row.add("user_s", seconds, "%.2f")
        .add("peak_mb", made.peak_mb, "%.0f")
        .add("functions", made.functions, "%.0f")
        .add("bytes", made.bytes, "%.0f")
        .add("longest", made.longest, "%.0f");
    auto const beside = [&](char const* what, std::string const& other) {
      if (auto const found = all.find(other); found != all.end() && name != "torch")
        row.add(what, seconds / bench::median(found->second.seconds), "%.3f");
    };
    if (form != "headers") beside("over_headers", key(name, compiler, level, std::string{"headers"}));
    beside("over_torch", key(std::string{"torch"}, compiler, level, forms[0]));
    row.print(json);
  });
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
