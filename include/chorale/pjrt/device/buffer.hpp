// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/pjrt/device/api_programs.hpp>
#include <chorale/pjrt/device/connection.hpp>
#include <chorale/pjrt/device/shape.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace chorale::pjrt {

/// Something that a device will have done: a copy, for example. Its destructor waits.
///
/// keeps   movable; after wait() it is done
class Event {
 public:
  Event() = default;
  Event(std::shared_ptr<detail::Connection> connection, api::Event* event)
      : connection_{std::move(connection)}, event_{event} {}
  Event(Event&& other) noexcept
      : connection_{std::move(other.connection_)}, event_{std::exchange(other.event_, nullptr)} {}
  Event& operator=(Event&& other) noexcept {
    std::swap(connection_, other.connection_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_ == nullptr) return;
    auto await = api::EventAwait{.handle = event_};
    connection_->plugin().drop(connection_->plugin().try_call(await));
    destroy();
  }

  bool ready() const {
    if (event_ == nullptr) return true;
    auto question = api::EventIsReady{.handle = event_};
    connection_->plugin().call(question);
    return question.value;
  }

  /// Returns when it is done.
  ///
  /// throws  PluginError when it failed
  void wait() {
    if (event_ == nullptr) return;
    auto await        = api::EventAwait{.handle = event_};
    auto* const error = connection_->plugin().try_call(await);
    destroy();
    if (error != nullptr) connection_->plugin().fail(error, "work on a device");
  }

 private:
  void destroy() noexcept {
    auto record = api::EventDestroy{.handle = std::exchange(event_, nullptr)};
    connection_->plugin().drop(connection_->plugin().try_call(record));
  }

  std::shared_ptr<detail::Connection> connection_;
  api::Event* event_ = nullptr;
};

/// An array in the memory of one device of a client.
///
/// keeps   movable. Made by Client::put and Executable::run; a default one is empty. After it was donated to a run,
///         its memory belongs to a result of that run, and every use of it throws
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<detail::Connection> connection, api::Buffer* buffer, Shape const& shape, int device)
      : connection_{std::move(connection)}, buffer_{buffer}, shape_{shape}, device_{device} {}
  Buffer(Buffer&& other) noexcept
      : connection_{std::move(other.connection_)}, buffer_{std::exchange(other.buffer_, nullptr)}, shape_{other.shape_},
        device_{other.device_}, donated_{other.donated_} {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this == &other) return *this;
    reset();
    connection_ = std::move(other.connection_);
    buffer_     = std::exchange(other.buffer_, nullptr);
    shape_      = other.shape_;
    device_     = other.device_;
    donated_    = other.donated_;
    return *this;
  }
  ~Buffer() { reset(); }

  Shape const& shape() const { return shape_; }
  int device() const { return device_; }  // its id
  bool donated() const { return donated_; }
  explicit operator bool() const { return buffer_ != nullptr && !donated_; }

  /// Copies the elements to the host, row-major, after the work that computes them.
  ///
  /// bytes   size of the memory at `to`: the bytes of the shape
  /// throws  BadArgument when the buffer is empty or was donated, or the size differs; PluginError when the work that
  ///         computes it failed
  void get(void* to, std::size_t bytes) const { get_later(to, bytes).wait(); }

  /// Starts get(); the memory at `to` has to stay until the event is done.
  Event get_later(void* to, std::size_t bytes) const {
    expect_usable("read");
    CHORALE_EXPECTS(bytes == shape_.bytes(), sentence("a buffer of tensor<{}> has {} bytes, and {} are to be read",
                                                      shape_.text(), shape_.bytes(), bytes));
    auto order      = std::array<std::int64_t, Dims::most>{};  // row-major: the last dimension is fastest
    auto const rank = shape_.dims.size();
    for (std::size_t i = 0; i < rank; ++i) order[i] = static_cast<std::int64_t>(rank - 1 - i);
    auto layout = api::Layout{.tiled = {.minor_to_major = order.data(), .minor_to_major_size = rank}};
    auto copy   = api::BufferToHost{.source = buffer_, .host_layout = &layout, .to = to, .bytes = bytes};
    connection_->plugin().call(copy);
    return Event{connection_, copy.event};
  }

  /// When the elements are computed.
  Event ready() const {
    expect_usable("waited for");
    auto record = api::BufferReady{.handle = buffer_};
    connection_->plugin().call(record);
    return Event{connection_, record.value};
  }

  /// Throws BadArgument when the buffer is empty or was donated. what: done with it, "read"
  void expect_usable(std::string_view what) const {
    if (buffer_ != nullptr && !donated_) return;
    if (donated_)
      throw BadArgument{sentence("a buffer of tensor<{}> on device {} cannot be {}: it was donated to a run.",
                                 shape_.text(), device_, what),
                        "the result of that run that has its memory, or a program that does not donate this argument."};
    throw BadArgument{sentence("an empty buffer cannot be {}.", what), "a buffer of Client::put or Executable::run."};
  }

  api::Buffer* handle() const { return buffer_; }
  std::shared_ptr<detail::Connection> const& connection() const { return connection_; }
  void mark_donated() { donated_ = true; }  // by Executable::run

 private:
  void reset() noexcept {
    if (buffer_ == nullptr) return;
    auto record = api::BufferDestroy{.handle = std::exchange(buffer_, nullptr)};
    connection_->plugin().drop(connection_->plugin().try_call(record));
  }

  std::shared_ptr<detail::Connection> connection_;
  api::Buffer* buffer_ = nullptr;
  Shape shape_{};
  int device_   = -1;
  bool donated_ = false;
};

}  // namespace chorale::pjrt
