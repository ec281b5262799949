# The architectures that are compiled for unless SL_CUDA_ARCHITECTURES names others: of the GPUs that
# sluice is for (8.0, 9.0, 10.0, 12.0) those that nvcc knows, the newest also as code that newer GPUs
# translate. Empty: nvcc is too old for the CUDA backend.
function(sl_choose_cuda_architectures version out_architectures)
  if(version VERSION_GREATER_EQUAL 12.8)
    set(${out_architectures} 80-real 90-real 100-real 120 PARENT_SCOPE)
  elseif(version VERSION_GREATER_EQUAL 12.0)
    set(${out_architectures} 80-real 90 PARENT_SCOPE)
  else()
    set(${out_architectures} "" PARENT_SCOPE)
  endif()
endfunction()
