# How the project itself is built: build type, compiler launcher, warnings. Not installed.
include_guard(GLOBAL)

if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  message(FATAL_ERROR "tessera ${PROJECT_VERSION} has CPU rows for x86-64; this processor is "
    "${CMAKE_SYSTEM_PROCESSOR}")
endif()
if(PROJECT_IS_TOP_LEVEL)
  get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
  if(NOT multi_config AND NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
  endif()
  find_program(CCACHE_PROGRAM ccache)
  mark_as_advanced(CCACHE_PROGRAM)
  # ccache sees paths relative to the sources, so that what one checkout compiled serves all others,
  # and the builds of consumers within the tests. (It minds the folder where debug information would.)
  foreach(language IN ITEMS CXX CUDA)
    if(CCACHE_PROGRAM AND NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${CCACHE_PROGRAM})
    endif()
  endforeach()
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)

option(TESSERA_WERROR "Treat warnings as errors" OFF)
mark_as_advanced(TESSERA_WERROR)

function(tessera_warnings target)
  set(warnings -Wall -Wextra -Wpedantic -Wconversion -Wshadow
    $<$<BOOL:${TESSERA_WERROR}>:-Werror>)
  target_compile_options(${target} PRIVATE "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${warnings}>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>")
  # GCC before 13 is wrong about the undefined upper lanes in its own AVX-512 intrinsics and about
  # appending to strings.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:\
-Wno-maybe-uninitialized;-Wno-uninitialized;-Wno-restrict;-Wno-stringop-overflow>")
  endif()
endfunction()

# Programs whose time is that of what they call, which is a target of its own: a release optimises them
# little, which takes a quarter less to compile.
function(tessera_little_optimised target)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endfunction()

# For machines that compile device code and cannot run it, as .ci/run does: nvcc 13 then optimises as little
# as it can what no check reads off the objects, which takes a third of the time. Rows of attention and its
# gradients, block-sparse ones too (they are the same kernels), stay as they are shipped, because
# tests/build/cuda_resources.py judges their registers, but for rows of any head dim, which may keep values
# in memory, those of f16, whose kernels are those of bf16 but for their instructions and the limits of
# their weights, and those of paged and coded keys, whose loops are those of dense keys behind another source:
# ctest of a build without this option judges all of them. What is compiled so is not to be run:
# nvcc 13.0 then aligns dynamic shared memory to 16 bytes, whatever its declaration says, and kernels read
# behind their tiles.
option(TESSERA_QUICK_DEVICE_CODE "Optimise device code little where its objects are not judged" OFF)
mark_as_advanced(TESSERA_QUICK_DEVICE_CODE)
if(TESSERA_QUICK_DEVICE_CODE)
  message(WARNING "TESSERA_QUICK_DEVICE_CODE: rows for GPUs of this build do not run right; do not install it")
  # nvcc's -O is that of host code, which is a tenth of such a unit's time. CUDA is enabled later and keeps it.
  set(CMAKE_CUDA_FLAGS_RELEASE "-O1 -DNDEBUG")
endif()
function(tessera_quick_device_flags result)
  set(${result} "" PARENT_SCOPE)
  if(TESSERA_QUICK_DEVICE_CODE AND CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA"
     AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    set(${result} --Ofast-compile=max PARENT_SCOPE)
  endif()
endfunction()

# tessera_quick_device_units(<result> <objects> <units>...): joins units, whose headers take nvcc four seconds
# each, and gives the flags to those that are not judged. Dear units that are left as they are shipped stay alone.
function(tessera_quick_device_units result objects)
  tessera_quick_device_flags(flags)
  if(NOT flags)
    set(${result} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(unjudged "/[^/]*_(f16|coded|paged)[_.][^/]*$")
  set(dear "/(attention_backward_[a-z0-9_]*d[0-9]|sparse_attention_blocksparse_backward_|")
  string(APPEND dear "cuda_sm90/attention_[a-z0-9_]*_to_d)[^/]*$")
  set(judged "/attention_[a-z0-9_]*_to_d[^/]*$")
  set(shipped ${ARGN})
  list(FILTER shipped INCLUDE REGEX "${dear}|${judged}")
  list(FILTER shipped EXCLUDE REGEX "${unjudged}")
  set(quick ${ARGN})
  if(shipped)
    list(REMOVE_ITEM quick ${shipped})
  endif()
  set(most_shipped 3)
  set(most_quick 8)
  set(${result})
  set(alone ${shipped})
  list(FILTER alone INCLUDE REGEX "${dear}")
  list(FILTER shipped EXCLUDE REGEX "${dear}")
  foreach(part IN ITEMS shipped quick)
    tessera_write_joined(joined ${objects}_${part} ${most_${part}} ${${part}})
    if("${part}" STREQUAL "quick")
      set_property(SOURCE ${joined} APPEND PROPERTY COMPILE_OPTIONS ${flags})
    endif()
    list(APPEND ${result} ${joined})
  endforeach()
  list(APPEND ${result} ${alone})
  set(${result} ${${result}} PARENT_SCOPE)
endfunction()

# tessera_write_joined(<result> <name> <most> <sources>...): units in the build folder that include as many of
# the sources each. They name them by where they lie from there, so that ccache sees the same text in every
# checkout, and in the builds of consumers within the tests.
function(tessera_write_joined result name most)
  # Paths are resolved: ".." behind a link is not the folder that holds the link.
  file(REAL_PATH ${PROJECT_BINARY_DIR} folder)
  string(APPEND folder /joined/${name})
  set(units)
  while(ARGN)
    set(text "")
    foreach(place RANGE 1 ${most})
      list(POP_FRONT ARGN source)
      if(source)
        file(REAL_PATH ${source} source)
        file(RELATIVE_PATH path ${folder} ${source})
        string(APPEND text "#include \"${path}\"\n")
        cmake_path(GET source EXTENSION LAST_ONLY extension)
      endif()
    endforeach()
    list(LENGTH units number)
    file(CONFIGURE OUTPUT ${folder}/unit_${number}${extension} CONTENT "${text}" @ONLY)
    list(APPEND units ${folder}/unit_${number}${extension})
  endwhile()
  set(${result} ${units} PARENT_SCOPE)
endfunction()

# tessera_joined_units(<target> [<source>...]): compiles a target's units eight at a time, since most of
# their time goes to headers that they share. The sources named, as their folder's CMakeLists.txt would,
# keep units of their own: a name of theirs stands in others too, or hides one there.
function(tessera_joined_units target)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  get_target_property(sources ${target} SOURCES)
  set(alone)
  set(joined)
  foreach(source IN LISTS sources)
    if(source MATCHES "^[$]<")
      list(APPEND alone ${source})
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
    if(source IN_LIST ARGN)
      list(APPEND alone ${source})
    else()
      list(APPEND joined ${source})
    endif()
  endforeach()
  tessera_write_joined(units ${target} 8 ${joined})
  set_property(TARGET ${target} PROPERTY SOURCES ${alone} ${units})
endfunction()
