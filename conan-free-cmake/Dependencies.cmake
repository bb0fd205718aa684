# Everything the project links, from the system's packages. Nothing is downloaded.
include_guard(GLOBAL)

# tessera_require(<package> [<version>] APT <Debian and Ubuntu packages> WHY <what needs it>)
macro(tessera_require package)
  cmake_parse_arguments(required "" "APT;WHY" "" ${ARGN})
  find_package(${package} ${required_UNPARSED_ARGUMENTS} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR
      "${package} ${required_UNPARSED_ARGUMENTS} is not installed; ${required_WHY} needs it. Debian and Ubuntu: "
      "apt-get install ${required_APT}")
  endif()
endmacro()

# Boost's CMake files are a package of their own on some systems; the headers are all we need.
function(tessera_require_boost)
  if(TARGET tessera_boost)
    return()
  endif()
  find_path(TESSERA_BOOST_INCLUDE_DIR boost/describe.hpp HINTS ${Boost_INCLUDE_DIR} ENV BOOST_ROOT
    PATH_SUFFIXES include DOC "Folder of the Boost headers, 1.81 or newer")
  mark_as_advanced(TESSERA_BOOST_INCLUDE_DIR)
  set(version 0)
  if(TESSERA_BOOST_INCLUDE_DIR)
    file(STRINGS ${TESSERA_BOOST_INCLUDE_DIR}/boost/version.hpp version REGEX "define BOOST_VERSION ")
    string(REGEX MATCH "[0-9]+" version "${version}")
  endif()
  if(version LESS 108100)
    message(FATAL_ERROR
      "Boost headers 1.81 or newer (Describe, MP11, JSON) are not installed; the generated registry "
      "needs them. Debian 12: apt-get install libboost1.81-dev. Ubuntu 24.04: apt-get install libboost-dev")
  endif()
  add_library(tessera_boost INTERFACE IMPORTED GLOBAL)
  target_include_directories(tessera_boost SYSTEM INTERFACE ${TESSERA_BOOST_INCLUDE_DIR})
  target_compile_definitions(tessera_boost INTERFACE BOOST_JSON_NO_LIB BOOST_CONTAINER_NO_LIB)
endfunction()

# The CUDA language and toolkit. A macro: languages belong to the caller's folder.
macro(tessera_enable_cuda)
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "TESSERA_CUDA_ARCHITECTURES is '${TESSERA_CUDA_ARCHITECTURES}' and no CUDA compiler "
      "was found; install the CUDA toolkit 12 or newer, or set CUDACXX to its nvcc")
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${TESSERA_CUDA_ARCHITECTURES})
  endif()
  enable_language(CUDA)
  # Global: programs of other folders link the library, and with it the CUDA runtime.
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  find_package(CUDAToolkit 12 REQUIRED)
  unset(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
endmacro()

# What this configuration of the project needs.
macro(tessera_find_dependencies)
  if(TESSERA_CUDA_ARCHITECTURES)
    tessera_enable_cuda()
  endif()
  tessera_require(OpenMP APT "g++ (GCC), libomp-dev (clang)" WHY "the CPU back end")
  tessera_require_boost()
  if(TESSERA_BUILD_TOOLS)
    tessera_require(CLI11 APT libcli11-dev WHY "the tessera command")
    tessera_require(fmt APT libfmt-dev WHY "the tessera command")
  endif()
  if(TESSERA_BUILD_TESTS)
    tessera_require(Eigen3 3.4 APT libeigen3-dev WHY "TESSERA_BUILD_TESTS")
    tessera_require(GTest APT libgtest-dev WHY "TESSERA_BUILD_TESTS")
  endif()
  if(TESSERA_BUILD_BENCH)
    tessera_require(benchmark APT libbenchmark-dev WHY "TESSERA_BUILD_BENCH")
  endif()
endmacro()
