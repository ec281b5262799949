# The CUDA backend. Where an nvcc of CUDA 12 or later is found it is always compiled, for every
# architecture that it knows of ours (cuda_architectures.cmake); elsewhere two short files stand in its
# place. The CUDA runtime is linked statically and cuBLASLt is opened
# when a device is, so the same command runs on a machine with neither driver nor toolkit.
include(CheckLanguage)
include(${CMAKE_CURRENT_LIST_DIR}/cuda_architectures.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/cuda_headers.cmake)

option(SL_CUDA "compile the CUDA backend where nvcc is found" ON)
set(SL_CUDA_ARCHITECTURES "" CACHE STRING "as CMAKE_CUDA_ARCHITECTURES takes them (else all of ours)")

# The room's sources but for the one that stands in its place.
file(GLOB SL_CUDA_C_SOURCES CONFIGURE_DEPENDS src/device/cuda*.c kernels/cuda/*.c)
list(FILTER SL_CUDA_C_SOURCES EXCLUDE REGEX "absent\\.c$")
file(GLOB SL_CUDA_SOURCES CONFIGURE_DEPENDS kernels/cuda/*.cu)

if(SL_CUDA AND SL_CUDA_SOURCES AND EXISTS ${PROJECT_SOURCE_DIR}/kernels/cuda/table.c)
  check_language(CUDA)
endif()
if(CMAKE_CUDA_COMPILER)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE SL_NVCC_TEXT)
  string(REGEX MATCH "release ([0-9.]+)" SL_NVCC_TEXT "${SL_NVCC_TEXT}")
  sl_choose_cuda_architectures("${CMAKE_MATCH_1}" SL_CUDA_KNOWN)
endif()
if(CMAKE_CUDA_COMPILER AND NOT SL_CUDA_KNOWN)
  message(WARNING "${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_MATCH_1}: 12.0 is the oldest that compiles "
                  "the CUDA backend, which is left out. Name a newer one in CUDACXX, or say -DSL_CUDA=OFF")
  unset(CMAKE_CUDA_COMPILER CACHE)
  unset(CMAKE_CUDA_COMPILER)
endif()

if(CMAKE_CUDA_COMPILER)
  if(SL_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${SL_CUDA_ARCHITECTURES})
  else()
    set(CMAKE_CUDA_ARCHITECTURES ${SL_CUDA_KNOWN})
  endif()
  set(CMAKE_CUDA_STANDARD 17)
  if(SL_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${SL_CCACHE})
  endif()
  enable_language(CUDA)
  # CMake 3.25 (Debian 12) sets a property of this target, also where the toolkit has it no longer (CUDA 13).
  if(CMAKE_VERSION VERSION_LESS 3.26 AND NOT TARGET CUDA::nvToolsExt)
    add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
  endif()
  find_package(CUDAToolkit REQUIRED)
  sl_find_missing_headers("${CUDAToolkit_INCLUDE_DIRS}" SL_CUDA_MISSING)
  if(SL_CUDA_MISSING OR NOT TARGET CUDA::cudart_static)
    if(NOT TARGET CUDA::cudart_static)
      string(APPEND SL_CUDA_MISSING "libcudart_static.a (cuda-cudart-dev) is not in ${CUDAToolkit_LIBRARY_DIR}. ")
    endif()
    message(FATAL_ERROR "${CMAKE_CUDA_COMPILER} is there, but its toolkit lacks parts that the CUDA backend needs: "
                        "${SL_CUDA_MISSING}Install them, or configure with -DSL_CUDA=OFF")
  endif()
  # Our .cu files need nothing of C++ when they run: the C compiler links what they are part of, with
  # the one runtime that is named below.
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)
  set(CMAKE_CUDA_IMPLICIT_LINK_LIBRARIES "")
  set(CMAKE_CUDA_HOST_LINK_LAUNCHER ${CMAKE_C_COMPILER})
  set(SL_CUDA_FLAGS -fmad=false --expt-relaxed-constexpr
      -Xcompiler=-fno-exceptions,-fno-threadsafe-statics,-fvisibility=hidden,-Wall,-Wextra
      -Xcompiler=-ffp-contract=off) # some hosts of GPUs fuse where x86-64 does not
  if(SL_WERROR)
    list(APPEND SL_CUDA_FLAGS -Werror=all-warnings -Xcompiler=-Werror)
  endif()
  # Objects of another target, so that whoever links the library needs no C++ linker.
  add_library(sluice_cuda OBJECT ${SL_CUDA_SOURCES})
  target_compile_options(sluice_cuda PRIVATE ${SL_CUDA_FLAGS})
  target_include_directories(sluice_cuda PRIVATE ${PROJECT_SOURCE_DIR}/include
                             ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  add_library(sluice_cuda_c OBJECT ${SL_CUDA_C_SOURCES})
  target_include_directories(sluice_cuda_c PRIVATE ${PROJECT_SOURCE_DIR}/include
                             ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_include_directories(sluice_cuda_c SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_sources(sluice PRIVATE $<TARGET_OBJECTS:sluice_cuda> $<TARGET_OBJECTS:sluice_cuda_c>)
  target_link_libraries(sluice PRIVATE CUDA::cudart_static)
  string(APPEND SL_PC_LIBS_PRIVATE " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
else()
  add_library(sluice_cuda_c OBJECT src/device/cuda_absent.c kernels/cuda/absent.c)
  target_include_directories(sluice_cuda_c PRIVATE ${PROJECT_SOURCE_DIR}/include
                             ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_sources(sluice PRIVATE $<TARGET_OBJECTS:sluice_cuda_c>)
endif()
