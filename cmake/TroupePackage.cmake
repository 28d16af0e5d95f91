# The programs as a Debian package: `cpack` in the build tree (or `cpack --preset release`) makes troupe_VERSION_ARCH.deb of
# the component `runtime`. Libraries and headers are another component, which is not in it.
include(GNUInstallDirs)

set_property(GLOBAL APPEND PROPERTY TROUPE_INSTALLED rtrun rtrun-rank rttopo ckpt rtbench)
install(TARGETS rtrun rtrun-rank rttopo ckpt rtbench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/apps/mnist/app.toml DESTINATION ${CMAKE_INSTALL_DATADIR}/troupe COMPONENT runtime)
install(PROGRAMS ${PROJECT_SOURCE_DIR}/tools/get-data ${PROJECT_SOURCE_DIR}/tools/make-shards DESTINATION ${CMAKE_INSTALL_DATADIR}/troupe COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT runtime)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "Troupe")
set(CPACK_PACKAGE_CONTACT "The Troupe authors")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME troupe)
set(CPACK_DEBIAN_RUNTIME_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "python3, openmpi-bin")  # for get-data and make-shards, and one of the launchers
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "rtrun trains neural networks on what a machine or a cluster has, as a TOML
file describes it; rttopo shows and examines machines, ckpt looks into
checkpoints, rtbench measures.
An example of a job: /usr/share/troupe/app.toml.")
include(CPack)
