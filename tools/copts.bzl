# SPDX-License-Identifier: Apache-2.0
"""How our own targets are compiled; .bazelrc has what holds for everything."""

WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wshadow",
    "-Wconversion",
    "-Wno-missing-field-initializers",  # options are aggregates with defaults: {.epochs = 3} is how they are written
    "-Wno-unknown-warning-option",  # of clang, about the next one
    "-Wno-restrict",  # gcc 12 sees overlapping copies in "text" + std::string, where there are none
]

# Sanitizers change what gcc can see, so that it warns about values that are never used: there it is no error.
COPTS = WARNINGS + select({
    "//:sanitized": [],
    "//conditions:default": ["-Werror"],
})
