# SPDX-License-Identifier: Apache-2.0
# chorale::compiled: chorale::chorale, where functions that are no templates are compiled once, in the project that uses
# it and with its flags. Sets missing, the sentence, if it cannot be made.
set(missing "")
if(TARGET chorale_compiled)
  return()
endif()
find_package(Python3 QUIET COMPONENTS Interpreter)
if(NOT Python3_Interpreter_FOUND)
  set(missing "chorale: chorale::compiled is made by Python 3, which is missing. Try: apt-get install python3 (Debian).")
  return()
endif()

set(script "${CMAKE_CURRENT_LIST_DIR}/compiled.py")                        # where it is installed, else in a checkout
if(NOT EXISTS "${script}")
  set(script "${CMAKE_CURRENT_LIST_DIR}/../../tools/compiled.py")
endif()
get_property(headers GLOBAL PROPERTY CHORALE_INCLUDE_DIR)
if(NOT headers)
  set(headers "${CMAKE_CURRENT_LIST_DIR}/../include")                      # of a Conan package
endif()
file(GLOB_RECURSE all_headers CONFIGURE_DEPENDS "${headers}/chorale/*.hpp")
set(made "${CMAKE_BINARY_DIR}/chorale_compiled")
set(parts base data train travel)
list(TRANSFORM parts PREPEND "${made}/")
list(TRANSFORM parts APPEND ".cpp")
file(MAKE_DIRECTORY "${made}/include")
add_custom_command(                                                        # what is made anew but equal is not compiled anew
  OUTPUT "${made}/made"
  BYPRODUCTS ${parts} "${made}/network.cpp"
  COMMAND "${Python3_EXECUTABLE}" "${script}" "${headers}" "${made}"
  COMMAND "${CMAKE_COMMAND}" -E touch "${made}/made"
  DEPENDS "${script}" ${all_headers}
  COMMENT "Making the compiled form of chorale"
  VERBATIM)

# Its headers are found before those of chorale::chorale, which is imported: imported targets are searched last.
add_library(chorale_compiled STATIC EXCLUDE_FROM_ALL ${parts} "${made}/made")
add_library(chorale_compiled_tcp STATIC EXCLUDE_FROM_ALL "${made}/network.cpp")       # which chorale::tcp links
target_include_directories(chorale_compiled PRIVATE "${made}/bodies" PUBLIC "${made}/include")
target_include_directories(chorale_compiled_tcp PRIVATE "${made}/bodies")
target_compile_definitions(chorale_compiled PUBLIC CHORALE_COMPILED)
target_link_libraries(chorale_compiled PUBLIC chorale::chorale)
target_link_libraries(chorale_compiled_tcp PUBLIC chorale_compiled PRIVATE $<TARGET_NAME_IF_EXISTS:chorale::tcp>)
# A program has of the library what it uses.
target_compile_options(chorale_compiled PRIVATE -ffunction-sections -fdata-sections)
target_compile_options(chorale_compiled_tcp PRIVATE -ffunction-sections -fdata-sections)
target_link_options(chorale_compiled INTERFACE LINKER:--gc-sections)
set_target_properties(chorale_compiled chorale_compiled_tcp PROPERTIES POSITION_INDEPENDENT_CODE ON)
add_library(chorale::compiled ALIAS chorale_compiled)
