// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/pjrt/device/api.hpp>
#include <chorale/pjrt/device/error.hpp>

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

namespace chorale::pjrt {

/// A value of an option of a plug-in, or of one of its attributes.
using OptionValue = std::variant<std::int64_t, std::string, std::vector<std::int64_t>, float, bool>;

/// A shared library that implements PJRT for one kind of device.
///
///   auto const plugin = Plugin::open(Plugin::path_from_environment());
///   auto const client = Client{plugin, {{"cpu_device_count", 8}}};
///
/// keeps   a value, cheap to copy. The library is opened once in a process and stays open until it ends: plug-ins have
///         threads, and functions that run at exit
class Plugin {
 public:
  /// The oldest version of the C interface that is used, 0.60: earlier ones have their functions in another order.
  static constexpr int major_version = 0, oldest_minor_version = 60;

  /// Opens a plug-in, or returns it if this process has it already.
  ///
  /// throws  BadArgument when the file does not exist, is not a plug-in, or has a version that cannot be used;
  ///         PluginError when the plug-in does not start
  static Plugin open(std::string const& path) {
    auto error      = std::error_code{};
    auto const real = std::filesystem::canonical(path, error);
    auto const lock = std::lock_guard{opened().mutex};
    auto& entry     = opened().by_path[error ? path : real.string()];
    if (!entry) entry = start(table_of(path), path);
    return Plugin{entry.get()};
  }

  /// A plug-in that is part of this program: Plugin::linked(GetPjrtApi(), "its name").
  ///
  /// throws  BadArgument when its version cannot be used; PluginError when it does not start
  static Plugin linked(api::Table const* table, std::string const& name) {
    auto const lock = std::lock_guard{opened().mutex};
    auto& entry     = opened().by_table[table];
    if (!entry) entry = start(table, name);
    return Plugin{entry.get()};
  }

  /// The plug-in's path: CHORALE_PJRT_PLUGIN, or else TPU_LIBRARY_PATH, which libtpu's users set.
  ///
  /// throws  BadArgument when neither is set
  static std::string path_from_environment() {
    if (auto const path = environment_path()) return *path;
    throw BadArgument{"no PJRT plug-in is named: neither CHORALE_PJRT_PLUGIN nor TPU_LIBRARY_PATH is set.",
                      "CHORALE_PJRT_PLUGIN=/path/of/the/plugin.so; docs/46-tpu.md says where to get one."};
  }

  /// The path that the environment names, or nothing when neither variable is set.
  static std::optional<std::string> environment_path() {
    for (auto const* name : {"CHORALE_PJRT_PLUGIN", "TPU_LIBRARY_PATH"})
      if (auto const* value = std::getenv(name); value != nullptr && *value != '\0') return value;
    return {};
  }

  std::string const& path() const { return loaded_->path; }
  int minor_version() const { return loaded_->table->minor; }

  /// What the plug-in says about itself, by name: "stablehlo_current_version", "xla_version".
  std::map<std::string, OptionValue> const& attributes() const { return loaded_->attributes; }

  /// Calls a function of the plug-in with its record, for example api::ClientCreate.
  ///
  /// throws  PluginError with what the plug-in said, OutOfMemory when a device has none left; Error when the plug-in's
  ///         version does not have the function
  template <class Record> void call(Record& record) const {
    if (auto* const error = try_call(record)) fail(error, Record::call.name);
  }

  /// Calls a function of the plug-in, and returns its error, which the caller has to pass to take() or fail().
  template <class Record> api::Error* try_call(Record& record) const {
    return function<api::Error* (*)(Record*)>(Record::call)(&record);
  }

  /// Code and text of an error, which it frees.
  std::pair<int, std::string> take(api::Error* error) const {
    auto message = api::ErrorMessage{.handle = error};
    auto code    = api::ErrorCode{.handle = error};
    auto destroy = api::ErrorDestroy{.handle = error};
    function<void (*)(api::ErrorMessage*)>(api::ErrorMessage::call)(&message);
    auto said     = std::string{message.text, message.size};
    auto* const e = function<api::Error* (*)(api::ErrorCode*)>(api::ErrorCode::call)(&code);
    function<void (*)(api::ErrorDestroy*)>(api::ErrorDestroy::call)(&destroy);
    if (e != nullptr) drop(e);
    return {code.value, std::move(said)};
  }

  /// Throws an error as PluginError, or as OutOfMemory when a device has no memory left, and frees it.
  [[noreturn]] void fail(api::Error* error, std::string_view what) const {
    constexpr int resource_exhausted = 8;
    auto const [code, said]          = take(error);
    auto const line                  = sentence("{} of the PJRT plug-in {} failed: {} (code {}, {}).", what, path(),
                                                detail::first_line(said), code, code_name(code));
    if (code == resource_exhausted && what != api::ClientCreate::call.name)
      throw OutOfMemory{line, "a smaller batch or model, or more devices."};
    throw PluginError{code, said, line, detail::what_to_try(said)};
  }

  /// Frees an error that nobody can be told of: one of a destructor.
  void drop(api::Error* error) const noexcept {
    if (error == nullptr) return;
    auto destroy = api::ErrorDestroy{.handle = error};
    function<void (*)(api::ErrorDestroy*)>(api::ErrorDestroy::call)(&destroy);
  }

  friend bool operator==(Plugin const&, Plugin const&) = default;

 private:
  struct Loaded {
    std::string path;
    api::Table const* table = nullptr;
    std::map<std::string, OptionValue> attributes{};
  };

  struct Opened {
    std::mutex mutex;
    std::map<std::string, std::unique_ptr<Loaded const>> by_path;
    std::map<api::Table const*, std::unique_ptr<Loaded const>> by_table;
  };
  static Opened& opened() {
    static auto& all = *new Opened;  // never freed: code of plug-ins may run at exit
    return all;
  }

  explicit Plugin(Loaded const* loaded) : loaded_{loaded} {}

  /// The function of a call, if the plug-in's table is long enough to have it.
  template <class Function> Function function(api::Call const& call) const {
    if (auto const f = find<Function>(loaded_->table, call)) return f;
    throw Error{sentence("the PJRT plug-in {} of version 0.{} has no {}.", path(), minor_version(), call.name),
                "a newer release of the plug-in."};
  }

  /// The function of a call in a table, or null if the table is too short or has none.
  template <class Function> static Function find(api::Table const* table, api::Call const& call) {
    auto const offset = sizeof(api::Table) + call.slot * sizeof(Function);
    auto f            = Function{};
    if (offset + sizeof f <= table->struct_size)
      std::memcpy(&f, reinterpret_cast<std::byte const*>(table) + offset, sizeof f);
    return f;
  }

  static api::Table const* table_of(std::string const& path) {
    if (path.find('/') != path.npos && !std::filesystem::exists(path))
      throw BadArgument{"there is no file " + in_quotes(path) + " to open as a PJRT plug-in.",
                        "the path of a plug-in's .so in CHORALE_PJRT_PLUGIN."};
    auto* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // local: its LLVM must not meet another
    if (library == nullptr) {
      auto const* said = dlerror();
      throw BadArgument{
          "cannot open the PJRT plug-in " + path + ": " + printable(said ? said : "no reason given") + ".",
          "a plug-in for this system and processor, with the libraries that it names."};
    }
    auto* const symbol = dlsym(library, "GetPjrtApi");
    if (symbol == nullptr)
      throw BadArgument{path + " is no PJRT plug-in: it has no function GetPjrtApi.",
                        "the file whose name has pjrt or libtpu in it, of the package."};
    return reinterpret_cast<api::Table const* (*)()>(symbol)();
  }

  static std::unique_ptr<Loaded const> start(api::Table const* table, std::string const& path) {
    auto loaded       = std::make_unique<Loaded>(Loaded{path, expect_usable(table, path)});
    auto const plugin = Plugin{loaded.get()};
    auto initialize   = api::PluginInitialize{};
    plugin.call(initialize);
    auto attributes = api::PluginAttributes{};
    plugin.call(attributes);
    for (std::size_t i = 0; i < attributes.size; ++i) {
      auto const& at = attributes.attributes[i];
      loaded->attributes.emplace(std::string{at.name, at.name_size}, value_of(at));
    }
    return loaded;
  }

  /// Throws BadArgument unless a plug-in's table is of a version whose functions lie where this library looks for them.
  static api::Table const* expect_usable(api::Table const* table, std::string const& path) {
    auto const other = [&](std::string const& what) {
      return BadArgument{"cannot use the PJRT plug-in " + path + ": " + what + ".",
                         sentence("a plug-in of version {}.{} or a newer one of {}.", major_version,
                                  oldest_minor_version, major_version)};
    };
    if (table == nullptr) throw other("its GetPjrtApi returned nothing");
    if (table->struct_size < sizeof(api::Table))
      throw other(sentence("its table of functions has {} bytes, and needs {} for the version alone",
                           table->struct_size, sizeof(api::Table)));
    if (table->major != major_version || table->minor < oldest_minor_version)
      throw other(sentence("its interface has version {}.{}, and this library calls version {}.{} or later",
                           table->major, table->minor, major_version, oldest_minor_version));
    for (auto const& needed : {api::ErrorDestroy::call, api::ErrorMessage::call, api::EventDestroy::call,
                               api::EventAwait::call, api::ClientDestroy::call, api::LoadedDestroy::call,
                               api::ProgramDestroy::call, api::BufferDestroy::call, api::TopologyDestroy::call})
      if (find<void (*)()>(table, needed) == nullptr)  // destructors call them, and cannot report that they fail
        throw other(sentence("its table of {} bytes has no {}", table->struct_size, needed.name));
    return table;
  }

  static OptionValue value_of(api::NamedValue const& at) {
    switch (at.type) {
      case api::NamedValue::text: return std::string{at.value.text, at.value_size};
      case api::NamedValue::integer: return at.value.integer;
      case api::NamedValue::integers:
        return std::vector<std::int64_t>(at.value.integers, at.value.integers + at.value_size);
      case api::NamedValue::real: return at.value.real;
      case api::NamedValue::boolean: return at.value.boolean;
    }
    return std::string{"a value of unknown type"};
  }

  Loaded const* loaded_;
};

}  // namespace chorale::pjrt
