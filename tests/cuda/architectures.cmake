# usage: cmake -P architectures.cmake
# What could be wrong: an nvcc that is asked for GPUs which it does not know, or versions compared as text.
include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/cuda_architectures.cmake)

function(expect version architectures)
  sl_choose_cuda_architectures("${version}" found)
  if(NOT "${found}" STREQUAL "${architectures}")
    message(FATAL_ERROR "CUDA ${version}: \"${found}\", not \"${architectures}\"")
  endif()
endfunction()

expect("" "")
expect(11.8 "")
expect(12.0 "80-real;90")
expect(12.6 "80-real;90")
expect(12.8 "80-real;90-real;100-real;120")
expect(12.10 "80-real;90-real;100-real;120")
expect(13.0 "80-real;90-real;100-real;120")
