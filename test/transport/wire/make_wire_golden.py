#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints test/transport/wire/wire_golden.hpp: messages as docs/55-wire.md describes them, made without chorale.

Needs the package `cryptography` for AES-GCM. Everything else is Python's own.
"""
import hashlib
import hmac
import struct

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SECRET = b"a secret of more than 16 bytes"
JOB = b"mnist\0\0\0\0\0\0\0\0\0\0\0"
PLAN = hashlib.sha256(b"dense/kernel f32[784,512]\ndense/bias f32[512]\n").digest()
NONCES = bytes(range(32)), bytes(range(100, 132))
LABEL = "chorale 1 "


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def header(payload):
    """Of a data frame: rank 2, incarnation 5, to rank 1; operation 7, all_reduce (min) of 400 doubles under tag 9,
    with root 3."""
    head = struct.pack("<4sBBBBIiiIQQQBBBBII", b"\xC4hr\r", 2, 0, 1, 0x80, 5, 2, 1, 9, 7, 400, len(payload), 1, 1, 2, 4,
                       0xDEADBEEF, crc32c(payload))
    return head + struct.pack("<I", crc32c(head))


def abort():
    host, operation, reason = b"10.0.0.4:4400", b"all_reduce (sum) of 400 float", b"it closed the connection"
    return struct.pack("<BBBBiQQ", 1, len(host), len(operation), len(reason), 3, 7, 812) + host + operation + reason


def heartbeat():
    return struct.pack("<QQQB", 7, 812, 123_456_789, 6) + b"host-b"


def prefix(kind):
    return struct.pack("<8sBBBB", b"\xC4horale\r", 2, 0, kind, 1)


def identity(rank, to, incarnation):
    return JOB + struct.pack("<iiiIBBH", rank, to, 4, incarnation, 1, 2, 0) + PLAN


def proved(message, label, transcript):
    return message + hmac.new(SECRET, (LABEL + label).encode() + transcript + message, hashlib.sha256).digest()


def handshake():
    client_hello = prefix(1) + identity(2, 0, 5) + NONCES[0]
    server_head = prefix(2) + NONCES[1]
    said = client_hello + server_head
    text = b"two processes claim to be rank 2"
    return {
        "client_hello": client_hello,
        "server_hello": proved(server_head, "server", said),
        "client_auth": proved(prefix(3), "client", said),
        "accept": proved(prefix(4) + identity(0, 2, 6), "accept", said),
        "refuse": proved(prefix(5) + struct.pack("<BBH", 9, len(text), 0) + text, "refuse", said),
    }


def session_key():
    extracted = hmac.new(NONCES[0] + NONCES[1], SECRET, hashlib.sha256).digest()
    return hmac.new(extracted, (LABEL + "frames").encode() + b"\x01", hashlib.sha256).digest()


def sealed(payload):
    """The second frame from the dialer to the acceptor."""
    return AESGCM(session_key()[:16]).encrypt(struct.pack("<4xQ", 1), payload, header(payload))


def main():
    payload = bytes(range(64)) * 3
    messages = {"header": header(payload), "abort": abort(), "heartbeat": heartbeat(), **handshake(),
                "session_key": session_key(), "sealed": sealed(payload)}
    print("// SPDX-License-Identifier: Apache-2.0\n#pragma once\n\n#include <string_view>\n")
    print("/// Made by test/transport/wire/make_wire_golden.py, which knows docs/55-wire.md and not our code. Hexadecimal.")
    print("namespace chorale::test::golden {\n")
    for name, message in messages.items():
        digits = message.hex()
        rows = [digits[i:i + 96] for i in range(0, len(digits), 96)]
        print(f"inline constexpr std::string_view {name} =")
        print("\n".join(f'    "{row}"' for row in rows) + ";\n")
    print("}  // namespace chorale::test::golden")


main()
