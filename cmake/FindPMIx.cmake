# Finds a PMIx client library: target PMIx::pmix. Debian keeps it in a folder of its own, to which the system's folder has a link.
# The link is better: with a folder that the system does not know, programs in a build folder have a search path, and look
# for each library that they need in all its parts.
find_package(PkgConfig QUIET)
pkg_check_modules(PC_PMIX QUIET pmix)
find_path(PMIx_INCLUDE_DIR pmix.h HINTS ${PC_PMIX_INCLUDE_DIRS})
find_library(PMIx_LIBRARY pmix PATHS ${PC_PMIX_LIBRARY_DIRS})
set(PMIx_VERSION ${PC_PMIX_VERSION})
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PMIx REQUIRED_VARS PMIx_LIBRARY PMIx_INCLUDE_DIR VERSION_VAR PMIx_VERSION)
if(PMIx_FOUND AND NOT TARGET PMIx::pmix)
  add_library(PMIx::pmix UNKNOWN IMPORTED)
  set_target_properties(PMIx::pmix PROPERTIES IMPORTED_LOCATION ${PMIx_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${PMIx_INCLUDE_DIR})
endif()
mark_as_advanced(PMIx_INCLUDE_DIR PMIx_LIBRARY)
