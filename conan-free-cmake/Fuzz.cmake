# tests/fuzz: programs with a main of their own, and libFuzzer targets (fuzz_*.cpp), which need
# clang whatever compiles the rest. Short runs here; longer ones by hand.
include_guard(GLOBAL)

set(fuzz ${PROJECT_SOURCE_DIR}/tests/fuzz)
file(GLOB sources CONFIGURE_DEPENDS ${fuzz}/*.cpp)

# libFuzzer targets, and the readers that all of them link, which are compiled once.
set(flags -std=c++20 -g1 -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
  -I${PROJECT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/include
  -I${PROJECT_SOURCE_DIR}/generated/include -idirafter ${TESSERA_BOOST_INCLUDE_DIR})
set(readers ${CMAKE_CURRENT_BINARY_DIR}/fuzz/interop.o)
if(TESSERA_CLANGXX)
  set(interop ${PROJECT_SOURCE_DIR}/generated/units/interop.cpp)
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fuzz)
  add_custom_command(OUTPUT ${readers}
    COMMAND ${TESSERA_CLANGXX} ${flags} -MD -MF ${readers}.d -c ${interop} -o ${readers}
    DEPENDS ${interop} DEPFILE ${readers}.d COMMENT "Building readers with libFuzzer" VERBATIM)
  add_custom_target(fuzz_readers DEPENDS ${readers})
endif()

foreach(source IN LISTS sources)
  cmake_path(GET source STEM name)
  if(NOT name MATCHES "^fuzz_")
    add_executable(${name} ${source})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} PRIVATE tessera tessera_interop tessera_boost)
    tessera_own_code(${name})
  elseif(TESSERA_CLANGXX)
    set(program ${CMAKE_CURRENT_BINARY_DIR}/fuzz/${name})
    add_custom_command(OUTPUT ${program}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/fuzz/corpus/${name}
      COMMAND ${TESSERA_CLANGXX} ${flags} -MD -MF ${program}.d ${source} ${readers} -o ${program}
      DEPENDS ${source} ${readers}
      DEPFILE ${program}.d COMMENT "Building ${name} with libFuzzer" VERBATIM)
    add_custom_target(${name} ALL DEPENDS ${program})
    add_dependencies(${name} fuzz_readers)
    string(REPLACE "fuzz_" "" corpus ${name})
    add_test(NAME fuzz/${corpus} COMMAND ${program} -max_total_time=10 -timeout=10 -rss_limit_mb=2048
      ${CMAKE_CURRENT_BINARY_DIR}/fuzz/corpus/${name} ${fuzz}/corpus/${corpus})
    set_tests_properties(fuzz/${corpus} PROPERTIES LABELS fuzz COST 10)
  else()
    message(STATUS "clang++ is not installed: ${name} is not built")
  endif()
endforeach()
if(TARGET mutate_safetensors)
  add_test(NAME fuzz/mutate_safetensors COMMAND mutate_safetensors 20000 1 ${fuzz}/corpus
    ${PROJECT_SOURCE_DIR}/tests/golden)
  set_tests_properties(fuzz/mutate_safetensors PROPERTIES LABELS fuzz)
endif()
