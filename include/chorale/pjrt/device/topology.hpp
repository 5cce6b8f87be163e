// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/pjrt/device/api_programs.hpp>
#include <chorale/pjrt/device/connection.hpp>
#include <chorale/pjrt/device/plugin.hpp>
#include <chorale/pjrt/device/program.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace chorale::pjrt {

/// Devices by the name of their arrangement, which need not be present: "v5e:2x4" is 8 TPUs of one slice.
///
/// keeps   movable
class DeviceTopology {
 public:
  /// throws  PluginError with the forms of names that the plug-in knows
  DeviceTopology(Plugin plugin, std::string const& name) : plugin_{plugin} {
    auto create = api::TopologyCreate{.name = name.data(), .name_size = name.size()};
    if (auto* const error = plugin_.try_call(create)) plugin_.fail(error, "the topology " + in_quotes(name));
    handle_ = create.topology;
    try {
      auto list = api::TopologyDevices{.handle = handle_};
      plugin_.call(list);
      for (std::size_t i = 0; i < list.size; ++i) devices_.push_back(detail::info_of(plugin_, list.values[i]));
    } catch (...) {
      destroy();
      throw;
    }
  }
  DeviceTopology(DeviceTopology&& other) noexcept
      : plugin_{other.plugin_}, handle_{std::exchange(other.handle_, nullptr)}, devices_{std::move(other.devices_)} {}
  DeviceTopology& operator=(DeviceTopology&&) = delete;
  ~DeviceTopology() { destroy(); }

  std::vector<DeviceInfo> const& devices() const { return devices_; }
  std::string platform() const { return text<api::TopologyName>(); }
  std::string version() const { return text<api::TopologyVersion>(); }

  /// Compiles a module of StableHLO for the first devices, one replica on each. See Client::compile.
  CompiledProgram compile(std::string text, int replicas) const {
    CHORALE_EXPECTS(replicas >= 1 && static_cast<std::size_t>(replicas) <= devices_.size(),
                    sentence("{} replicas do not fit on the {} devices of the topology", replicas, devices_.size()));
    auto ids = std::vector<int>{};
    for (std::size_t i = 0; i < static_cast<std::size_t>(replicas); ++i) ids.push_back(devices_[i].id);
    auto const options = detail::compile_options(replicas, ids);
    auto const program = detail::program_of(text);
    auto record        = api::Compile{
               .topology = handle_, .program = &program, .options = options.data(), .options_size = options.size()};
    if (auto* const error = plugin_.try_call(record)) detail::fail_compile(plugin_, error, text);
    return CompiledProgram{plugin_, record.executable};
  }

 private:
  template <class Record> std::string text() const {
    auto record = Record{.handle = handle_};
    plugin_.call(record);
    return {record.text, record.size};
  }

  void destroy() noexcept {
    if (handle_ == nullptr) return;
    auto record = api::TopologyDestroy{.handle = std::exchange(handle_, nullptr)};
    plugin_.drop(plugin_.try_call(record));
  }

  Plugin plugin_;
  api::Topology* handle_ = nullptr;
  std::vector<DeviceInfo> devices_;
};

/// Compiles a module for devices that need not be there, ahead of time: compile_for(plugin, "v5e:2x4", text, 8).
///
/// throws  PluginError when the plug-in does not know the topology; CompileError as Client::compile
inline CompiledProgram compile_for(Plugin plugin, std::string const& topology, std::string text, int replicas) {
  return DeviceTopology{plugin, topology}.compile(std::move(text), replicas);
}

}  // namespace chorale::pjrt
