# Registers tests/build and tests/fuzz as ordinary tests. All of build/ carries the label "build".
include_guard(GLOBAL)
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
find_program(TESSERA_CLANGXX NAMES clang++ clang++-18 clang++-14 DOC "clang, for a second opinion")
find_program(TESSERA_PKG_CONFIG NAMES pkg-config)
mark_as_advanced(TESSERA_CLANGXX TESSERA_PKG_CONFIG)

set(checks ${PROJECT_SOURCE_DIR}/tests/build)
set(work ${CMAKE_CURRENT_BINARY_DIR}/consumers)
set(prefix ${CMAKE_CURRENT_BINARY_DIR}/prefix)

# tessera_check(<name> [TIMEOUT <seconds>] [NEEDS <fixture>] COMMAND <command>...)
function(tessera_check name)
  cmake_parse_arguments(PARSE_ARGV 1 check "" "TIMEOUT;NEEDS" "COMMAND")
  add_test(NAME build/${name} COMMAND ${check_COMMAND})
  set_tests_properties(build/${name} PROPERTIES LABELS build)
  if(check_TIMEOUT)
    set_tests_properties(build/${name} PROPERTIES TIMEOUT ${check_TIMEOUT})
  endif()
  if(check_NEEDS)
    set_tests_properties(build/${name} PROPERTIES FIXTURES_REQUIRED ${check_NEEDS})
  endif()
endfunction()

tessera_check(include_rules COMMAND Python3::Interpreter ${checks}/include_rules.py)
tessera_check(forbidden COMMAND Python3::Interpreter ${checks}/forbidden.py)
tessera_check(scripts COMMAND ${checks}/scripts.sh)
tessera_check(headers TIMEOUT 600 COMMAND ${checks}/headers.sh ${CMAKE_CXX_COMPILER})
tessera_check(rules COMMAND Python3::Interpreter ${checks}/rules.py ${CMAKE_CXX_COMPILER})
if(TESSERA_CLANGXX AND NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
  tessera_check(headers_clang TIMEOUT 600 COMMAND ${checks}/headers.sh ${TESSERA_CLANGXX})
  tessera_check(rules_clang COMMAND Python3::Interpreter ${checks}/rules.py ${TESSERA_CLANGXX})
endif()

# A sanitizer adds initialisers, symbols and run-time libraries that consumers would have to share.
set(plain TRUE)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(plain FALSE)
endif()
get_target_property(library_type tessera TYPE)
if(plain AND library_type STREQUAL "STATIC_LIBRARY")
  tessera_check(symbols COMMAND ${checks}/symbols.sh $<TARGET_FILE:tessera>
    $<$<CONFIG:Release>:--initialisers>)
endif()

if(TESSERA_BUILD_TOOLS)
  tessera_check(generated_fresh
    COMMAND tessera_generate --output ${PROJECT_SOURCE_DIR}/generated --check)
  tessera_check(generator
    COMMAND ${checks}/generator.sh $<TARGET_FILE:tessera_generate> ${PROJECT_SOURCE_DIR})
endif()

if(TESSERA_BUILD_TOOLS AND TESSERA_INSTALL AND plain)
  set(compiler -- -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER})
  tessera_check(install COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --prefix ${prefix})
  set_tests_properties(build/install PROPERTIES FIXTURES_SETUP installed)
  tessera_check(installed_command NEEDS installed COMMAND ${prefix}/bin/tessera --version)
  set_tests_properties(build/installed_command PROPERTIES
    PASS_REGULAR_EXPRESSION ${PROJECT_VERSION})
  tessera_check(readme_installed NEEDS installed TIMEOUT 900 COMMAND Python3::Interpreter
    ${checks}/readme.py ${work}/readme_installed --prefix ${prefix} ${compiler})
  tessera_check(readme_subdirectory TIMEOUT 1800 COMMAND Python3::Interpreter
    ${checks}/readme.py ${work}/readme_subdirectory --subdirectory ${compiler})
  tessera_check(add_kernels_installed NEEDS installed TIMEOUT 900 COMMAND Python3::Interpreter
    ${checks}/add_kernels.py ${work}/add_kernels_installed --prefix ${prefix} ${compiler})
  tessera_check(add_kernels_subdirectory TIMEOUT 900 COMMAND Python3::Interpreter
    ${checks}/add_kernels.py ${work}/add_kernels_subdirectory --subdirectory ${compiler})
  tessera_check(random_subsets NEEDS installed TIMEOUT 900 COMMAND Python3::Interpreter
    ${checks}/random_subsets.py 3 ${work}/random_subsets ${prefix})
  if(TESSERA_PKG_CONFIG)
    tessera_check(pkg_config NEEDS installed COMMAND Python3::Interpreter
      ${checks}/pkg_config.py ${prefix} ${CMAKE_CXX_COMPILER})
  endif()
endif()

include(${CMAKE_CURRENT_LIST_DIR}/Fuzz.cmake)
