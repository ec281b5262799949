# The kernel tests once more, on what the device table and the kernel table give them (gpu_place.h):
# linked with the library as it is shipped they run on a real GPU, label gpu, and are skipped where
# none opens; linked with the stand-in one of them shows that gpu_place.h itself works.
file(GLOB SL_GPU_CANDIDATES CONFIGURE_DEPENDS test_cuda_*.c)
foreach(source ${SL_GPU_CANDIDATES})
  file(STRINGS ${source} uses REGEX "^#include \"(cuda|attention)_case.h\"")
  file(STRINGS ${source} controls REGEX "^#include \"(standin|runtime|cublaslt).*\\.h\"")
  if(uses AND NOT controls)
    list(APPEND SL_GPU_TESTS ${source})
  endif()
endforeach()
list(APPEND SL_GPU_TESTS ${CMAKE_CURRENT_SOURCE_DIR}/gpu_products.c)

# The program alone; tests/ptx makes one more of each.
function(sl_add_gpu_program name source library)
  set(here ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  add_executable(${name} ${source} ${here}/gpu_place.c)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR} ${here}
                             ${here}/include ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE SL_TEST_GPU)
  target_link_libraries(${name} PRIVATE ${library} test_skips)
endfunction()

function(sl_add_gpu_test name source library)
  sl_add_gpu_program(${name} ${source} ${library})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77)
endfunction()

if(CMAKE_CUDA_COMPILER AND NOT SL_SANITIZE)
  foreach(source ${SL_GPU_TESTS})
    get_filename_component(name ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "gpu_test_" name ${name})
    sl_add_gpu_test(${name} ${source} sluice)
    target_compile_definitions(${name} PRIVATE SL_TEST_GPU_REAL)
    set_tests_properties(${name} PROPERTIES LABELS gpu)
  endforeach()
  add_test(NAME gpu_test_device_streams COMMAND test_device_streams gpu)
  set_tests_properties(gpu_test_device_streams PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77
                       LABELS gpu)
endif()

foreach(name test_cuda_elementwise gpu_products)
  get_filename_component(source ${name}.c ABSOLUTE)
  sl_add_gpu_test(standin_${name} ${source} sluice_standin)
  set_tests_properties(standin_${name} PROPERTIES LABELS quick ENVIRONMENT SL_TEST_FEW=2)
endforeach()
