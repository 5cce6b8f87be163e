// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<zlib.h>)
#error "chorale: <zlib.h> is not on the include path. Try: apt-get install zlib1g-dev (Debian), dnf install \
zlib-devel (Fedora), brew install zlib (Homebrew) or vcpkg install zlib"
#endif

#include <chorale/core/error.hpp>
#include <chorale/core/file_descriptor.hpp>
#include <chorale/core/types.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace chorale::data {

/// How the bytes of a file are packed. `detect`: gzip when they begin with 1f 8b, else none.
enum class Compression { none, gzip, zlib, detect };

namespace detail {

/// Name and size of a file as ranks compare them; its folder may differ between hosts.
inline std::string file_text(std::filesystem::path const& file) {
  auto code        = std::error_code{};
  auto const bytes = std::filesystem::file_size(file, code);
  return "file " + file.filename().string() + (code ? "" : " of " + std::to_string(bytes) + " bytes");
}

}  // namespace detail

/// The bytes of a file from the first to the last, unpacked. Offsets are those of the unpacked bytes.
///
/// cost    a buffer of 256 KiB, whatever the file promises
/// throws  BadFile with file, part and byte: when it cannot be opened or read, or when its packed data is damaged
class ByteSource {
 public:
  explicit ByteSource(std::filesystem::path file, Compression packed = Compression::detect) : path_{std::move(file)} {
    auto code = std::error_code{};
    if (std::filesystem::is_directory(path_, code)) throw BadFile{path_.string() + ": is a folder.", "a file in it."};
    file_ = FileDescriptor{::open(path_.c_str(), O_RDONLY | O_CLOEXEC)};
    if (!file_.is_open())
      throw BadFile{path_.string() + ": cannot be opened: " + std::generic_category().message(errno) + ".",
                    "another path."};
    ::posix_fadvise(file_.number(), 0, 0, POSIX_FADV_SEQUENTIAL);          // only advice: a failure does no harm
    refill();
    gzip_magic_     = in_.size() >= 2 && in_[0] == std::byte{0x1f} && in_[1] == std::byte{0x8b};
    zlib_magic_     = in_.size() >= 2 && in_[0] == std::byte{0x78} && (in_[1] == std::byte{0x01} ||
                      in_[1] == std::byte{0x5e} || in_[1] == std::byte{0x9c} || in_[1] == std::byte{0xda});
    auto const gzip = packed == Compression::gzip || (packed == Compression::detect && gzip_magic_);
    if (gzip || packed == Compression::zlib) unpack_with(gzip ? 15 + 16 : 15);
  }

  std::filesystem::path const& path() const { return path_; }
  std::uint64_t offset() const { return offset_; }         // of the next byte
  bool looks_like_gzip() const { return gzip_magic_; }     // by the first bytes of the file
  bool looks_like_zlib() const { return zlib_magic_; }

  /// Names the part of the file that is being read, for errors: "record 3, byte 120".
  void part(char const* kind, std::uint64_t number) { kind_ = kind, number_ = number; }

  /// An upper bound of the bytes of the whole file, unpacked; nothing for a file without a size, such as a pipe.
  ///
  /// source  zlib's technical details: deflate packs at most 1032 bytes into one
  std::optional<std::uint64_t> most() const {
    struct stat status {};
    if (::fstat(file_.number(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
    return static_cast<std::uint64_t>(status.st_size) * (unpack_ ? 1032 : 1);
  }

  /// Refuses a header that promises more than the file can hold, before memory is allocated for it.
  ///
  /// bytes    promised from here on; promise: such as "the header promises 24 bytes of data"
  void expect_room_for(std::uint64_t bytes, std::string const& promise) const {
    auto const holds = most();
    if (!holds || (offset_ <= *holds && bytes <= *holds - offset_)) return;
    if (!unpack_) fail(*holds, promise + ", but the file ends after " + std::to_string(*holds - offset_), again);
    fail(promise + ", but a file of " + std::to_string(*holds / 1032) + " packed bytes holds at most " +
             std::to_string(*holds), again);
  }

  /// Reads up to out.size() bytes; fewer only at the end of the file.
  std::size_t read(Bytes out) { return unpack_ ? read_unpacked(out) : read_plain(out); }

  /// True if view(n) may be called: the file is not packed, and n bytes fit into the buffer.
  bool can_view(std::size_t n) const { return !unpack_ && n <= buffer_bytes; }

  /// Reads the next n bytes, which stay in the buffer until the next call; fewer only at the end of the file.
  ConstBytes view(std::size_t n) {
    if (in_.size() < n) fetch(n);
    auto const out = in_.first(std::min(n, in_.size()));
    in_            = in_.subspan(out.size());
    offset_ += out.size();
    return out;
  }

  /// Appends up to n bytes to `to`; fewer only at the end of the file.
  ///
  /// cost    memory in proportion to the bytes read, not to n
  template <class Byte>
  std::size_t append(std::vector<Byte>& to, std::size_t n) {
    static_assert(sizeof(Byte) == 1);
    constexpr auto step = std::size_t{1} << 20;
    auto const begin    = to.size();
    while (to.size() - begin < n) {
      auto const before = to.size(), left = n - (before - begin);
      to.resize(before + std::min(left, std::max(step, before - begin)));
      auto const got = read(std::as_writable_bytes(Span<Byte>{to}.subspan(before)));
      if (before + got == to.size()) continue;
      to.resize(before + got);
      break;
    }
    return to.size() - begin;
  }

  [[noreturn]] void fail(std::string const& what, std::string const& what_to_try) const {
    fail(offset_, what, what_to_try);
  }
  [[noreturn]] void fail(std::uint64_t at, std::string const& what, std::string const& what_to_try) const {
    throw BadFile{path_.string() + ": " + (kind_ != nullptr ? kind_ + (" " + std::to_string(number_)) + ", " : "") +
                      "byte " + std::to_string(at) + ": " + what + ".", what_to_try + "."};
  }
  static constexpr auto again = "fetch it again";

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{1} << 18;

  struct Unpack {
    z_stream z{};
    ~Unpack() { inflateEnd(&z); }
  };

  void unpack_with(int window_bits) {
    unpack_ = std::make_unique<Unpack>();
    gzip_   = window_bits > 15;
    if (inflateInit2(&unpack_->z, window_bits) != Z_OK) no_memory();
  }

  [[noreturn]] void no_memory() const { throw OutOfMemory{"no memory to unpack " + path_.string() + "."}; }

  std::size_t from_file(Bytes out) {
    for (;;) {
      auto const n = ::read(file_.number(), out.data(), out.size());
      if (n >= 0) return static_cast<std::size_t>(n);
      if (errno != EINTR) fail("cannot be read: " + std::generic_category().message(errno), "another disk");
    }
  }

  void refill() {
    buffer_.resize(buffer_bytes);
    in_ = Bytes{buffer_}.first(from_file(buffer_));
  }

  /// Moves the unread bytes to the front of the buffer, and fills the rest until it has n bytes or the file ends.
  void fetch(std::size_t n) {
    buffer_.resize(buffer_bytes);
    std::copy(in_.begin(), in_.end(), buffer_.begin());                    // to the left: may overlap
    auto have = in_.size();
    in_       = Bytes{buffer_}.first(have);                                // valid if the next line throws
    for (auto got = n; have < n && got > 0; have += got) got = from_file(Bytes{buffer_}.subspan(have));
    in_ = Bytes{buffer_}.first(have);
  }

  std::size_t read_plain(Bytes out) {
    auto done = std::size_t{0};
    while (done < out.size()) {
      auto const left = out.subspan(done);
      auto got        = std::min(left.size(), in_.size());
      if (got > 0) std::copy_n(in_.begin(), got, left.begin()), in_ = in_.subspan(got);
      else if (left.size() >= buffer_bytes) got = from_file(left);         // large reads need no buffer
      else if (refill(), in_.empty()) break;
      else continue;
      if (got == 0) break;
      done += got, offset_ += got;
    }
    return done;
  }

  std::size_t read_unpacked(Bytes out) {
    auto done = std::size_t{0};
    while (done < out.size()) {
      if (in_.empty()) refill();
      if (in_.empty() && between_members_) break;
      auto const name = std::string{gzip_ ? "the gzip" : "the zlib stream"};
      if (in_.empty()) fail(name + " ends in the middle", again);
      if (between_members_ && !gzip_) fail(name + " has ended, but the file goes on", again);
      if (between_members_) inflateReset(&unpack_->z);
      between_members_ = false;
      auto& z          = unpack_->z;
      auto const room  = static_cast<uInt>(std::min(out.size() - done, std::size_t{1} << 30));
      z.next_in        = reinterpret_cast<Bytef*>(in_.data());
      z.avail_in       = static_cast<uInt>(in_.size());
      z.next_out       = reinterpret_cast<Bytef*>(out.data() + done);
      z.avail_out      = room;
      auto const said  = inflate(&z, Z_NO_FLUSH);
      in_              = in_.last(z.avail_in);
      done += room - z.avail_out, offset_ += room - z.avail_out;
      if (said == Z_MEM_ERROR) no_memory();
      if (said != Z_OK && said != Z_STREAM_END && said != Z_BUF_ERROR)
        fail(name + " is damaged (" + (z.msg != nullptr ? z.msg : "it needs a dictionary") + ")", again);
      between_members_ = said == Z_STREAM_END;
    }
    return done;
  }

  std::filesystem::path path_;
  FileDescriptor file_;
  std::vector<std::byte> buffer_;
  Bytes in_;                                               // of buffer_, read but not used yet
  std::unique_ptr<Unpack> unpack_;                         // zlib's state points to itself: it must not move
  bool gzip_ = false, gzip_magic_ = false, zlib_magic_ = false;
  bool between_members_ = false;                           // the end, unless another gzip follows
  std::uint64_t offset_ = 0;
  char const* kind_     = nullptr;
  std::uint64_t number_ = 0;
};

}  // namespace chorale::data
