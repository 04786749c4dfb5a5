# SPDX-License-Identifier: Apache-2.0
# CPack runs this on the packages that it made.
execute_process(COMMAND ${CPACK_TDM_REPACK} ${CPACK_PACKAGE_FILES} COMMAND_ERROR_IS_FATAL ANY)
