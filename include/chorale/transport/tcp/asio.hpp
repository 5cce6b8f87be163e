// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<boost/asio.hpp>)
#error \
    "chorale: <boost/asio.hpp> is not on the include path. Try: apt-get install libboost1.81-dev (Debian), dnf \
install boost-devel (Fedora), brew install boost (Homebrew) or vcpkg install boost-asio"
#endif

#if defined(CHORALE_COMPONENTS) && !defined(CHORALE_COMPONENT_TCP)
#error \
    "chorale: this header is of the component tcp. Try: add chorale::tcp to target_link_libraries(), or \
chorale-tcp to pkg-config"
#endif

// The only file that includes Asio: some of its versions use std::exchange without its header.
#include <utility>

// The thread sanitizer of g++ does not support fences. Each io_context here has one thread, and needs none.
#if defined(__SANITIZE_THREAD__) && !defined(BOOST_ASIO_DISABLE_FENCED_BLOCK)
#define BOOST_ASIO_DISABLE_FENCED_BLOCK
#endif

#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

namespace chorale {

namespace asio = boost::asio;

}  // namespace chorale
