/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_TABLE_H
#define TDM_CTL_TABLE_H

/* JSON as people read it: nested objects as indented lines, an array of
   like objects as a table with a heading, numbers to the right.  To
   stdout. */

#include <jansson.h>

/* tdm_table_print prints one member of an object. */
void tdm_table_print(const char *name, const json_t *value);

#endif /* TDM_CTL_TABLE_H */
