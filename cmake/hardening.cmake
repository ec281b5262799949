# Compiler and linker flags that make memory errors harder to exploit. Checked by scripts/check.sh
# where hardening-check is there.
include(CheckCCompilerFlag)
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
  add_compile_options($<$<CONFIG:Release,RelWithDebInfo>:-U_FORTIFY_SOURCE>
                      $<$<CONFIG:Release,RelWithDebInfo>:-D_FORTIFY_SOURCE=2>)
endif()
add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
