/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/table.h"

#include "appliance/base/attr.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void print_tree(const char *name, const json_t *v, int depth);

static void print_scalar(const json_t *v) {
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    printf("%s\n", text ? text : "?");
    free(text);
}

static void print_object(const json_t *o, int depth) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)o, key, v) print_tree(key, v, depth);
}

/* summary writes what a cell holds that is no scalar, on one line: phases
   and changes are read so. */
static void summary(const json_t *v, char *buf, size_t cap) {
    char *text = json_dumps(v, JSON_COMPACT | JSON_REAL_PRECISION(6));
    (void)snprintf(buf, cap, "%s", text ? text : "?");
    free(text);
}

/* is_time: seconds since 1970, which a table tells as a time of UTC. */
static int is_time(const char *key, const json_t *v) {
    return strcmp(key, "at_s") == 0 && json_is_number(v);
}

/* put_time writes it as tandemctl explain --at takes it. */
static void put_time(const json_t *v, char *buf, size_t cap) {
    int64_t ms = llround(json_number_value(v) * 1e3);
    time_t s = (time_t)(ms / 1000);
    struct tm tm;
    char day[32] = "?";
    if (gmtime_r(&s, &tm)) (void)strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    if (json_is_integer(v))
        (void)snprintf(buf, cap, "%sZ", day);
    else
        (void)snprintf(buf, cap, "%s.%03dZ", day, (int)(ms % 1000));
}

/* cell writes a scalar into buf as a table shows it. */
static void cell(const char *key, const json_t *v, char *buf, size_t cap) {
    if (is_time(key, v))
        put_time(v, buf, cap);
    else if (json_is_string(v))
        (void)snprintf(buf, cap, "%s", json_string_value(v));
    else if (json_is_integer(v))
        (void)snprintf(buf, cap, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        (void)snprintf(buf, cap, "%.3f", json_real_value(v));
    else if (json_is_array(v) || json_is_object(v))
        summary(v, buf, cap);
    else
        (void)snprintf(buf, cap, "%s", json_is_true(v) ? "true" : json_is_false(v) ? "false" : "-");
}

#define COLUMN_MAX 12

/* print_table writes an array of like objects with a heading; numbers to
   the right. */
static void print_table(const json_t *rows, int depth) {
    const char *key[COLUMN_MAX];
    size_t width[COLUMN_MAX], column_cnt = 0;
    char text[256];
    const char *name;
    json_t *v;
    json_object_foreach(json_array_get(rows, 0), name, v) {
        if (column_cnt == COLUMN_MAX) break;
        key[column_cnt] = name;
        width[column_cnt] = strlen(name);
        for (size_t r = 0; r < json_array_size(rows); r++) {
            cell(name, json_object_get(json_array_get(rows, r), name), text, sizeof text);
            width[column_cnt] = TDM_MAX(width[column_cnt], strlen(text));
        }
        column_cnt++;
    }
    for (size_t r = 0; r <= json_array_size(rows); r++) {
        printf("%*s", depth * 2, "");
        for (size_t c = 0; c < column_cnt; c++) {
            const json_t *at = json_object_get(json_array_get(rows, r ? r - 1 : 0), key[c]);
            int is_last = c + 1 == column_cnt;
            if (r)
                cell(key[c], at, text, sizeof text);
            else
                (void)snprintf(text, sizeof text, "%s", key[c]);
            if (json_is_number(at) && !is_time(key[c], at))
                printf("%*s%s", (int)width[c], text, is_last ? "" : "  ");
            else
                printf("%-*s%s", is_last ? 0 : (int)width[c], text, is_last ? "" : "  ");
        }
        printf("\n");
    }
}

/* print_tree writes nested JSON as indented lines, "name  value". */
static void print_tree(const char *name, const json_t *v, int depth) {
    printf("%*s%-*s", depth * 2, "", 26 - depth * 2, name);
    if (json_is_object(v)) {
        printf("%s\n", json_object_size(v) ? "" : "-");
        print_object(v, depth + 1);
    } else if (json_is_array(v)) {
        printf("%s\n", json_array_size(v) ? "" : "-");
        if (json_is_object(json_array_get(v, 0))) {
            print_table(v, depth + 1);
            return;
        }
        for (size_t i = 0; i < json_array_size(v); i++) {
            char *text = json_dumps(json_array_get(v, i), JSON_ENCODE_ANY);
            printf("%*s%s\n", depth * 2 + 2, "", text ? text : "?");
            free(text);
        }
    } else if (json_is_string(v)) {
        printf("%s\n", json_string_value(v));
    } else {
        print_scalar(v);
    }
}

void tdm_table_print(const char *name, const json_t *value) {
    print_tree(name, value, 0);
}
