# Writes the manual pages and what shells complete, as the command prints them, into DIRECTORY:
#   cmake -D COMMAND=… -D DIRECTORY=… -P pages.cmake
function(print_page file)
  execute_process(COMMAND ${COMMAND} ${ARGN} OUTPUT_FILE ${DIRECTORY}/${file} RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${COMMAND} ${ARGN} ended with ${code}")
  endif()
endfunction()

file(REMOVE_RECURSE ${DIRECTORY})
file(MAKE_DIRECTORY ${DIRECTORY}/man1 ${DIRECTORY}/man7 ${DIRECTORY}/bash ${DIRECTORY}/zsh
     ${DIRECTORY}/fish)
print_page(man1/sluice.1 manual --roff)
print_page(man7/sluice-words.7 manual --roff words)
print_page(bash/sluice completion bash)
print_page(zsh/_sluice completion zsh)
print_page(fish/sluice.fish completion fish)
file(STRINGS ${DIRECTORY}/man1/sluice.1 names REGEX "^\\.B sluice.-[a-z]+.1.$")
foreach(name ${names})
  string(REGEX REPLACE "^.*-([a-z]+)[(].*$" "\\1" name "${name}")
  print_page(man1/sluice-${name}.1 manual --roff ${name})
endforeach()
