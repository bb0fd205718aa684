# From generated files to libraries: flags per back end, kernel libraries, tessera_add_kernels().
# Installed with the package, so that consumers build their own tables the same way.
include_guard(GLOBAL)
set(TESSERA_CMAKE_DIR ${CMAKE_CURRENT_LIST_DIR} CACHE INTERNAL "")

set(TESSERA_BACKENDS cpu_generic cpu_avx2 cpu_avx512 cpu_avx512_vnni
  cpu_avx512_bf16 cpu_amx_bf16
  CACHE INTERNAL "")
set(tessera_flags_cpu_generic)
set(tessera_flags_cpu_avx2 -mavx2 -mfma -mf16c)
set(tessera_flags_cpu_avx512 ${tessera_flags_cpu_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
set(tessera_flags_cpu_avx512_vnni ${tessera_flags_cpu_avx512} -mavx512vnni)
set(tessera_flags_cpu_avx512_bf16 ${tessera_flags_cpu_avx512} -mavx512bf16)
set(tessera_flags_cpu_amx_bf16 ${tessera_flags_cpu_avx512_bf16} -mamx-tile -mamx-bf16)

# Back ends that nvcc compiles, for the architectures in TESSERA_CUDA_ARCHITECTURES. (CMake 3.25 does
# not know how to ask nvcc 13 for C++20. nvcc takes assignments of a status for values dropped: 2810.)
set(TESSERA_CUDA_BACKENDS cuda_sm80 cuda_sm90 CACHE INTERNAL "")
set(tessera_flags_cuda_sm80 -std=c++20 --expt-relaxed-constexpr -diag-suppress=2810)
# Kernels of Hopper are 100 to 250 KB each; compressed, a quarter of that.
set(tessera_flags_cuda_sm90 ${tessera_flags_cuda_sm80} -Xfatbin=-compress-all)

# Kernels assume that arithmetic neither sets errno nor traps; NaN and infinity keep their meaning.
set(tessera_kernel_flags -fno-math-errno -fno-trapping-math)

# tessera::cpu_avx512 and so on, tessera::cuda_sm80: link one to compile header-path code for that
# back end.
function(tessera_declare_backends)
  foreach(backend IN LISTS TESSERA_BACKENDS)
    add_library(tessera_${backend} INTERFACE)
    add_library(tessera::${backend} ALIAS tessera_${backend})
    target_compile_options(tessera_${backend} INTERFACE ${tessera_flags_${backend}}
      ${tessera_kernel_flags} $<$<NOT:$<CONFIG:Debug>>:-O3>)
  endforeach()
  foreach(backend IN LISTS TESSERA_CUDA_BACKENDS)
    add_library(tessera_${backend} INTERFACE)
    add_library(tessera::${backend} ALIAS tessera_${backend})
    target_compile_options(tessera_${backend} INTERFACE
      "$<$<COMPILE_LANGUAGE:CUDA>:${tessera_flags_${backend}}>")
  endforeach()
endfunction()

# Joins the objects of one back end into one whose only global symbols are launchers. A weak inline
# function compiled with -mavx512f can then never be the copy that the linker keeps for the program.
function(tessera_seal objects result)
  find_program(TESSERA_LD NAMES ld.bfd ld DOC "GNU ld: joins the objects of a back end")
  find_program(TESSERA_OBJCOPY NAMES objcopy DOC "GNU objcopy: hides their other symbols")
  mark_as_advanced(TESSERA_LD TESSERA_OBJCOPY)
  if(NOT TESSERA_LD OR NOT TESSERA_OBJCOPY)
    message(FATAL_ERROR "ld and objcopy are not installed; kernel libraries need them. Debian and "
      "Ubuntu: apt-get install binutils")
  endif()
  set(sealed ${CMAKE_CURRENT_BINARY_DIR}/${objects}.o)
  add_custom_command(OUTPUT ${sealed}
    COMMAND ${TESSERA_LD} -r --force-group-allocation -o ${sealed}.joined $<TARGET_OBJECTS:${objects}>
    COMMAND ${TESSERA_OBJCOPY} --wildcard
      "--keep-global-symbol=_ZN7tessera7kernels16cpu_entry_points*"
      "--keep-global-symbol=_ZN7tessera*6launchINS_4rows*"
      "--keep-global-symbol=_ZN7tessera*15workspace_bytesINS_4rows*"
      ${sealed}.joined ${sealed}
    COMMAND ${CMAKE_COMMAND} -E rm ${sealed}.joined
    DEPENDS ${objects} $<TARGET_OBJECTS:${objects}>
    COMMENT "Sealing ${objects}" COMMAND_EXPAND_LISTS VERBATIM)
  set(${result} ${sealed} PARENT_SCOPE)
endfunction()

# The architectures that units of a CUDA back end are compiled for: all in TESSERA_CUDA_ARCHITECTURES;
# those of cuda_sm90 for sm_90a alone, and so perhaps none.
function(tessera_cuda_architectures backend result)
  set(architectures ${TESSERA_CUDA_ARCHITECTURES})
  if(backend STREQUAL cuda_sm90)
    list(FILTER architectures INCLUDE REGEX "^90a")
    if(architectures)
      set(architectures 90a-real)
    endif()
  endif()
  set(${result} ${architectures} PARENT_SCOPE)
endfunction()

# Object library of the CUDA units of one back end. nvcc compiles them side by side; nothing links
# device code across units.
function(tessera_cuda_units objects backend)
  tessera_cuda_architectures(${backend} architectures)
  set(units ${ARGN})
  if(COMMAND tessera_quick_device_units)
    tessera_quick_device_units(units ${objects} ${units})
  endif()
  add_library(${objects} OBJECT ${units})
  target_link_libraries(${objects} PRIVATE tessera::headers tessera::${backend})
  target_compile_options(${objects} PRIVATE -Xcompiler=-fno-lto)
  set_target_properties(${objects} PROPERTIES CUDA_VISIBILITY_PRESET hidden
    CUDA_ARCHITECTURES "${architectures}")
  set_property(TARGET ${objects} PROPERTY CUDA_STANDARD)
  tessera_own_code(${objects})
endfunction()

function(tessera_own_code target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
  if(COMMAND tessera_warnings)
    tessera_warnings(${target})
  endif()
endfunction()

# A library of the rows in a folder that tessera-generate wrote; its CUDA rows only where
# TESSERA_CUDA_ARCHITECTURES names architectures.
function(tessera_kernel_library target folder)
  include(${folder}/units/units.cmake)
  set(sources ${tessera_units_host})
  list(TRANSFORM sources PREPEND ${folder}/)
  set(cuda)
  foreach(backend IN LISTS tessera_unit_backends)
    set(units ${tessera_units_${backend}})
    list(TRANSFORM units PREPEND ${folder}/)
    set(objects ${target}_units_${backend})
    if(backend IN_LIST TESSERA_CUDA_BACKENDS)
      tessera_cuda_architectures(${backend} architectures)
      if(architectures)
        list(APPEND cuda ${backend})
        tessera_cuda_units(${objects} ${backend} ${units})
        list(APPEND sources $<TARGET_OBJECTS:${objects}>)
      endif()
      continue()
    endif()
    add_library(${objects} OBJECT ${units})
    target_link_libraries(${objects} PRIVATE tessera::headers tessera::${backend})
    target_compile_options(${objects} PRIVATE -fno-lto $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
    tessera_own_code(${objects})
    tessera_seal(${objects} sealed)
    list(APPEND sources ${sealed})
  endforeach()
  add_library(${target} ${sources})
  target_link_libraries(${target} PUBLIC tessera::headers PRIVATE $<BUILD_INTERFACE:tessera_boost>)
  if(cuda)
    list(TRANSFORM tessera_units_cuda_host PREPEND ${folder}/)
    list(TRANSFORM tessera_units_cuda_faults PREPEND ${folder}/)
    tessera_cuda_units(${target}_units_cuda_faults cuda_sm80 ${tessera_units_cuda_faults})
    target_sources(${target} PRIVATE ${tessera_units_cuda_host}
      $<TARGET_OBJECTS:${target}_units_cuda_faults>)
    target_compile_definitions(${target} PRIVATE TESSERA_CUDA)
    if(cuda_sm90 IN_LIST cuda)
      target_compile_definitions(${target} PRIVATE TESSERA_CUDA_SM90)
    endif()
    target_link_libraries(${target} PRIVATE CUDA::cudart_static)
  endif()
  # Three quarters of the size that -O2 makes. What every call does is measured as it is built here.
  target_compile_options(${target} PRIVATE
    "$<$<CONFIG:Release>:-Os;-fno-semantic-interposition>")
  tessera_own_code(${target})
endfunction()

# A library beside the kernels, of the host units of one kind: interop, store, c. A type (STATIC) may
# follow.
function(tessera_host_library target folder kind)
  include(${folder}/units/units.cmake)
  list(TRANSFORM tessera_units_${kind} PREPEND ${folder}/)
  add_library(${target} ${ARGN} ${tessera_units_${kind}})
  target_link_libraries(${target} PUBLIC tessera::headers PRIVATE $<BUILD_INTERFACE:tessera_boost>)
  tessera_own_code(${target})
endfunction()

# <kernels>_c and <kernels>_c_shared: the C interface to a kernel library. The first is linked beside
# it, the second has all of it inside and shows nothing but the C functions.
function(tessera_c_libraries kernels folder)
  tessera_host_library(${kernels}_c ${folder} c STATIC)
  target_link_libraries(${kernels}_c PUBLIC ${kernels})
  add_library(${kernels}_c_shared SHARED ${folder}/units/c.cpp)
  target_link_libraries(${kernels}_c_shared PRIVATE ${kernels})
  target_include_directories(${kernels}_c_shared INTERFACE
    $<TARGET_PROPERTY:tessera::headers,INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_options(${kernels}_c_shared PRIVATE
    -Wl,--version-script,${TESSERA_CMAKE_DIR}/c_interface.map)
  tessera_own_code(${kernels}_c_shared)
  set_target_properties(${kernels}_c ${kernels}_c_shared PROPERTIES OUTPUT_NAME ${kernels}_c
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# The generator's own sources, and the command's that read model descriptions.
function(tessera_generator_sources result)
  set(tools ${tessera_SOURCE_DIR}/tools)
  file(GLOB sources CONFIGURE_DEPENDS ${tools}/generate/*.cpp)
  list(APPEND sources ${tools}/tessera/model_description.cpp ${tools}/tessera/model_layers.cpp
    ${tools}/tessera/model_problems.cpp ${tools}/tessera/model_products.cpp
    ${tools}/tessera/model_weights.cpp
    ${tools}/tessera/json.cpp ${tools}/tessera/terminal.cpp)
  set(${result} ${sources} PARENT_SCOPE)
endfunction()

# The generator as a program that can run while configuring: the installed one, else compiled here.
function(tessera_generator result)
  if(TARGET tessera::generate)
    get_target_property(imported tessera::generate IMPORTED)
    if(imported)
      get_target_property(program tessera::generate LOCATION)
      set(${result} ${program} PARENT_SCOPE)
      return()
    endif()
  endif()
  set(program ${tessera_BINARY_DIR}/configure/tessera-generate)
  tessera_generator_sources(sources)
  set(boost_json ${tessera_SOURCE_DIR}/generated/units/interop.cpp)  # is compiled in this unit
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${tessera_SOURCE_DIR}/tools/generate/*.hpp
    ${tessera_SOURCE_DIR}/include/tessera/spec/*.hpp
    ${tessera_SOURCE_DIR}/include/tessera/families/*.hpp
    ${tessera_SOURCE_DIR}/include/tessera/lookup/*.hpp
    ${tessera_SOURCE_DIR}/include/tessera/runtime/*.hpp)
  foreach(file IN LISTS sources boost_json headers)
    if(${file} IS_NEWER_THAN ${program})
      message(STATUS "Compiling tessera-generate")
      tessera_require(fmt APT libfmt-dev WHY tessera_add_kernels)
      tessera_require(CLI11 APT libcli11-dev WHY tessera_add_kernels)
      # Eight sources a unit, as in the library's own build: most of their time goes to headers.
      set(units ${boost_json})
      while(sources)
        set(text)
        foreach(place RANGE 1 8)
          list(POP_FRONT sources source)
          if(source)
            string(APPEND text "#include \"${source}\"\n")
          endif()
        endforeach()
        list(LENGTH units number)
        file(WRITE ${tessera_BINARY_DIR}/configure/unit_${number}.cpp "${text}")
        list(APPEND units ${tessera_BINARY_DIR}/configure/unit_${number}.cpp)
      endwhile()
      try_compile(compiled SOURCES ${units}
        CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${tessera_SOURCE_DIR}/include;${TESSERA_BOOST_INCLUDE_DIR}"
        COMPILE_DEFINITIONS -DBOOST_JSON_NO_LIB -DBOOST_CONTAINER_NO_LIB
        LINK_LIBRARIES fmt::fmt CLI11::CLI11 CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON
        OUTPUT_VARIABLE output COPY_FILE ${program} NO_CACHE)
      if(NOT compiled)
        message(FATAL_ERROR "tessera-generate does not compile:\n${output}")
      endif()
      break()
    endif()
  endforeach()
  set(${result} ${program} PARENT_SCOPE)
endfunction()

# Refuses CUDA rows where no CUDA compiler is at work.
function(tessera_check_cuda caller folder)
  include(${folder}/units/units.cmake)
  set(cuda ${tessera_unit_backends})
  list(FILTER cuda INCLUDE REGEX "^cuda_")
  if(NOT cuda)
    return()
  endif()
  list(JOIN cuda ", " cuda)
  if(NOT TESSERA_CUDA_ARCHITECTURES)
    message(FATAL_ERROR "${caller}: its rows of ${cuda} need a GPU architecture; configure with "
      "-DTESSERA_CUDA_ARCHITECTURES=80 or those of your GPUs, such as 80;90a")
  endif()
  tessera_cuda_architectures(cuda_sm90 hopper)
  if(cuda MATCHES cuda_sm90 AND NOT hopper)
    message(FATAL_ERROR "${caller}: its rows of cuda_sm90 need the architecture 90a, which "
      "TESSERA_CUDA_ARCHITECTURES=${TESSERA_CUDA_ARCHITECTURES} does not have")
  endif()
  if(NOT CMAKE_CUDA_COMPILER_LOADED)
    message(FATAL_ERROR "${caller}: its rows of ${cuda} need the CUDA compiler; write "
      "project(<name> LANGUAGES CXX CUDA), or enable_language(CUDA) before the call")
  endif()
  if(NOT TARGET CUDA::cudart_static)
    message(FATAL_ERROR "${caller}: its rows of ${cuda} need the static CUDA runtime; write "
      "find_package(CUDAToolkit REQUIRED) before the call")
  endif()
endfunction()

# tessera_add_kernels(<target> [MODELS <config.json>...] [ROWS <row list>...] [TRACE <trace>...]
#                     [BACKENDS cpu|cpu_avx512|cuda_sm80|...] [LOOKUP <table>...])
#
# Adds a library with exactly the rows asked for; link it instead of tessera::tessera. Paths are
# relative to the calling directory.
#   MODELS    model descriptions: the rows of their prompts, decoding and appended blocks
#   TRACE     problems recorded with TESSERA_RECORD
#   ROWS      row lists, one row name a line
#   LOOKUP    lookup tables: the rows they name for those problems, and their lines built in
#   BACKENDS  rows of these only; default: every CPU back end. CUDA back ends need CUDA among the
#             languages of the project, and take their architectures from TESSERA_CUDA_ARCHITECTURES
# <tessera/builds/<target>.hpp> says at compile time what the library serves. The C interface to it
# is <target>_c (static) and <target>_c_shared, built if something links them.
function(tessera_add_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 asked "" "" "MODELS;ROWS;TRACE;BACKENDS;LOOKUP")
  set(this "tessera_add_kernels(${target})")
  if(asked_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${this}: '${asked_UNPARSED_ARGUMENTS}' is not an argument; valid: MODELS, "
      "ROWS, TRACE, BACKENDS, LOOKUP")
  endif()
  if(asked_KEYWORDS_MISSING_VALUES)
    list(JOIN asked_KEYWORDS_MISSING_VALUES ", " empty)
    set(hint "")
    if(BACKENDS IN_LIST asked_KEYWORDS_MISSING_VALUES)
      list(JOIN TESSERA_BACKENDS ", " backends)
      list(JOIN TESSERA_CUDA_BACKENDS ", " cuda_backends)
      set(hint "; valid back ends: cpu, ${backends}, ${cuda_backends}")
    endif()
    message(FATAL_ERROR "${this}: ${empty} without a value${hint}")
  endif()
  if(NOT asked_MODELS AND NOT asked_ROWS AND NOT asked_TRACE AND NOT asked_LOOKUP)
    message(FATAL_ERROR "${this}: nothing says which rows; give MODELS <config.json>..., TRACE "
      "<trace>..., ROWS <row list>... or LOOKUP <table>...")
  endif()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${target}_generated)
  set(arguments --output ${folder} --costs ${TESSERA_COST_DIR} --include ${TESSERA_INCLUDE_DIR}
    --name ${target})
  foreach(kind IN ITEMS MODELS ROWS TRACE LOOKUP)
    string(TOLOWER --${kind} option)
    foreach(file IN LISTS asked_${kind})
      cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
      list(APPEND arguments ${option} ${file})
    endforeach()
  endforeach()
  foreach(backend IN LISTS asked_BACKENDS)
    list(APPEND arguments --backends ${backend})
  endforeach()
  tessera_generator(generator)
  execute_process(COMMAND ${generator} ${arguments}
    RESULT_VARIABLE failed ERROR_VARIABLE message OUTPUT_VARIABLE message)
  if(failed)
    message(FATAL_ERROR "${this}: ${message}")
  endif()
  tessera_require_boost()
  tessera_check_cuda("${this}" ${folder})
  tessera_kernel_library(${target} ${folder})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${folder}/include>)
  tessera_c_libraries(${target} ${folder})
  set_target_properties(${target}_c ${target}_c_shared PROPERTIES EXCLUDE_FROM_ALL ON)
endfunction()
