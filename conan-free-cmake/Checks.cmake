# Registers tests/build and tests/fuzz as ordinary tests. All of build/ carries the label "build".
include_guard(GLOBAL)
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
find_program(TESSERA_CLANGXX NAMES clang++ clang++-18 clang++-14 DOC "clang, for a second opinion")
find_program(TESSERA_PKG_CONFIG NAMES pkg-config)
mark_as_advanced(TESSERA_CLANGXX TESSERA_PKG_CONFIG)

# Checks with clang beside another compiler, where its OpenMP is installed too.
set(also_clang FALSE)
if(TESSERA_CLANGXX AND NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/openmp.cpp
    "#include <omp.h>\nint main() { return omp_get_max_threads() < 1; }\n")
  execute_process(COMMAND ${TESSERA_CLANGXX} -fopenmp openmp.cpp -o openmp
    WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    message(STATUS "${TESSERA_CLANGXX} has no OpenMP (apt-get install libomp-dev): no checks with it")
  else()
    set(also_clang TRUE)
  endif()
endif()

set(checks ${PROJECT_SOURCE_DIR}/tests/build)
set(work ${CMAKE_CURRENT_BINARY_DIR}/consumers)
set(prefix ${CMAKE_CURRENT_BINARY_DIR}/prefix)

# tessera_check(<name> [TIMEOUT <seconds>] [NEEDS <fixture>] COMMAND <command>...)
# Status 77 of a command means that this machine cannot tell; the command says why.
function(tessera_check name)
  cmake_parse_arguments(PARSE_ARGV 1 check "" "TIMEOUT;NEEDS" "COMMAND")
  add_test(NAME build/${name} COMMAND ${check_COMMAND} COMMAND_EXPAND_LISTS)
  set_tests_properties(build/${name} PROPERTIES LABELS build SKIP_RETURN_CODE 77)
  if(check_TIMEOUT)
    # What may take long begins first, so that nothing waits for it at the end.
    set_tests_properties(build/${name} PROPERTIES TIMEOUT ${check_TIMEOUT} COST ${check_TIMEOUT})
  endif()
  if(check_NEEDS)
    set_tests_properties(build/${name} PROPERTIES FIXTURES_REQUIRED ${check_NEEDS})
  endif()
endfunction()

tessera_check(include_rules COMMAND Python3::Interpreter ${checks}/include_rules.py)
tessera_check(forbidden COMMAND Python3::Interpreter ${checks}/forbidden.py)
tessera_check(scripts COMMAND ${checks}/scripts.sh)
tessera_check(headers TIMEOUT 600 COMMAND Python3::Interpreter
  ${checks}/headers.py ${CMAKE_CXX_COMPILER})
tessera_check(rules TIMEOUT 300 COMMAND Python3::Interpreter ${checks}/rules.py ${CMAKE_CXX_COMPILER})
tessera_check(functors TIMEOUT 300 COMMAND Python3::Interpreter
  ${checks}/functors.py ${CMAKE_CXX_COMPILER} ${CMAKE_CUDA_COMPILER})
if(also_clang)
  tessera_check(headers_clang TIMEOUT 300 COMMAND Python3::Interpreter
    ${checks}/headers.py ${TESSERA_CLANGXX} --together)
  tessera_check(rules_clang TIMEOUT 300 COMMAND Python3::Interpreter ${checks}/rules.py ${TESSERA_CLANGXX})
endif()

# A sanitizer adds initialisers, symbols and run-time libraries that consumers would have to share.
set(plain TRUE)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(plain FALSE)
endif()
get_target_property(library_type tessera TYPE)
if(plain AND library_type STREQUAL "STATIC_LIBRARY")
  set(initialisers)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    set(initialisers --initialisers)
  endif()
  tessera_check(symbols COMMAND ${checks}/symbols.sh $<TARGET_FILE:tessera> ${initialisers})
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    if(NOT TESSERA_CUDA_ARCHITECTURES)
      tessera_check(core_size COMMAND Python3::Interpreter ${checks}/core_size.py
        $<TARGET_FILE:tessera> 180000 46000 attention=120000)
    endif()
  endif()
endif()

# Unoptimised code spills by nature; a sanitizer adds calls.
if(plain AND CMAKE_BUILD_TYPE STREQUAL "Release")
  # Of rows with loops of AVX-512; those of other instruction sets are not judged.
  set(judged)
  foreach(backend IN ITEMS cpu_avx512 cpu_avx512_bf16 cpu_amx_bf16)
    if(TARGET tessera_units_${backend})
      list(APPEND judged $<TARGET_OBJECTS:tessera_units_${backend}>)
    endif()
  endforeach()
  tessera_check(disassembly TIMEOUT 300 COMMAND Python3::Interpreter ${checks}/disassembly.py
    ${judged})
  tessera_check(disassembly_can_fail COMMAND Python3::Interpreter ${checks}/disassembly.py --planted
    ${CMAKE_CXX_COMPILER})
  set_tests_properties(build/disassembly build/disassembly_can_fail PROPERTIES SKIP_RETURN_CODE 77)
endif()

if(plain AND TESSERA_CUDA_ARCHITECTURES AND CMAKE_BUILD_TYPE STREQUAL "Release")
  tessera_quick_device_flags(quick_flags)
  set(judges cuda_resources)
  if(TESSERA_CUDA_ARCHITECTURES MATCHES "90a")
    list(APPEND judges cuda_instructions)
  endif()
  foreach(check IN LISTS judges)
    tessera_check(${check} COMMAND Python3::Interpreter ${checks}/${check}.py
      $<TARGET_FILE:tessera> $<$<BOOL:${quick_flags}>:--quick>)
    tessera_check(${check}_can_fail COMMAND Python3::Interpreter ${checks}/${check}.py
      --planted ${CMAKE_CUDA_COMPILER})
  endforeach()
endif()

if(CMAKE_EXPORT_COMPILE_COMMANDS)
  tessera_check(test_cost COMMAND Python3::Interpreter ${checks}/test_cost.py ${PROJECT_BINARY_DIR})
endif()
tessera_check(shared_cache COMMAND Python3::Interpreter ${checks}/shared_cache.py
  ${work}/shared_cache -- -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER})

if(TESSERA_BUILD_TOOLS)
  tessera_check(generated_fresh
    COMMAND tessera_generate --output ${PROJECT_SOURCE_DIR}/generated --check)
  tessera_check(generator
    COMMAND ${checks}/generator.sh $<TARGET_FILE:tessera_generate> ${PROJECT_SOURCE_DIR})
endif()

if(TESSERA_BUILD_TOOLS AND TESSERA_INSTALL AND plain)
  set(compiler -- -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER})
  # ccache then has what the sources as a folder are compiled to: the main build's.
  set(as_here -DTESSERA_WERROR=${TESSERA_WERROR})
  tessera_check(install COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --prefix ${prefix})
  set_tests_properties(build/install PROPERTIES FIXTURES_SETUP installed)
  tessera_check(installed_targets COMMAND Python3::Interpreter ${checks}/installed_targets.py
    ${PROJECT_BINARY_DIR})
  tessera_check(installed_command NEEDS installed COMMAND ${prefix}/bin/tessera --version)
  set_tests_properties(build/installed_command PROPERTIES
    PASS_REGULAR_EXPRESSION ${PROJECT_VERSION})
  tessera_check(traceless COMMAND Python3::Interpreter ${checks}/traceless.py
    $<TARGET_FILE:tessera_command> model ${PROJECT_SOURCE_DIR}/tools/models/qwen3-0.6b.json
    --tokens 256 --quiet)
  tessera_check(model_build NEEDS installed TIMEOUT 900 COMMAND Python3::Interpreter
    ${checks}/model_build.py ${work}/model_build --prefix ${prefix} ${compiler})
  tessera_check(c_interface NEEDS installed TIMEOUT 600 COMMAND Python3::Interpreter
    ${checks}/c_interface.py ${work}/c_interface ${prefix} cc ${compiler})
  tessera_check(readme_installed NEEDS installed TIMEOUT 900 COMMAND Python3::Interpreter
    ${checks}/readme.py ${work}/readme_installed --prefix ${prefix} ${compiler})
  tessera_check(readme_subdirectory TIMEOUT 600 COMMAND Python3::Interpreter
    ${checks}/readme.py ${work}/readme_subdirectory --subdirectory $<TARGET_FILE:tessera_generate>
    ${compiler} ${as_here})
  tessera_check(add_kernels_installed NEEDS installed TIMEOUT 900 COMMAND Python3::Interpreter
    ${checks}/add_kernels.py ${work}/add_kernels_installed --prefix ${prefix} ${compiler})
  tessera_check(add_kernels_subdirectory TIMEOUT 900 COMMAND Python3::Interpreter
    ${checks}/add_kernels.py ${work}/add_kernels_subdirectory --subdirectory ${compiler} ${as_here})
  tessera_check(random_subsets NEEDS installed TIMEOUT 900 COMMAND Python3::Interpreter
    ${checks}/random_subsets.py 3 ${work}/random_subsets ${prefix})
  if(TESSERA_CUDA_ARCHITECTURES)
    set(cuda_compiler ${compiler} -DCMAKE_CUDA_COMPILER=${CMAKE_CUDA_COMPILER})
    if(quick_flags)
      list(APPEND cuda_compiler "-DCMAKE_CUDA_FLAGS=${quick_flags}")
    endif()
    tessera_check(cuda_kernels_installed NEEDS installed TIMEOUT 900 COMMAND Python3::Interpreter
      ${checks}/cuda_kernels.py ${work}/cuda_kernels_installed --prefix ${prefix} ${cuda_compiler})
    tessera_check(cuda_kernels_subdirectory TIMEOUT 900 COMMAND Python3::Interpreter
      ${checks}/cuda_kernels.py ${work}/cuda_kernels_subdirectory --subdirectory
      $<TARGET_FILE:tessera_generate> ${cuda_compiler})
  endif()
  if(also_clang)
    tessera_check(clang_subset NEEDS installed TIMEOUT 900 COMMAND Python3::Interpreter
      ${checks}/random_subsets.py 1 ${work}/clang_subset ${prefix} 2
      -- -DCMAKE_CXX_COMPILER=${TESSERA_CLANGXX})
  endif()
  tessera_check(tune_machine TIMEOUT 900 COMMAND Python3::Interpreter
    ${checks}/tune_machine.py ${work}/tune_machine ${as_here}
    -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER})
  if(TESSERA_PKG_CONFIG)
    tessera_check(pkg_config NEEDS installed COMMAND Python3::Interpreter
      ${checks}/pkg_config.py ${prefix} ${CMAKE_CXX_COMPILER})
  endif()
endif()

include(${CMAKE_CURRENT_LIST_DIR}/Fuzz.cmake)
