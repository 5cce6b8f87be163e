// SPDX-License-Identifier: Apache-2.0
#pragma once

// The language features that the library needs. After #error a compiler continues, and thousands of errors follow; at
// a missing file it stops and prints the file's name. So the names of these files are sentences.
#if __cplusplus < 202002L
#include <chorale: the library is written in C++20. Compile with -std=c++20, by g++ 12 or clang++ 14, or later>
#elif !defined(__cpp_exceptions)
#include <chorale: the library reports errors by exceptions. Compile without -fno-exceptions>
#elif !defined(__cpp_rtti)
#include <chorale: the library and its standard library need type information. Compile without -fno-rtti>
#endif

/// The version of the library, for programs that check at compile time whether a feature is available.
#define CHORALE_VERSION_MAJOR 0
#define CHORALE_VERSION_MINOR 2
#define CHORALE_VERSION_PATCH 0

/// 1 in the headers of the compiled library, which tools/compiled.py makes from these.
#define CHORALE_FORM_COMPILED 0

// Who links with the compiled library defines CHORALE_COMPILED, and includes its headers.
#if defined(CHORALE_COMPILED) && !CHORALE_FORM_COMPILED
#include <chorale: the headers alone are included before those of the compiled library. Name chorale::compiled first>
#elif !defined(CHORALE_COMPILED) && CHORALE_FORM_COMPILED
#include <chorale: these headers need their library. Link with chorale::compiled, which defines CHORALE_COMPILED>
#endif

// Every object defines this name, in the compiled form as a thread_local. A linker refuses a name that is thread_local in
// one object and not in another. So objects of both forms do not link, and the name says why.
#if CHORALE_FORM_COMPILED
#define CHORALE_FORM_STORAGE thread_local
#else
#define CHORALE_FORM_STORAGE
#endif
extern "C" {
[[gnu::used, gnu::visibility("hidden")]] inline constinit CHORALE_FORM_STORAGE char
    chorale_over_headers_and_chorale_compiled_in_one_program_take_one_of_them = 0;
}
#undef CHORALE_FORM_STORAGE
