# usage: cmake -P headers.cmake
# What could be wrong: a toolkit without cuBLASLt's or NVTX's headers that is taken, and fails in the middle
# of the build, or one with all of them that is refused.
include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/cuda_headers.cmake)

function(expect directories text)
  sl_find_missing_headers("${directories}" found)
  if((text STREQUAL "" AND NOT found STREQUAL "") OR NOT found MATCHES "${text}")
    message(FATAL_ERROR "${directories}: \"${found}\", not \"${text}\"")
  endif()
endfunction()

set(ours ${CMAKE_CURRENT_LIST_DIR}/include) # the stand-in's: both are there
expect("${ours}" "")
expect("/nowhere;${ours}" "")
expect("${ours}/nvtx3" "cublasLt.h .libcublas-dev.*nvtx3/nvToolsExt.h .cuda-nvtx")
expect("" "cublasLt.h")
