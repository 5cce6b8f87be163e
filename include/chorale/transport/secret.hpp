// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<openssl/evp.h>)
#error \
    "chorale: <openssl/evp.h> is not on the include path. Try: apt-get install libssl-dev (Debian), dnf \
install openssl-devel (Fedora), brew install openssl@3 (Homebrew) or vcpkg install openssl"
#endif

#if defined(CHORALE_COMPONENTS) && !defined(CHORALE_COMPONENT_TCP)
#error \
    "chorale: this header is of the component tcp. Try: add chorale::tcp to target_link_libraries(), or \
chorale-tcp to pkg-config"
#endif

#include <chorale/core/error.hpp>
#include <chorale/core/file_descriptor.hpp>
#include <chorale/core/types.hpp>

#include <openssl/crypto.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace chorale {

/// Secret that only the ranks of a job share, of 16 to 4096 bytes. With one, strangers cannot join.
///
///   openssl rand -hex 32 > job.secret && chmod 600 job.secret
///
/// keeps   copies share the bytes, which are wiped with the last copy; a secret cannot be written to a stream
/// throws  BadArgument when there are too few bytes or too many, BadFile when the file may be read by others
class Secret {
 public:
  static constexpr std::size_t least = 16, most = 4096;  // bytes

  explicit Secret(ConstBytes bytes) : bytes_{kept(bytes)} { expect_size("a secret", bytes.size()); }

  /// Reads a secret from a file, without a line break at its end.
  ///
  /// keeps   the file must belong to this user or to root, and nobody else may read or write it
  static Secret from_file(std::filesystem::path const& path) {
    auto const file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // do not block on a named pipe
    if (file < 0) refuse(path, "cannot be opened: " + std::generic_category().message(errno), "a file that exists.");
    auto buffer      = Wiped{most + 3};  // a line break, and one byte too many
    auto const wrong = why_not(file);
    auto size        = std::size_t{0};
    auto got         = ::ssize_t{1};
    while (wrong.empty() && got > 0 && size < buffer.bytes.size()) {
      got = ::read(file, buffer.bytes.data() + size, buffer.bytes.size() - size);
      if (got > 0) size += static_cast<std::size_t>(got);
    }
    auto const number = errno;
    ::close(file);
    if (!wrong.empty()) refuse(path, wrong, "chmod 600 " + path.string() + ", as the user who runs the job.");
    if (got < 0) refuse(path, "cannot be read: " + std::generic_category().message(number), "another file.");
    auto text = std::string_view{reinterpret_cast<char const*>(buffer.bytes.data()), size};
    if (text.ends_with('\n')) text.remove_suffix(1);
    if (text.ends_with('\r')) text.remove_suffix(1);
    expect_size(path.string(), text.size());
    return Secret{std::as_bytes(Span<char const>{text})};
  }

  /// Reads the file that CHORALE_SECRET_FILE names, else CHORALE_SECRET itself; empty if neither is set.
  static std::optional<Secret> from_env() {
    if (auto const* path = std::getenv("CHORALE_SECRET_FILE")) return from_file(path);
    if (auto const* text = std::getenv("CHORALE_SECRET")) {
      expect_size("CHORALE_SECRET", std::string_view{text}.size());
      return Secret{std::as_bytes(Span<char const>{std::string_view{text}})};
    }
    return std::nullopt;
  }

  ConstBytes bytes() const { return bytes_->bytes; }

  friend std::ostream& operator<<(std::ostream&, Secret const&) = delete;

 private:
  struct Wiped {
    explicit Wiped(std::size_t n) : bytes(n) {}
    ~Wiped() { OPENSSL_cleanse(bytes.data(), bytes.size()); }
    Wiped(Wiped const&)            = delete;
    Wiped& operator=(Wiped const&) = delete;

    std::vector<std::byte> bytes;
  };

  static std::shared_ptr<Wiped const> kept(ConstBytes bytes) {
    auto wiped = std::make_shared<Wiped>(bytes.size());
    std::ranges::copy(bytes, wiped->bytes.begin());
    return wiped;
  }

  static void expect_size(std::string const& what, std::size_t size) {
    if (size >= least && size <= most) return;
    throw BadArgument{what + " has " + std::to_string(size) + " bytes, and a secret has " + std::to_string(least) +
                          " to " + std::to_string(most) + ".",
                      "openssl rand -hex 32"};
  }

  static std::string why_not(int file) {
    struct stat status{};
    if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return "is not a file";
    if (status.st_uid != ::geteuid() && status.st_uid != 0)
      return "belongs to user " + std::to_string(status.st_uid) + ", and this is user " + std::to_string(::geteuid());
    auto const mode = status.st_mode & 0777U;
    if ((mode & 0077U) == 0) return {};
    return "may be read or written by others: its mode is " + mode_text(mode) + ", and must be 0600 or 0400";
  }

  [[noreturn]] static void refuse(std::filesystem::path const& path, std::string const& why, std::string const& what) {
    throw BadFile{path.string() + ": " + why + ".", what};
  }

  std::shared_ptr<Wiped const> bytes_;
};

}  // namespace chorale
