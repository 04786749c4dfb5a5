# SPDX-License-Identifier: Apache-2.0
# cmake -DOUT=files.c -DFOLDER=DIR -DFILES=a,b -P embed.cmake writes a C
# table of the files' bytes (files_private.h).
string(REPLACE "," ";" names "${FILES}")
set(text "#include \"appliance/web/files_private.h\"\n")
set(rows "")
set(n 0)
foreach(name ${names})
  file(READ ${FOLDER}/${name} hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(APPEND text "static const unsigned char file${n}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${name}\", file${n}, sizeof file${n}},\n")
  math(EXPR n "${n} + 1")
endforeach()
string(APPEND text "const tdm_web_file_t tdm_web_file[] = {\n${rows}};\nconst size_t tdm_web_file_cnt = ${n};\n")
file(WRITE ${OUT} "${text}")
