// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<zlib.h>)
#error \
    "chorale: <zlib.h> is not on the include path. Try: apt-get install zlib1g-dev (Debian), dnf install \
zlib-devel (Fedora), brew install zlib (Homebrew) or vcpkg install zlib"
#endif

#include <chorale/core/error.hpp>
#include <chorale/core/input_file.hpp>
#include <chorale/core/types.hpp>

#include <fcntl.h>
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
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

/// The bytes of a file, or of a part of it, from the first to the last, unpacked. Offsets count unpacked bytes.
///
/// cost    a buffer of 256 KiB, whatever the file promises
/// throws  BadFile with file, part and byte: when it cannot be opened or read, or is not a regular file, or when its
///         packed data is damaged
class ByteSource {
 public:
  explicit ByteSource(std::filesystem::path const& file, Compression packed = Compression::detect)
      : ByteSource{std::make_shared<InputFile>(file), file.string(), 0, no_end} {
    ::posix_fadvise(file_->number(), 0, 0, POSIX_FADV_SEQUENTIAL);  // only advice: a failure does no harm
    refill();
    gzip_magic_ = in_.size() >= 2 && in_[0] == std::byte{0x1f} && in_[1] == std::byte{0x8b};
    zlib_magic_ = in_.size() >= 2 && in_[0] == std::byte{0x78} &&
                  (in_[1] == std::byte{0x01} || in_[1] == std::byte{0x5e} || in_[1] == std::byte{0x9c} ||
                   in_[1] == std::byte{0xda});
    auto const gzip = packed == Compression::gzip || (packed == Compression::detect && gzip_magic_);
    if (gzip || packed == Compression::zlib) unpack_with(gzip ? gzip_bits : 15);
  }

  /// The `size` bytes of an open file from byte `begin` on, as they are or as a stream of deflate without a header.
  ///
  /// name    of the part, for errors: "arrays.npz: array x"
  ByteSource(std::shared_ptr<InputFile const> file, std::string name, std::uint64_t begin, std::uint64_t size,
             bool deflated = false)
      : file_{std::move(file)}, name_{std::move(name)}, at_{begin}, begin_{begin},
        end_{size == no_end ? no_end : begin + size} {
    if (deflated) unpack_with(raw_bits);
  }

  std::filesystem::path const& path() const { return file_->path(); }
  std::uint64_t offset() const { return offset_; }  // of the next byte
  bool is_packed() const { return unpack_ != nullptr; }
  bool looks_like_gzip() const { return gzip_magic_; }  // by the first bytes of the file
  bool looks_like_zlib() const { return zlib_magic_; }

  /// Names the part of the file that is being read, for errors: "record 3, byte 120".
  void part(char const* kind, std::uint64_t number) { kind_ = kind, number_ = number; }

  /// An upper bound of all bytes, unpacked.
  ///
  /// source  zlib's technical details: deflate packs at most 1032 bytes into one
  std::uint64_t most() const { return !unpack_ ? stored() : stored() < no_end / 1032 ? 1032 * stored() : no_end; }

  /// Refuses a header that promises more than the file can hold, before memory is allocated for it.
  ///
  /// bytes    promised from here on; promise: such as "the header promises 24 bytes of data"
  void expect_room_for(std::uint64_t bytes, std::string const& promise) const {
    auto const holds = most();
    if (offset_ <= holds && bytes <= holds - offset_) return;
    if (!unpack_)
      fail(holds, promise + ", but the file ends after " + std::to_string(holds - std::min(offset_, holds)), again);
    fail(promise + ", but a file of " + std::to_string(stored()) + " packed bytes holds at most " +
             std::to_string(holds),
         again);
  }

  /// Bytes of a text that are read unless a program says another number: up to 8 GiB; of a packed one up to 64 times
  /// its packed bytes, or 64 MiB, since a small file can unpack to anything.
  std::uint64_t most_text() const {
    auto const whole = std::uint64_t{8} << 30;
    return unpack_ ? std::min(whole, std::max(std::uint64_t{64} << 20, 64 * stored())) : whole;
  }

  /// Refuses a text of more bytes than `most`; 0: than most_text(). Of a packed one the bytes that were read count.
  ///
  /// option  by which a program says another number: "read_text(path, most)"
  void expect_at_most(std::uint64_t most, char const* option) const {
    auto const limit = most == 0 ? most_text() : most;
    auto const bytes = unpack_ ? offset_ : std::max(offset_, stored());
    if (bytes > limit)
      fail(unpack_ ? std::to_string(stored()) + " packed bytes become more than " + std::to_string(limit)
                   : std::to_string(bytes) + " bytes, but at most " + std::to_string(limit) + " are read",
           std::string{option} + " with the bytes that it should have");
  }

  /// Reads up to out.size() bytes; fewer only at the end of the file.
  std::size_t read(Bytes out) {
    auto const got = unpack_ ? read_unpacked(out) : read_plain(out);
    if (begin_ > 0) crc_ = ::crc32_z(crc_, reinterpret_cast<Bytef const*>(out.data()), got);
    return got;
  }

  /// CRC-32 of the bytes that read() gave, of a part of a file that does not begin at its first byte.
  std::uint64_t checksum() const { return crc_; }

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
  template <class Container> std::size_t append(Container& to, std::size_t n) {
    return chorale::detail::append_read(to, n, [this](Bytes out) { return read(out); });
  }

  [[noreturn]] void fail(std::string const& what, std::string const& what_to_try) const {
    fail(offset_, what, what_to_try);
  }
  [[noreturn]] void fail(std::uint64_t at, std::string const& what, std::string const& what_to_try) const {
    throw BadFile{name_ + ": " + (kind_ != nullptr ? kind_ + (" " + std::to_string(number_)) + ", " : "") + "byte " +
                      std::to_string(at) + ": " + what + ".",
                  what_to_try + "."};
  }
  static constexpr auto again = "fetch it again";

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{1} << 18;
  static constexpr auto no_end              = std::numeric_limits<std::uint64_t>::max();
  static constexpr int gzip_bits = 15 + 16, raw_bits = -15;  // of zlib's window, and with which header

  struct Unpack {
    z_stream z{};
    ~Unpack() { inflateEnd(&z); }
  };

  void unpack_with(int window_bits) {
    unpack_ = std::make_unique<Unpack>();
    gzip_   = window_bits == gzip_bits;
    packed_ = gzip_ ? "the gzip" : window_bits == raw_bits ? "the packed data" : "the zlib stream";
    if (inflateInit2(&unpack_->z, window_bits) != Z_OK) no_memory();
  }

  [[noreturn]] void no_memory() const { throw OutOfMemory{"no memory to unpack " + name_ + "."}; }

  /// Bytes of the file that belong to this source: packed ones if it is packed.
  std::uint64_t stored() const { return end_ == no_end ? file_->size() : end_ - begin_; }

  std::size_t from_file(Bytes out) {
    auto const room = std::min<std::uint64_t>(out.size(), end_ - at_);
    auto const got  = file_->read_at(at_, out.first(static_cast<std::size_t>(room)));
    at_ += got;
    return got;
  }

  void refill() {
    buffer_.resize(buffer_bytes);
    in_ = Bytes{buffer_}.first(from_file(buffer_));
  }

  /// Moves the unread bytes to the front of the buffer, and fills the rest until it has n bytes or the file ends.
  void fetch(std::size_t n) {
    buffer_.resize(buffer_bytes);
    std::copy(in_.begin(), in_.end(), buffer_.begin());  // to the left: may overlap
    auto have = in_.size();
    in_       = Bytes{buffer_}.first(have);  // valid if the next line throws
    for (auto got = n; have < n && got > 0; have += got) got = from_file(Bytes{buffer_}.subspan(have));
    in_ = Bytes{buffer_}.first(have);
  }

  std::size_t read_plain(Bytes out) {
    auto done = std::size_t{0};
    while (done < out.size()) {
      auto const left = out.subspan(done);
      auto got        = std::min(left.size(), in_.size());
      if (got > 0) std::copy_n(in_.begin(), got, left.begin()), in_ = in_.subspan(got);
      else if (left.size() >= buffer_bytes) got = from_file(left);  // large reads need no buffer
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
      auto const name = [this] { return std::string{packed_}; };
      if (in_.empty()) fail(name() + " ends in the middle", again);
      if (between_members_ && !gzip_) fail(name() + " has ended, but the file goes on", again);
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
        fail(name() + " is damaged (" + (z.msg != nullptr ? z.msg : "it needs a dictionary") + ")", again);
      between_members_ = said == Z_STREAM_END;
    }
    return done;
  }

  std::shared_ptr<InputFile const> file_;
  std::string name_;                // for errors
  std::uint64_t at_, begin_, end_;  // in the file: of the next byte, the first, beyond the last
  std::vector<std::byte> buffer_;
  Bytes in_;                        // of buffer_, read but not used yet
  std::unique_ptr<Unpack> unpack_;  // zlib's state points to itself: it must not move
  char const* packed_ = "";         // how, for errors
  bool gzip_ = false, gzip_magic_ = false, zlib_magic_ = false;
  bool between_members_ = false;  // the end, unless another gzip follows
  std::uint64_t offset_ = 0, crc_ = 0;
  char const* kind_     = nullptr;
  std::uint64_t number_ = 0;
};

}  // namespace chorale::data
