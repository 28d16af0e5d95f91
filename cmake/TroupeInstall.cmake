# What find_package(troupe) finds after `cmake --install`: libraries and their public headers (troupe_add_library), the
# package's own files, the finders of what the libraries stand on. Components: runtime (programs), development.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(TROUPE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/troupe)
foreach(package ucx OneDNN PMIx)
  string(TOUPPER ${package} name)
  set(TROUPE_NEEDS_${name} ${${package}_FOUND})
endforeach()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/troupe-config.cmake.in ${PROJECT_BINARY_DIR}/troupe-config.cmake
  INSTALL_DESTINATION ${TROUPE_CMAKE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/troupe-config-version.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT troupe NAMESPACE troupe:: FILE troupe-targets.cmake DESTINATION ${TROUPE_CMAKE_DIR} COMPONENT development)
install(FILES ${PROJECT_BINARY_DIR}/troupe-config.cmake ${PROJECT_BINARY_DIR}/troupe-config-version.cmake
    cmake/FindCAF.cmake cmake/FindOneDNN.cmake cmake/FindPMIx.cmake
  DESTINATION ${TROUPE_CMAKE_DIR} COMPONENT development)
