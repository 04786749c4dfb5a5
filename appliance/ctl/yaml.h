/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_YAML_H
#define TDM_CTL_YAML_H

/* JSON as YAML 1.2 in block style.  A string is written as JSON writes it:
   a double-quoted scalar of YAML holds the same (YAML 1.2.2, 5.7 and 7.3.1),
   so no word is ever taken for a number or a truth. */

#include <jansson.h>
#include <stdio.h>

/* tdm_yaml_print writes value as one document. */
void tdm_yaml_print(const json_t *value, FILE *f);

#endif /* TDM_CTL_YAML_H */
