# SPDX-License-Identifier: Apache-2.0
# The Catch2 tests, in the units of Bazel: see test_units.py. Without those that need MPI, libtorch or CUDA, and without
# what is no Catch2 test: tools/test runs all.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
_chorale_find_package(catch2)
if(missing)
  message(FATAL_ERROR "${missing}")
endif()
chorale_components(tcp images)

add_library(chorale_test_main OBJECT test/support/catch_main.cpp)
target_include_directories(chorale_test_main PRIVATE ${includes})
target_compile_features(chorale_test_main PRIVATE cxx_std_20)

execute_process(
  COMMAND "${Python3_EXECUTABLE}" third_party/cmake/test_units.py "${PROJECT_BINARY_DIR}/units"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE units COMMAND_ERROR_IS_FATAL ANY)
file(GLOB builds CONFIGURE_DEPENDS test/*/BUILD)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${builds})
string(REPLACE ";" "|" units "${units}")
string(REPLACE "\n" ";" units "${units}")
foreach(unit IN LISTS units)
  if(NOT unit)
    continue()
  endif()
  string(REPLACE "|" ";" unit "${unit}")
  list(GET unit 0 name)
  list(GET unit 1 optimise)
  list(GET unit 2 source)
  list(GET unit 3 alone)
  add_executable(${name} "${source}" $<TARGET_OBJECTS:chorale_test_main>)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}" ${includes})
  target_link_libraries(${name} PRIVATE chorale::tcp chorale::images)
  target_compile_options(${name} PRIVATE
    ${optimise} -march=x86-64-v3 -ffp-contract=off -fno-math-errno
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-missing-field-initializers
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/tmp/${name}")
  set_tests_properties(${name} PROPERTIES RUN_SERIAL ${alone} TIMEOUT 900
    ENVIRONMENT "TEST_TMPDIR=${PROJECT_BINARY_DIR}/tmp/${name}")
endforeach()
