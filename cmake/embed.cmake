# Writes OUTPUT, a header with the bytes of the FILES as arrays of unsigned char; page.css becomes
# PREFIXpage_css. Arguments: FILES (a list, separated by "|"), PREFIX, OUTPUT.
cmake_minimum_required(VERSION 3.25)
string(REPLACE "|" ";" files "${FILES}")
set(content "/* Made by cmake/embed.cmake. */\n")
foreach(file ${files})
  get_filename_component(name ${file} NAME)
  string(MAKE_C_IDENTIFIER ${name} name)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND content "static const unsigned char ${PREFIX}${name}[] = {${bytes}};\n")
endforeach()
file(WRITE ${OUTPUT} "${content}")
