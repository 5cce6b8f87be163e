// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/device/pjrt/api_programs.hpp>
#include <chorale/device/pjrt/buffer.hpp>
#include <chorale/device/pjrt/connection.hpp>
#include <chorale/device/pjrt/executable.hpp>
#include <chorale/device/pjrt/key_value_store.hpp>
#include <chorale/device/pjrt/plugin.hpp>
#include <chorale/device/pjrt/program.hpp>
#include <chorale/device/pjrt/shape.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale::pjrt {

/// The devices of a plug-in that this process uses, and what is made for them: buffers and executables.
///
///   auto const client = Client{Plugin::open(path), {{"cpu_device_count", 8}}};
///   auto step         = client.compile(text, {.arguments = {x}, .results = {y}}, 8);
///
/// keeps   a value, cheap to copy; copies are one client. It ends with the last of its copies, buffers and executables
class Client {
 public:
  /// options   typed values by name. Plug-ins for CPUs have cpu_device_count, 4 by default; those for CUDA
  ///           memory_fraction, preallocate, allocator. A name that a plug-in does not know is ignored by some
  /// store     for clients of several processes that find one another; else empty
  /// throws    BadArgument for a value that the plug-in would abort for; PluginError when there is no device
  explicit Client(Plugin plugin, std::vector<Option> const& options = {}, KeyValueStore store = {})
      : connection_{std::make_shared<detail::Connection>(plugin, options, std::move(store))} {}

  Plugin const& plugin() const { return connection_->plugin(); }
  std::string platform() const { return text<api::PlatformName>(); }       // "cpu", "tpu", "cuda"
  std::string version() const { return text<api::PlatformVersion>(); }

  /// Number of this process among those of the job.
  int process() const {
    auto record = api::ProcessIndex{.handle = connection_->handle()};
    plugin().call(record);
    return record.value;
  }

  std::vector<DeviceInfo> const& devices() const { return connection_->own_devices(); }      // of this process
  std::vector<DeviceInfo> const& all_devices() const { return connection_->devices(); }      // of all processes

  /// Copies an array to a device. The host's memory may change when this returns.
  ///
  /// data     row-major, shape.bytes() bytes
  /// device   id of one of devices()
  Buffer put(void const* data, Shape const& shape, int device) const {
    auto record = start_put(data, shape, device, api::HostSemantics::only_during_call);
    auto buffer = Buffer{connection_, record.buffer, shape, device};
    Event{connection_, record.done_with_host_buffer}.wait();
    return buffer;
  }

  /// Starts put(): the host's memory has to stay as it is until `copied`, which is assigned, is done.
  Buffer put_later(void const* data, Shape const& shape, int device, Event& copied) const {
    auto record = start_put(data, shape, device, api::HostSemantics::until_transfer_completes);
    auto buffer = Buffer{connection_, record.buffer, shape, device};
    copied      = Event{connection_, record.done_with_host_buffer};
    return buffer;
  }

  /// Compiles a module of StableHLO, one replica on each of some devices.
  ///
  /// text        the module, with a public @main
  /// signature   what @main takes and gives
  /// replicas    at least 1
  /// devices     ids, one per replica; empty: the first ones of all_devices()
  /// throws      BadArgument when there are fewer devices, or the results are others; CompileError with the line and
  ///             column of the text
  Executable compile(std::string text, Signature signature, int replicas, std::vector<int> devices = {}) const {
    auto const& all = all_devices();
    CHORALE_EXPECTS(replicas >= 1, sentence("a program runs on at least 1 replica, got {}", replicas));
    if (devices.empty()) {
      if (static_cast<std::size_t>(replicas) > all.size())
        throw BadArgument{sentence("{} replicas do not fit on the {} devices of the PJRT plug-in {}.", replicas,
                                   all.size(), plugin().path()),
                          "fewer replicas, or the option cpu_device_count of a plug-in for CPUs."};
      for (std::size_t i = 0; i < static_cast<std::size_t>(replicas); ++i) devices.push_back(all[i].id);
    }
    CHORALE_EXPECTS(devices.size() == static_cast<std::size_t>(replicas),
                    sentence("{} replicas need as many devices, and {} are named", replicas, devices.size()));
    for (int const id : devices) {
      auto known = false;
      for (auto const& device : all) known = known || device.id == id;
      CHORALE_EXPECTS(known, sentence("there is no device {} among the {} of the PJRT plug-in {}", id, all.size(),
                                      plugin().path()));
    }
    auto const options = detail::compile_options(replicas, devices);
    auto const program = detail::program_of(text);
    auto record        = api::ClientCompile{.client = connection_->handle(), .program = &program,
                                            .options = options.data(), .options_size = options.size()};
    if (auto* const error = plugin().try_call(record)) detail::fail_compile(plugin(), error, text);
    return Executable{connection_, record.executable, std::move(signature)};
  }

  /// Returns when all runs of this client have ended.
  ///
  /// throws  PluginError when one of them failed
  void synchronize() const { connection_->synchronize(); }

  friend bool operator==(Client const&, Client const&) = default;          // the same client

 private:
  template <class Record>
  std::string text() const {
    auto record = Record{.handle = connection_->handle()};
    plugin().call(record);
    return {record.text, record.size};
  }

  api::BufferFromHost start_put(void const* data, Shape const& shape, int device, api::HostSemantics semantics) const {
    CHORALE_EXPECTS(bytes_of(shape.type) > 0, "a buffer cannot have elements of the type number " +
                                                  std::to_string(static_cast<int>(shape.type)));
    CHORALE_EXPECTS(data != nullptr || shape.bytes() == 0, "a buffer of tensor<" + shape.text() + "> has no data");
    auto record = api::BufferFromHost{.client = connection_->handle(), .data = data,
                                      .type = static_cast<int>(shape.type), .dims = shape.dims.data(),
                                      .num_dims = shape.dims.size(), .semantics = semantics,
                                      .device = connection_->device(device)};
    plugin().call(record);
    return record;
  }

  std::shared_ptr<detail::Connection> connection_;
};

}  // namespace chorale::pjrt
