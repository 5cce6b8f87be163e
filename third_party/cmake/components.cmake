# SPDX-License-Identifier: Apache-2.0
# chorale::chorale and its components, in a checkout and where it is installed. What each needs is in packages.cmake.
#
#   chorale_components(tcp mpi)   chorale::chorale, chorale::tcp and chorale::mpi exist afterwards, in every folder
#
# A dependency is looked for when a component first needs it, by its header and its libraries, and not by its CMake
# package: oneDNN's in Debian 12 ends with an error where OpenCL is not installed. A target of the usual name that
# exists already, such as ZLIB::ZLIB, is taken instead.
if(NOT DEFINED CHORALE_INCLUDE_DIR)
  get_filename_component(CHORALE_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/../../include" ABSOLUTE)
endif()
set_property(GLOBAL PROPERTY CHORALE_INCLUDE_DIR "${CHORALE_INCLUDE_DIR}")

# _chorale_find_package(package): sets includes, libraries and options, or missing, the sentence.
function(_chorale_find_package package)
  set(known CHORALE_PACKAGE_${package})
  string(TOUPPER ${package} upper)
  set(includes "" PARENT_SCOPE)
  set(libraries "" PARENT_SCOPE)
  set(options "" PARENT_SCOPE)
  set(missing "" PARENT_SCOPE)
  if(${known}_TARGET AND TARGET ${${known}_TARGET})
    set(libraries ${${known}_TARGET} PARENT_SCOPE)
    return()
  endif()
  if(package STREQUAL "mpi")
    set(MPI_CXX_SKIP_MPICXX TRUE)
    find_package(MPI QUIET COMPONENTS CXX)
    if(MPI_CXX_FOUND)
      set(includes ${MPI_CXX_INCLUDE_DIRS} PARENT_SCOPE)
      set(libraries ${MPI_CXX_LIBRARIES} PARENT_SCOPE)
    else()
      set(missing "${${known}_SENTENCE}" PARENT_SCOPE)
    endif()
    return()
  endif()

  # A folder that somebody names is the only one: another version must not be found in its place.
  set(folders ${${known}_FOLDERS})
  set(only "")
  if(${known}_FOLDER AND DEFINED ENV{${${known}_FOLDER}})
    set(folders "$ENV{${${known}_FOLDER}}")
    set(only NO_DEFAULT_PATH)
  endif()
  set(suffixes include include/torch/csrc/api/include torch/csrc/api/include)
  find_path(CHORALE_${upper}_INCLUDE_DIR ${${known}_HEADER} HINTS ${folders} ${only} PATH_SUFFIXES ${suffixes})
  mark_as_advanced(CHORALE_${upper}_INCLUDE_DIR)
  set(found "")
  foreach(library IN LISTS ${known}_LIBRARIES)
    find_library(CHORALE_${upper}_${library} ${library} HINTS ${folders} ${only} PATH_SUFFIXES lib64 lib)
    mark_as_advanced(CHORALE_${upper}_${library})
    list(APPEND found ${CHORALE_${upper}_${library}})
  endforeach()
  if("${CHORALE_${upper}_INCLUDE_DIR};${found}" MATCHES "NOTFOUND")
    set(missing "${${known}_SENTENCE}" PARENT_SCOPE)
    return()
  endif()
  set(includes ${CHORALE_${upper}_INCLUDE_DIR} PARENT_SCOPE)
  set(libraries ${found} PARENT_SCOPE)

  # Of a torch package of Python only its own headers are taken: the others there are of libraries that it contains, and
  # would hide those of the system, such as oneDNN's.
  string(REGEX REPLACE "/include/torch/csrc/api/include$" "" root "${CHORALE_${upper}_INCLUDE_DIR}")
  if(package STREQUAL "libtorch" AND EXISTS "${root}/lib/libtorch_cpu.so")
    set(links "${CMAKE_BINARY_DIR}/chorale_libtorch")
    file(MAKE_DIRECTORY "${links}")
    foreach(name ATen c10 caffe2 torch)
      file(CREATE_LINK "${root}/include/${name}" "${links}/${name}" SYMBOLIC)
    endforeach()
    set(includes "${links}" "${links}/torch/csrc/api/include" PARENT_SCOPE)
    set(options -Wl,--allow-shlib-undefined PARENT_SCOPE)
  endif()
endfunction()

# Our own kernels for CUDA, compiled by nvcc: a library that is built where a target is linked with chorale::cuda.
function(_chorale_cuda_kernels)
  set(home /usr/local/cuda)
  if(DEFINED ENV{CUDA_HOME})
    set(home "$ENV{CUDA_HOME}")
  endif()
  find_program(CHORALE_NVCC nvcc HINTS "${home}/bin")
  set(CHORALE_CUDA_ARCH sm_90 CACHE STRING "Architecture of the GPUs, as nvcc's -arch has it")
  if(NOT CHORALE_NVCC)
    set(missing "${CHORALE_PACKAGE_cuda_SENTENCE}" PARENT_SCOPE)
    return()
  endif()
  get_property(headers GLOBAL PROPERTY CHORALE_INCLUDE_DIR)
  set(source "${headers}/chorale/tensor/cuda/kernels.cu")
  set(object "${CMAKE_BINARY_DIR}/chorale_cuda/kernels.o")
  file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/chorale_cuda")
  file(GLOB parts "${headers}/chorale/tensor/cuda/*.cuh")
  add_custom_command(
    OUTPUT "${object}"
    COMMAND "${CHORALE_NVCC}" -c -O3 -std=c++20 -arch=${CHORALE_CUDA_ARCH} --extended-lambda --expt-relaxed-constexpr
            -Xcompiler -fPIC -I "${headers}" "${source}" -o "${object}"
    DEPENDS "${source}" ${parts}
    COMMENT "Compiling chorale's kernels with nvcc"
    VERBATIM)
  add_library(chorale_cuda_kernels STATIC EXCLUDE_FROM_ALL "${object}")
  set_source_files_properties("${object}" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set_target_properties(chorale_cuda_kernels PROPERTIES LINKER_LANGUAGE CXX)
endfunction()

# _chorale_add_component(component said): makes chorale::${component}, or says why it cannot.
function(_chorale_add_component component said)
  set(${said} "" PARENT_SCOPE)
  if(TARGET chorale::${component})
    return()
  endif()
  include("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/packages.cmake")             # the folder of the caller has not its variables
  if(NOT component IN_LIST CHORALE_ALL_COMPONENTS)
    list(JOIN CHORALE_ALL_COMPONENTS ", " all)
    set(${said} "chorale: there is no component ${component}. Try one of: ${all}." PARENT_SCOPE)
    return()
  endif()
  set(known CHORALE_COMPONENT_${component})
  get_property(all_includes GLOBAL PROPERTY CHORALE_INCLUDE_DIR)
  set(all_libraries ${${known}_LIBRARIES})
  set(all_options ${${known}_OPTIONS})
  foreach(package IN LISTS ${known}_PACKAGES)
    _chorale_find_package(${package})
    if(missing)
      set(${said} "${missing}" PARENT_SCOPE)
      return()
    endif()
    list(APPEND all_includes ${includes})
    list(PREPEND all_libraries ${libraries})
    list(APPEND all_options ${options})
  endforeach()
  if(component STREQUAL "cuda")
    _chorale_cuda_kernels()
    if(missing)
      set(${said} "${missing}" PARENT_SCOPE)
      return()
    endif()
    list(PREPEND all_libraries chorale_cuda_kernels)
  endif()
  foreach(other IN LISTS ${known}_NEEDS)
    _chorale_add_component(${other} why)
    if(why)
      set(${said} "${why}" PARENT_SCOPE)
      return()
    endif()
    list(APPEND all_libraries chorale::${other})
  endforeach()
  add_library(chorale::${component} INTERFACE IMPORTED GLOBAL)
  set_target_properties(chorale::${component} PROPERTIES
    INTERFACE_COMPILE_FEATURES cxx_std_20
    INTERFACE_INCLUDE_DIRECTORIES "${all_includes}"
    INTERFACE_COMPILE_OPTIONS "${${known}_OPTIONS}"
    INTERFACE_COMPILE_DEFINITIONS "${${known}_DEFINES}"
    INTERFACE_LINK_OPTIONS "${all_options}"
    INTERFACE_LINK_LIBRARIES "${all_libraries}")
endfunction()

function(chorale_components)
  foreach(component chorale ${ARGN})
    _chorale_add_component(${component} said)
    if(said)
      message(FATAL_ERROR "${said}")
    endif()
  endforeach()
endfunction()

# chorale_c_library(name source.cpp [COMPONENTS mpi]): a shared library with the functions of <chorale/c/chorale.h>, for
# the models that the source names. It shows these functions only. Where the project has the language Fortran, the target
# ${name}_fortran is the module chorale over it.
function(chorale_c_library name)
  cmake_parse_arguments(PARSE_ARGV 1 one "" "" "COMPONENTS")
  if(NOT one_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "chorale: chorale_c_library(${name}) has no source. Try: chorale_c_library(${name} model.cpp), "
                        "with a chorale_create() in model.cpp.")
  endif()
  chorale_components(${one_COMPONENTS})
  get_property(headers GLOBAL PROPERTY CHORALE_INCLUDE_DIR)
  set(shown "${headers}/chorale/c/exports.map")
  add_library(${name} SHARED ${one_UNPARSED_ARGUMENTS})
  list(TRANSFORM one_COMPONENTS PREPEND "chorale::")
  target_link_libraries(${name} PRIVATE chorale::chorale ${one_COMPONENTS})
  target_link_options(${name} PRIVATE "LINKER:--version-script=${shown}")
  set_target_properties(${name} PROPERTIES LINK_DEPENDS "${shown}")
  target_include_directories(${name} INTERFACE "${headers}")
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)               # check_language() alone sets a compiler
  if("Fortran" IN_LIST languages)
    add_library(${name}_fortran STATIC "${headers}/chorale/c/chorale.f90")
    set(modules "${CMAKE_CURRENT_BINARY_DIR}/${name}_modules")
    set_target_properties(${name}_fortran PROPERTIES Fortran_MODULE_DIRECTORY "${modules}")
    target_include_directories(${name}_fortran INTERFACE "${modules}")
    target_link_libraries(${name}_fortran PUBLIC ${name})
  endif()
endfunction()

# For choraleConfig.cmake: what find_package() asks for. A macro, because its variables are the caller's.
macro(_chorale_find_components)
  foreach(component chorale ${chorale_FIND_COMPONENTS})
    _chorale_add_component(${component} said)
    if(said AND (component STREQUAL "chorale" OR chorale_FIND_REQUIRED_${component}))
      set(chorale_FOUND FALSE)
      set(chorale_NOT_FOUND_MESSAGE "${said}")
      return()
    elseif(said)
      set(chorale_${component}_FOUND FALSE)
    else()
      set(chorale_${component}_FOUND TRUE)
    endif()
  endforeach()
endmacro()
