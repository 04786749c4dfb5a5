/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/bundle.h"

#include "appliance/base/clock.h"
#include "appliance/ctl/doctor.h"
#include "appliance/ctl/page.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define TAR_BLOCK 512u

/* put adds one file to the archive (ustar, POSIX pax(1)); 0: it could not
   be written. */
static int put(gzFile out, const char *name, const char *text, size_t sz, int64_t wall_s) {
    char head[TAR_BLOCK] = {0};
    (void)snprintf(head, 100, "tandem-support/%s", name);
    memcpy(head + 100, "0000640", 8);
    memcpy(head + 108, "0000000", 8);
    memcpy(head + 116, "0000000", 8);
    (void)snprintf(head + 124, 12, "%011llo", (unsigned long long)sz);
    (void)snprintf(head + 136, 12, "%011llo", (unsigned long long)wall_s);
    memset(head + 148, ' ', 8); /* the sum counts its own place as blanks */
    head[156] = '0';
    memcpy(head + 257, "ustar\00000", 8);
    unsigned sum = 0;
    for (size_t i = 0; i < TAR_BLOCK; i++) sum += (unsigned char)head[i];
    (void)snprintf(head + 148, 8, "%06o", sum);
    static const char zero[TAR_BLOCK];
    unsigned pad = (unsigned)((TAR_BLOCK - sz % TAR_BLOCK) % TAR_BLOCK);
    return gzwrite(out, head, TAR_BLOCK) == (int)TAR_BLOCK &&
           (sz == 0 || gzwrite(out, text, (unsigned)sz) == (int)sz) &&
           (pad == 0 || gzwrite(out, zero, pad) == (int)pad);
}

/* What it takes from the appliance. */
static const struct {
    const char *name, *path;
} source[] = {{"status.json", "/api/v1/status"},
              {"config.json", "/api/v1/config"},
              {"changes.json", "/api/v1/changes"},
              {"audit.json", "/api/v1/audit"},
              {"requests.json", "/api/v1/requests?slowest=100"},
              {"iterations.json", "/api/v1/iterations"},
              {"metrics.txt", "/metrics"},
              {"journey.txt", "/journey"}};

static char *doctor_text(void) {
    static tdm_doctor_line_t line[TDM_DOCTOR_LINE_MAX];
    tdm_doctor_ask_t ask = {.root = ""};
    uint32_t cnt = tdm_doctor_check(&ask, line);
    json_t *list = json_array();
    for (uint32_t i = 0; i < cnt; i++) {
        json_t *row = json_object();
        (void)json_object_set_new(row, "what", json_string(line[i].what));
        (void)json_object_set_new(row, "state", json_string(tdm_doctor_state_name(line[i].state)));
        (void)json_object_set_new(row, "found", json_string(line[i].found));
        (void)json_object_set_new(row, "fix", json_string(line[i].fix));
        (void)json_array_append_new(list, row);
    }
    char *text = json_dumps(list, JSON_INDENT(1));
    json_decref(list);
    return text;
}

/* finish adds the manifest, lets go of it, and ends the archive. */
static int finish(gzFile out, json_t *manifest, int64_t wall_s) {
    static const char end[2 * TAR_BLOCK];
    char *text = json_dumps(manifest, JSON_INDENT(1));
    json_decref(manifest);
    int ok = text && put(out, "MANIFEST.json", text, strlen(text), wall_s) &&
             gzwrite(out, end, sizeof end) == (int)sizeof end;
    free(text);
    return ok;
}

/* fill gives the exit status. */
static int fill(const tdm_ctl_options_t *o, gzFile out, const char *version) {
    int64_t wall_s = tdm_clock_wall_s();
    json_t *manifest = json_object(), *files = json_object();
    int ok = 1, got = 0;
    for (size_t i = 0; ok && i < TDM_COUNT_OF(source); i++) {
        tdm_page_t page;
        tdm_error_t err = {0};
        tdm_status_t st = tdm_page_get(o, source[i].path, &page, &err);
        int is_there = st == TDM_OK && page.status == 200 && page.text;
        if (st == TDM_OK && !is_there) (void)snprintf(err.text, 64, "status %ld", page.status);
        (void)json_object_set_new(files, source[i].name, json_string(is_there ? "ok" : err.text));
        if (is_there) ok = put(out, source[i].name, page.text, page.sz, wall_s);
        got += is_there;
        free(page.text);
    }
    char *doctor = doctor_text();
    if (ok && doctor) ok = put(out, "doctor.json", doctor, strlen(doctor), wall_s);
    free(doctor);
    (void)json_object_set_new(files, "doctor.json", json_string("ok"));
    (void)json_object_set_new(manifest, "tandemctl", json_string(version));
    (void)json_object_set_new(manifest, "at_s", json_integer((json_int_t)wall_s));
    (void)json_object_set_new(manifest, "files", files);
    ok = finish(out, manifest, wall_s) && ok;
    if (!ok) return TDM_EXIT_FAILED;
    return got ? 0 : TDM_EXIT_UNREACHABLE;
}

int tdm_ctl_support(const tdm_ctl_options_t *o, const char *version) {
    if (o->word_cnt != 1 || strcmp(o->word[0], "bundle") != 0) {
        fprintf(stderr, "tandemctl: support bundle [--out FILE]\n");
        return TDM_EXIT_USAGE;
    }
    gzFile out = gzopen(o->out, "wbe");
    if (!out) {
        fprintf(stderr, "tandemctl: %s: %s\n", o->out, strerror(errno));
        return TDM_EXIT_FAILED;
    }
    int rc = fill(o, out, version);
    if (gzclose(out) != Z_OK && rc == 0) rc = TDM_EXIT_FAILED;
    if (rc == 0)
        printf("%s\n", o->out);
    else if (rc == TDM_EXIT_UNREACHABLE)
        fprintf(stderr, "tandemctl: the appliance does not answer; %s has this machine alone\n",
                o->out);
    else
        fprintf(stderr, "tandemctl: %s: cannot be written whole\n", o->out);
    return rc;
}
