# Debian packages (cpack -G DEB in the build folder) and archives (cpack -G TXZ) of what is installed.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON) # nobody builds tests for a package
set(CPACK_PACKAGE_CONTACT "the sluice authors <sluice@localhost>")
set(CPACK_PACKAGE_DESCRIPTION
    "Parameters, gradients and optimizer states live in chunks that move between the memory of a
device, the host's and disks. A policy, chosen for each run, says where. The plan of a run is known
to the byte before it begins, and where things are never changes the numbers.")
set(CPACK_STRIP_FILES ON)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
# What a program needs that is built against the static library, and what finds both.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libjansson-dev, libxxhash-dev, libpcre2-dev, libutf8proc-dev, liburing-dev, pkg-config, cmake")
foreach(needed "HWLOC;libhwloc-dev" "ZLIB;zlib1g-dev" "ZSTD;libzstd-dev")
  list(GET needed 0 found)
  list(GET needed 1 package)
  if(${found}_FOUND)
    string(APPEND CPACK_DEBIAN_PACKAGE_SUGGESTS ", ${package}")
  endif()
endforeach()
include(CPack)
