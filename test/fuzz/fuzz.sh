#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh NAME SECONDS: looks for inputs under which a property of test/fuzz/NAME_target.hpp does not hold,
# with clang's libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer. What reaches code that no other input reached
# goes to a folder of its own; then the smallest set that reaches as much replaces test/fuzz/corpus/NAME.
set -euo pipefail
name=${1:?the NAME of a NAME_fuzzer.cpp} seconds=${2:?seconds}
cd "$(dirname "$0")/../.."
corpus=test/fuzz/corpus/$name
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/found" "$work/least" "$corpus"

libraries=(-lcrypto -lz)
[[ $name != peer_* ]] || libraries+=(-ldnnl -lgomp)
[[ $name != image_* ]] || libraries+=(-lpng -ljpeg)
clang++ -std=c++20 -O1 -g -march=x86-64-v3 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
        -Iinclude -I. "test/fuzz/${name}_fuzzer.cpp" "${libraries[@]}" -o "$work/fuzzer"

# What it finds wrong is left here, in a file crash-..., so that it can be run again.
"$work/fuzzer" -max_total_time="$seconds" -rss_limit_mb=512 -max_len=1024 -print_final_stats=1 "$work/found" "$corpus"

"$work/fuzzer" -set_cover_merge=1 "$work/least" "$corpus" "$work/found"
rm -f "$corpus"/*
cp "$work/least"/* "$corpus"
echo "PASSED: $name: $(ls "$corpus" | wc -l) inputs, $(du -sb "$corpus" | cut -f1) bytes"
