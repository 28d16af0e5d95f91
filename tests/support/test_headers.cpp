// Empty: CMake compiles the headers that tests share as a part of a target with a source (cmake/TroupeTests.cmake).
