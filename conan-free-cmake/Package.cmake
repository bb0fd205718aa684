# Installation: headers, libraries, commands, the CMake package and the pkg-config file.
include_guard(GLOBAL)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

option(TESSERA_INSTALL "Add install rules" ${PROJECT_IS_TOP_LEVEL})
if(NOT TESSERA_INSTALL)
  return()
endif()

set(tessera_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
set(targets tessera)
foreach(part IN ITEMS headers interop store c c_shared tuner ${TESSERA_BACKENDS} ${TESSERA_CUDA_BACKENDS})
  if(TARGET tessera_${part})
    list(APPEND targets tessera_${part})
    set_target_properties(tessera_${part} PROPERTIES EXPORT_NAME ${part})
  endif()
endforeach()
if(TESSERA_BUILD_TOOLS)
  list(APPEND targets tessera_generate)
  set_target_properties(tessera_generate PROPERTIES EXPORT_NAME generate)
  if(TARGET tessera_command)
    install(TARGETS tessera_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endif()
if(TARGET tessera_tuner)
  install(FILES tools/tuner/tuner.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera)
endif()
install(TARGETS ${targets} EXPORT tessera_targets)
# All that `cmake --install` takes from the build folder.
add_custom_target(tessera_package)
add_dependencies(tessera_package ${targets})
if(TARGET tessera_command)
  add_dependencies(tessera_package tessera_command)
endif()
install(EXPORT tessera_targets NAMESPACE tessera:: FILE tessera-targets.cmake
  DESTINATION ${tessera_cmake_dir})

install(DIRECTORY include/tessera generated/include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING
  PATTERN "*.hpp" PATTERN "*.h")
install(DIRECTORY generated/cost DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
install(FILES conan-free-cmake/Instances.cmake conan-free-cmake/Dependencies.cmake
  conan-free-cmake/c_interface.map
  DESTINATION ${tessera_cmake_dir})

configure_package_config_file(conan-free-cmake/tessera-config.cmake.in
  ${PROJECT_BINARY_DIR}/tessera-config.cmake INSTALL_DESTINATION ${tessera_cmake_dir}
  PATH_VARS CMAKE_INSTALL_DATADIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tessera-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tessera-config.cmake
  ${PROJECT_BINARY_DIR}/tessera-config-version.cmake DESTINATION ${tessera_cmake_dir})

cmake_path(SET tessera_prefix_from_pc NORMALIZE ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
string(REGEX REPLACE "[^/]+" ".." tessera_prefix_from_pc ${tessera_prefix_from_pc})
set(tessera_pc_cuda)
if(TESSERA_CUDA_ARCHITECTURES)
  set(tessera_pc_cuda " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lpthread -ldl -lrt")
endif()
configure_file(conan-free-cmake/tessera.pc.in ${PROJECT_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tessera.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
