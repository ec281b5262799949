# Compiler and linker flags that make memory errors harder to exploit. Test "hardening" reads from
# what was built whether they are all there (scripts/check_hardening).
include(CheckCCompilerFlag)
include(CheckCSourceCompiles)
include(CheckPIESupported)

check_pie_supported(OUTPUT_VARIABLE SL_PIE_OUTPUT LANGUAGES C)
foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection)
  string(MAKE_C_IDENTIFIER "SL_HAS${flag}" has_flag)
  check_c_compiler_flag(${flag} ${has_flag})
  if(${has_flag})
    add_compile_options(${flag})
  endif()
endforeach()
# Sanitizers have their own checks of these calls, and both together give false reports.
if(NOT SL_SANITIZE)
  # Level 3 also knows sizes that are known when a program runs; older C libraries warn of it.
  set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_c_source_compiles("#include <string.h>\nint main(void) { return 0; }" SL_HAS_FORTIFY_3)
  unset(CMAKE_REQUIRED_FLAGS)
  set(SL_FORTIFY 2)
  if(SL_HAS_FORTIFY_3)
    set(SL_FORTIFY 3)
  endif()
  add_compile_options($<$<CONFIG:Release,RelWithDebInfo>:-U_FORTIFY_SOURCE>
                      $<$<CONFIG:Release,RelWithDebInfo>:-D_FORTIFY_SOURCE=${SL_FORTIFY}>)
endif()
add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
