# The shared library, and what find_package(sluice) and pkg-config need.
#
#   sluice::sluice   the shared library; only what include/sluice marks SL_API is visible
#   sluice::static   the static one; needs the libraries of cmake/sluice-config.cmake.in
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# All of the static library, which is position independent; CMake wants one source beside it.
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/generated/shared.c CONTENT "/* see cmake/install.cmake */\n")
add_library(sluice_shared SHARED ${PROJECT_BINARY_DIR}/generated/shared.c)
target_link_libraries(sluice_shared PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,sluice>
                      PUBLIC Threads::Threads m)
target_include_directories(sluice_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(sluice_shared PROPERTIES OUTPUT_NAME sluice EXPORT_NAME sluice
                      LINKER_LANGUAGE C VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR})
set_target_properties(sluice PROPERTIES EXPORT_NAME static)

install(TARGETS sluice sluice_shared EXPORT sluice_targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/sluice TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE README.md SECURITY.md TYPE DOC)
install(DIRECTORY docs examples TYPE DOC)

if(TARGET sluice_command)
  install(TARGETS sluice_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # Manual pages and completions are what the command says of itself.
  set(SL_PAGES ${PROJECT_BINARY_DIR}/pages)
  add_custom_command(OUTPUT ${SL_PAGES}/man1/sluice.1
                     COMMAND ${CMAKE_COMMAND} -D COMMAND=$<TARGET_FILE:sluice_command>
                             -D DIRECTORY=${SL_PAGES} -P ${PROJECT_SOURCE_DIR}/cmake/pages.cmake
                     DEPENDS sluice_command ${PROJECT_SOURCE_DIR}/cmake/pages.cmake
                     COMMENT "Writing manual pages and completions")
  add_custom_target(sluice_pages ALL DEPENDS ${SL_PAGES}/man1/sluice.1)
  install(DIRECTORY ${SL_PAGES}/man1 ${SL_PAGES}/man7 TYPE MAN)
  install(DIRECTORY ${SL_PAGES}/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(DIRECTORY ${SL_PAGES}/fish/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  # Where zsh looks: Debian has a place for packages, others have one for all.
  install(CODE "set(functions site-functions)
if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
  set(functions vendor-completions)
endif()
file(INSTALL \"${SL_PAGES}/zsh/_sluice\"
     DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/zsh/\${functions}\")")
endif()

set(SL_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)
install(EXPORT sluice_targets NAMESPACE sluice:: DESTINATION ${SL_PACKAGE_DIR}
        FILE sluice-targets.cmake)
configure_package_config_file(cmake/sluice-config.cmake.in sluice-config.cmake
                              INSTALL_DESTINATION ${SL_PACKAGE_DIR})
write_basic_package_version_file(sluice-config-version.cmake COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH SL_PREFIX_FROM_PC ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
     ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/sluice.pc.in sluice.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/sluice-config.cmake
              ${PROJECT_BINARY_DIR}/sluice-config-version.cmake DESTINATION ${SL_PACKAGE_DIR})
install(FILES ${PROJECT_BINARY_DIR}/sluice.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
