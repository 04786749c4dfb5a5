/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/control/audit.h"

#include "appliance/base/atomic.h"
#include "appliance/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TEXT_MAX 200 /* bytes of one text of an entry */

void tdm_audit_open(tdm_audit_t *a, const char *folder) {
    (void)pthread_mutex_init(&a->lock, NULL);
    if (folder[0]) (void)snprintf(a->path, sizeof a->path, "%s/audit.jsonl", folder);
}

static json_t *cut(const char *text) {
    char buf[TEXT_MAX + 1];
    size_t n = 0;
    for (; text[n] && n < TEXT_MAX; n++) {
        unsigned char c = (unsigned char)text[n];
        buf[n] = c >= 0x20 && c < 0x7f ? (char)c : '?';
    }
    buf[n] = '\0';
    return json_string(buf);
}

static char *line_of(int64_t wall_s, const tdm_audit_entry_t *e) {
    char at[32];
    time_t t = (time_t)wall_s;
    struct tm tm;
    (void)gmtime_r(&t, &tm);
    (void)strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_t *row = json_object();
    (void)json_object_set_new(row, "at", json_string(at));
    (void)json_object_set_new(row, "who", cut(e->actor->name));
    (void)json_object_set_new(row, "role", json_string(tdm_role_name(e->actor->role)));
    (void)json_object_set_new(row, "what", cut(e->what));
    (void)json_object_set_new(row, "why", cut(e->why));
    (void)json_object_set_new(row, "result", json_string(e->result));
    (void)json_object_set_new(row, "detail", cut(e->detail));
    char *text = json_dumps(row, JSON_COMPACT);
    json_decref(row);
    return text;
}

/* append adds a line to the file, or nothing; 0: it could not. */
static int append(const char *path, char *line, size_t sz) {
    char old[336];
    struct stat st;
    (void)snprintf(old, sizeof old, "%s.1", path);
    if (stat(path, &st) == 0 && st.st_size > (off_t)TDM_AUDIT_FILE_MAX) (void)rename(path, old);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (fd < 0) return 0;
    int is_known = fstat(fd, &st) == 0;
    line[sz] = '\n';
    errno = 0;
    ssize_t n = write(fd, line, sz + 1);
    int why = errno ? errno : ENOSPC;
    /* a piece of a line would be the beginning of the next */
    if (n > 0 && n != (ssize_t)sz + 1 && is_known) (void)!ftruncate(fd, st.st_size);
    line[sz] = '\0';
    (void)close(fd);
    errno = why;
    return n == (ssize_t)sz + 1;
}

/* may_be_kept judges a denied entry; *left_out: those before it that had no
   line. */
static int may_be_kept(tdm_audit_t *a, int64_t wall_s, uint32_t *left_out) {
    int64_t minute = wall_s / 60;
    if (minute != a->minute) a->denied_cnt = 0; /* also after a step back */
    a->minute = minute;
    if (a->denied_cnt == TDM_AUDIT_DENIED_MAX) {
        a->left_out += a->left_out < UINT32_MAX;
        return 0;
    }
    a->denied_cnt++;
    *left_out = a->left_out;
    a->left_out = 0;
    return 1;
}

static void keep(tdm_audit_t *a, int64_t wall_s, const tdm_audit_entry_t *entry) {
    char *text = line_of(wall_s, entry);
    size_t sz = text ? strlen(text) : 0;
    if (sz > 0 && sz < TDM_AUDIT_LINE_MAX - 1u) {
        char *line = a->line[a->cnt++ % TDM_AUDIT_KEPT];
        memcpy(line, text, sz + 1);
        int is_in = !a->path[0] || append(a->path, line, sz);
        if (!is_in && !a->was_said)
            tdm_log(TDM_LOG_WARN, "control", "%s: %s", a->path, strerror(errno));
        a->was_said = !is_in;
        tdm_store_relaxed(&a->lost_cnt, a->lost_cnt + (uint64_t)!is_in);
    }
    free(text);
}

void tdm_audit_write(tdm_audit_t *a, int64_t wall_s, const tdm_audit_entry_t *entry) {
    tdm_audit_entry_t e = *entry;
    char detail[TEXT_MAX + 1];
    uint32_t left_out = 0;
    (void)pthread_mutex_lock(&a->lock);
    if (strcmp(e.result, "denied") != 0 || may_be_kept(a, wall_s, &left_out)) {
        (void)snprintf(detail, sizeof detail, "%u more were denied before; %s", left_out, e.detail);
        if (left_out) e.detail = detail;
        keep(a, wall_s, &e);
    }
    (void)pthread_mutex_unlock(&a->lock);
}

uint64_t tdm_audit_lost_cnt(const tdm_audit_t *a) {
    return tdm_load_relaxed(&a->lost_cnt);
}

size_t tdm_audit_text(tdm_audit_t *a, char *buf, size_t cap) {
    (void)pthread_mutex_lock(&a->lock);
    uint64_t kept = TDM_MIN(a->cnt, (uint64_t)TDM_AUDIT_KEPT);
    size_t sz = 0;
    int n = snprintf(buf, cap, "{\"entries\":[");
    sz += n > 0 ? (size_t)n : 0;
    for (uint64_t i = 0; i < kept; i++) {
        const char *line = a->line[(a->cnt - 1 - i) % TDM_AUDIT_KEPT];
        n = snprintf(sz < cap ? buf + sz : NULL, sz < cap ? cap - sz : 0, "%s%s", i ? "," : "",
                     line);
        sz += n > 0 ? (size_t)n : 0;
    }
    n = snprintf(sz < cap ? buf + sz : NULL, sz < cap ? cap - sz : 0, "]}\n");
    (void)pthread_mutex_unlock(&a->lock);
    return sz + (n > 0 ? (size_t)n : 0);
}
