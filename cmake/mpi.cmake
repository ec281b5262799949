# One plug-in for each MPI whose headers are here (src/comm/mpi/plugin.c): sluice itself is linked
# with none, and loads one when ranks are on several machines.
set_source_files_properties(src/comm/mpi.c PROPERTIES COMPILE_DEFINITIONS
                            SL_PLUGIN_FOLDER="${CMAKE_INSTALL_LIBDIR}/sluice")
foreach(mpi "openmpi ompi-c" "mpich mpich")
  string(REPLACE " " ";" mpi ${mpi})
  list(GET mpi 0 name)
  list(GET mpi 1 package)
  pkg_check_modules(MPI_${name} IMPORTED_TARGET ${package})
  if(NOT MPI_${name}_FOUND)
    continue()
  endif()
  add_library(sluice_${name} MODULE src/comm/mpi/plugin.c)
  # Its headers are the system's, and do not follow this house's warnings.
  target_include_directories(sluice_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(sluice_${name} SYSTEM PRIVATE ${MPI_${name}_INCLUDE_DIRS})
  target_link_directories(sluice_${name} PRIVATE ${MPI_${name}_LIBRARY_DIRS})
  list(GET MPI_${name}_LIBRARIES 0 library) # the first is MPI, the others are what it is made of
  target_link_libraries(sluice_${name} PRIVATE ${library})
  set_target_properties(sluice_${name} PROPERTIES PREFIX "" OUTPUT_NAME sluice-${name})
  # Not part of the packages, which would then need every MPI: cmake --install DIR --component mpi.
  install(TARGETS sluice_${name} DESTINATION ${CMAKE_INSTALL_LIBDIR}/sluice COMPONENT mpi
          EXCLUDE_FROM_ALL)
endforeach()
