// SPDX-License-Identifier: Apache-2.0
#pragma once

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
