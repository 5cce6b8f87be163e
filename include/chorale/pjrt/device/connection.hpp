// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/pjrt/device/api.hpp>
#include <chorale/pjrt/device/key_value_store.hpp>
#include <chorale/pjrt/device/plugin.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale::pjrt {

/// A device of a client, or of a topology that need not be there.
struct DeviceInfo {
  int id;                   // among all processes of the job
  int process;              // that can use it
  std::string kind;         // "cpu", "TPU v5 lite"
  std::string description;  // the plug-in's, for messages
};

/// An option of a client: a name, and a value of the type that the plug-in expects, such as {"cpu_device_count", 8}.
struct Option {
  std::string name;
  OptionValue value;
};

namespace detail {

inline DeviceInfo info_of(Plugin const& plugin, api::DeviceDescription* description) {
  auto id      = api::DeviceId{.handle = description};
  auto process = api::DeviceProcess{.handle = description};
  auto kind    = api::DeviceKind{.handle = description};
  auto text    = api::DeviceText{.handle = description};
  plugin.call(id);
  plugin.call(process);
  plugin.call(kind);
  plugin.call(text);
  return {id.value, process.value, {kind.text, kind.size}, {text.text, text.size}};
}

/// An option as the plug-in reads it: it points into the option.
inline api::NamedValue named_value(Option const& option) {
  auto named = api::NamedValue{.name = option.name.data(), .name_size = option.name.size(), .value_size = 1};
  if (auto const* i = std::get_if<std::int64_t>(&option.value)) {
    named.type          = api::NamedValue::integer;
    named.value.integer = *i;
  } else if (auto const* text = std::get_if<std::string>(&option.value)) {
    named.type       = api::NamedValue::text;
    named.value.text = text->data();
    named.value_size = text->size();
  } else if (auto const* list = std::get_if<std::vector<std::int64_t>>(&option.value)) {
    named.type           = api::NamedValue::integers;
    named.value.integers = list->data();
    named.value_size     = list->size();
  } else if (auto const* real = std::get_if<float>(&option.value)) {
    named.type       = api::NamedValue::real;
    named.value.real = *real;
  } else {
    named.type          = api::NamedValue::boolean;
    named.value.boolean = std::get<bool>(option.value);
  }
  return named;
}

/// Throws BadArgument for an option that would end the process: a plug-in for CPUs aborts when cpu_device_count is
/// not an integer, and makes a client without devices when it is 0.
inline void expect_safe(Option const& option) {
  CHORALE_EXPECTS(!option.name.empty(), "an option of a PJRT client has no name");
  if (option.name != "cpu_device_count") return;
  auto const* count = std::get_if<std::int64_t>(&option.value);
  CHORALE_EXPECTS(count != nullptr, "the option cpu_device_count of a PJRT client is an integer, std::int64_t");
  CHORALE_EXPECTS(*count >= 1 && *count <= 1024,
                  "the option cpu_device_count of a PJRT client is from 1 to 1024, got " + std::to_string(*count));
}

/// A client of a plug-in with its devices, and the work that was started and has not ended. Buffers and executables
/// share it; the last of them ends the client.
class Connection {
 public:
  Connection(Plugin plugin, std::vector<Option> const& options, KeyValueStore store)
      : plugin_{plugin}, store_{std::move(store)} {
    auto values = std::vector<api::NamedValue>{};
    for (auto const& option : options) {
      expect_safe(option);
      values.push_back(named_value(option));
    }
    auto create = api::ClientCreate{.options = values.data(), .num_options = values.size()};
    if (store_) connect(create, store_);
    plugin_.call(create);
    handle_ = create.client;
    try {
      read_devices();
    } catch (...) {
      destroy();
      throw;
    }
  }

  ~Connection() {
    wait();
    free_programs();
    destroy();
  }
  Connection(Connection const&)            = delete;
  Connection& operator=(Connection const&) = delete;

  Plugin const& plugin() const { return plugin_; }
  api::Client* handle() const { return handle_; }
  std::vector<DeviceInfo> const& devices() const { return devices_; }  // of all processes
  std::vector<DeviceInfo> const& own_devices() const { return own_; }  // of this process

  /// throws  BadArgument when this process has no device of that id
  api::Device* device(int id) const {
    for (std::size_t i = 0; i < own_.size(); ++i)
      if (own_[i].id == id) return own_handles_[i];
    throw BadArgument{sentence("this process has no device {} of the PJRT plug-in {}: it has {} devices, {}.", id,
                               plugin_.path(), own_.size(), ids_text()),
                      "an id that Client::devices() has."};
  }
  int id_of(api::Device* device) const {
    auto description = api::DescriptionOf{.handle = device};
    plugin_.call(description);
    return info_of(plugin_, description.value).id;
  }

  /// Held while a program is started: replicas of two programs that two threads start are then in the same order on all
  /// devices, without which each could wait for the other.
  std::unique_lock<std::mutex> starting() { return std::unique_lock{starting_}; }

  /// Most runs of one client that have not ended: plug-ins for CPUs hang for ever when more than 32 of a program with
  /// an all-reduce are waiting.
  static constexpr int most_runs = 8;

  /// Returns when fewer than most_runs on that many devices have not ended.
  void wait_for_room(std::size_t devices) {
    auto lock = std::unique_lock{mutex_};
    some_ended_.wait(lock, [&] { return running_ <= (most_runs - 1) * static_cast<int>(devices); });
  }

  /// Counts work that was started until its event is there, and frees the event.
  void follow(api::Event* event) {
    auto* const work = add(event);
    auto on_ready    = api::EventOnReady{.event = event, .callback = &ended, .user = work};
    if (auto* const error = plugin_.try_call(on_ready)) ended(error, work);
  }

  /// Takes a program that is not used any more, to free it before the next compilation or with the client. Plug-ins for
  /// CPUs free the last one on a thread of their own, and abort the process where that is ending: it may not be the last
  /// thing that a process does.
  void retire(api::LoadedExecutable* program) {
    auto const lock = std::lock_guard{mutex_};
    retired_.push_back(program);
  }
  /// Frees what retire() has taken.
  void free_programs() noexcept {
    auto programs = std::vector<api::LoadedExecutable*>{};
    {
      auto const lock = std::lock_guard{mutex_};
      programs.swap(retired_);
    }
    for (auto* const program : programs) free(program);
  }
  void free(api::LoadedExecutable* program) noexcept {
    auto record = api::LoadedDestroy{.handle = program};
    plugin_.drop(plugin_.try_call(record));
  }

  /// Returns when all work that was started has ended.
  ///
  /// throws  PluginError when some of it failed since the last call; its results throw as well when they are read
  void synchronize() {
    wait();
    auto failed = std::optional<std::pair<int, std::string>>{};
    {
      auto const lock = std::lock_guard{mutex_};
      failed.swap(failed_);
    }
    if (failed)
      throw PluginError{failed->first, failed->second,
                        sentence("work on devices of the PJRT plug-in {} failed: {} (code {}, {}).", plugin_.path(),
                                 first_line(failed->second), failed->first, code_name(failed->first))};
  }

 private:
  /// Work that was started: one execution on one device.
  struct Work {
    api::Event* event = nullptr;
    Work* next_free   = nullptr;
    std::atomic<Connection*> connection{nullptr};  // written last, read first: by a thread of the plug-in
  };

  void read_devices() {
    auto all = api::ClientDevices{.handle = handle_};
    auto own = api::OwnDevices{.handle = handle_};
    plugin_.call(all);
    plugin_.call(own);
    auto const info = [&](api::Device* device) {
      auto description = api::DescriptionOf{.handle = device};
      plugin_.call(description);
      return info_of(plugin_, description.value);
    };
    for (std::size_t i = 0; i < all.size; ++i) devices_.push_back(info(all.values[i]));
    for (std::size_t i = 0; i < own.size; ++i) own_.push_back(info(own.values[i]));
    own_handles_.assign(own.values, own.values + own.size);
    if (own_.empty())
      throw Error{"the client of the PJRT plug-in " + plugin_.path() + " has no device in this process."};
  }

  std::string ids_text() const {
    auto text = std::string{};
    for (auto const& device : own_) text.append(text.empty() ? "" : " ") += std::to_string(device.id);
    return text;
  }

  void destroy() noexcept {
    auto record = api::ClientDestroy{.handle = handle_};
    plugin_.drop(plugin_.try_call(record));
  }

  Work* add(api::Event* event) {
    auto const lock = std::lock_guard{mutex_};
    ++running_;
    auto* work = free_;
    if (work != nullptr) free_ = work->next_free;
    else work = &works_.emplace_back();  // only when more works than ever before are running
    work->event = event;
    work->connection.store(this, std::memory_order_release);
    return work;
  }

  /// Called by the plug-in, on any thread, when work has ended.
  static void ended(api::Error* error, void* user) noexcept {
    auto* const work  = static_cast<Work*>(user);
    auto& self        = *work->connection.load(std::memory_order_acquire);
    auto destroy      = api::EventDestroy{.handle = work->event};
    auto const plugin = self.plugin_;
    auto said         = std::optional<std::pair<int, std::string>>{};
    if (error != nullptr) said = plugin.take(error);
    plugin.drop(plugin.try_call(destroy));
    auto const lock = std::lock_guard{self.mutex_};  // held to the end: the last one lets the destructor go on
    if (said && !self.failed_) self.failed_ = std::move(said);
    work->next_free = self.free_;
    self.free_      = work;
    --self.running_;
    self.some_ended_.notify_all();
  }

  void wait() {
    auto lock = std::unique_lock{mutex_};
    some_ended_.wait(lock, [&] { return running_ == 0; });
  }

  Plugin plugin_;
  KeyValueStore store_;
  api::Client* handle_ = nullptr;
  std::vector<DeviceInfo> devices_, own_;
  std::vector<api::Device*> own_handles_;
  std::mutex starting_;
  std::mutex mutex_;
  std::condition_variable some_ended_;
  std::deque<Work> works_;
  std::vector<api::LoadedExecutable*> retired_;
  Work* free_  = nullptr;
  int running_ = 0;
  std::optional<std::pair<int, std::string>> failed_;
};

}  // namespace detail

}  // namespace chorale::pjrt
