#!/usr/bin/env bash
# Where pkg-config knows another PMIx than the system's, header and library are both of that one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
other=$folder/other
mkdir -p "$other/include" "$other/lib/pkgconfig"
touch "$other/include/pmix.h" "$other/lib/libpmix.so"
cat >"$other/lib/pkgconfig/pmix.pc" <<END
Name: pmix
Description: made up
Version: 9.9
Libs: -L$other/lib -lpmix
Cflags: -I$other/include
END
cat >"$folder/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
list(APPEND CMAKE_MODULE_PATH "$1/cmake")
find_package(PMIx REQUIRED)
message("found \${PMIx_INCLUDE_DIR} \${PMIx_LIBRARY} \${PMIx_VERSION}")
END
found=$(PKG_CONFIG_PATH=$other/lib/pkgconfig cmake -S "$folder" -B "$folder/build" 2>&1 | grep '^found ')
[ "$found" = "found $other/include $other/lib/libpmix.so 9.9" ] || { echo "$found" >&2; exit 1; }
