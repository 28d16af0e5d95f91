# What find_package(troupe) finds after `cmake --install`: libraries and their public headers (troupe_add_library), the
# package's own files, the finders of what the libraries stand on. Components: runtime (programs), development.
# find_package(troupe COMPONENTS contracts) also gives the suites that every device, transport and communicator must pass, for those from elsewhere.
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

add_library(troupe_contracts INTERFACE)
add_library(troupe::contracts ALIAS troupe_contracts)
set_target_properties(troupe_contracts PROPERTIES EXPORT_NAME contracts VERIFY_INTERFACE_HEADER_SETS ${TROUPE_BUILD_TESTS})
target_sources(troupe_contracts INTERFACE FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES
  ${PROJECT_SOURCE_DIR}/tests/contracts/communicator_contract.hpp
  ${PROJECT_SOURCE_DIR}/tests/contracts/device_contract.hpp
  ${PROJECT_SOURCE_DIR}/tests/contracts/device_world.hpp
  ${PROJECT_SOURCE_DIR}/tests/contracts/exchange_contract.hpp
  ${PROJECT_SOURCE_DIR}/tests/contracts/golden_contract.hpp
  ${PROJECT_SOURCE_DIR}/tests/contracts/golden_files.hpp
  ${PROJECT_SOURCE_DIR}/tests/contracts/gradient_distance.hpp
  ${PROJECT_SOURCE_DIR}/tests/contracts/layer_contract.hpp
  ${PROJECT_SOURCE_DIR}/tests/contracts/layer_graphs.hpp
  ${PROJECT_SOURCE_DIR}/tests/contracts/replica_contract.hpp
  ${PROJECT_SOURCE_DIR}/tests/contracts/stream_contract.hpp
  ${PROJECT_SOURCE_DIR}/tests/contracts/timeline_contract.hpp
  ${PROJECT_SOURCE_DIR}/tests/contracts/transport_contract.hpp
  ${PROJECT_SOURCE_DIR}/tests/contracts/transport_node.hpp)
target_link_libraries(troupe_contracts INTERFACE troupe::devices_reference troupe::runtime GTest::gmock nlohmann_json::nlohmann_json)
set(TROUPE_GOLDEN_DIR ${CMAKE_INSTALL_DATADIR}/troupe/golden)
target_compile_definitions(troupe_contracts INTERFACE
  TROUPE_GOLDEN_FOLDER="$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/tests/golden>$<INSTALL_INTERFACE:$<INSTALL_PREFIX>/${TROUPE_GOLDEN_DIR}>")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tests/golden/ DESTINATION ${TROUPE_GOLDEN_DIR} COMPONENT development
  FILES_MATCHING PATTERN "*.json")
install(TARGETS troupe_contracts EXPORT troupe-contracts
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe COMPONENT development)
install(EXPORT troupe-contracts NAMESPACE troupe:: FILE troupe-contracts-targets.cmake DESTINATION ${TROUPE_CMAKE_DIR}
  COMPONENT development)

install(FILES ${PROJECT_BINARY_DIR}/troupe-config.cmake ${PROJECT_BINARY_DIR}/troupe-config-version.cmake
    cmake/FindCAF.cmake cmake/FindOneDNN.cmake cmake/FindPMIx.cmake
  DESTINATION ${TROUPE_CMAKE_DIR} COMPONENT development)
