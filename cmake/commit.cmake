# Writes OUTPUT, a header with the version and the commit that is built; run at every build, so it
# touches the file only when it changes. Arguments: SOURCE_DIR, VERSION, OUTPUT, and COMMIT where
# there is no git ("": git is asked).
cmake_minimum_required(VERSION 3.25)
find_package(Git QUIET)
set(SL_COMMIT "unknown")
if(COMMIT)
  set(SL_COMMIT "${COMMIT}")
elseif(Git_FOUND AND EXISTS "${SOURCE_DIR}/.git")
  execute_process(COMMAND "${GIT_EXECUTABLE}" describe --always --dirty --abbrev=12 --exclude=*
                  WORKING_DIRECTORY "${SOURCE_DIR}" OUTPUT_VARIABLE described ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(NOT failed)
    set(SL_COMMIT "${described}")
  endif()
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT
"#define SL_VERSION_TEXT \"@VERSION@\"
#define SL_VERSION_COMMIT \"@SL_COMMIT@\"
" @ONLY)
