/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/setup/store.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANIFEST_MAX 32u /* rendered files */

static const char *const part[] = {"appliance.json", "certificate.pem", "key.pem"};
#define PART_CNT TDM_COUNT_OF(part)

typedef struct text {
    char *bytes; /* malloc; NULL: no such file */
    uint64_t sz;
} text_t;

static tdm_status_t failed(tdm_error_t *err, const char *path) {
    return tdm_error_set(err, errno == ENOENT ? TDM_ERR_NOT_FOUND : TDM_ERR_IO, "%s: %s", path,
                         strerror(errno));
}

static tdm_status_t path_of(char out[PATH_MAX], const char *root, const char *path,
                            tdm_error_t *err) {
    if (snprintf(out, PATH_MAX, "%s%s", root, path) < PATH_MAX) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_LIMIT, "%.100s...: too long a path", root);
}

/* --- files ------------------------------------------------------------------ */

/* read_all: NOT_FOUND where there is none.  What an operator gives may be
   a link or a pipe: neither is opened for long. */
static tdm_status_t read_all(const char *path, uint64_t max, text_t *out, tdm_error_t *err) {
    struct stat sb;
    *out = (text_t){0};
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return failed(err, path);
    tdm_status_t st = TDM_OK;
    if (fstat(fd, &sb) != 0 || !S_ISREG(sb.st_mode))
        st = tdm_error_set(err, TDM_ERR_INVAL, "%s: is no regular file", path);
    else if ((uint64_t)sb.st_size > max)
        st =
            tdm_error_set(err, TDM_ERR_LIMIT, "%s: over %llu bytes", path, (unsigned long long)max);
    else if (!(out->bytes = malloc((size_t)max + 1)))
        st = tdm_error_set(err, TDM_ERR_NOMEM, "%s: no memory", path);
    while (st == TDM_OK) {
        ssize_t n = read(fd, out->bytes + out->sz, (size_t)(max - out->sz) + 1);
        if (n < 0) st = failed(err, path);
        if (n <= 0) break;
        out->sz += (uint64_t)n;
        if (out->sz > max) st = tdm_error_set(err, TDM_ERR_LIMIT, "%s: grows", path);
    }
    (void)close(fd);
    if (st == TDM_OK) return st;
    free(out->bytes);
    *out = (text_t){0};
    return st;
}

static void text_free(text_t *t) {
    free(t->bytes);
    *t = (text_t){0};
}

/* parents makes the folders above path. */
static void parents(const char *path) {
    char folder[PATH_MAX + 16];
    (void)snprintf(folder, sizeof folder, "%s", path);
    for (char *p = strchr(folder + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        (void)mkdir(folder, 0755);
        *p = '/';
    }
}

static void sync_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    (void)close(fd);
}

/* tandemd's group, for what it alone may read; on a machine without the
   account, as in a test, root's. */
static gid_t group(void) {
    const struct group *g = getgrnam("tandem");
    return g ? g->gr_gid : 0;
}

/* write_all puts a file in its place in one step. */
static tdm_status_t write_all(const char *path, mode_t mode, const char *bytes, uint64_t sz,
                              tdm_error_t *err) {
    char made[PATH_MAX];
    if (snprintf(made, sizeof made, "%s.new", path) >= (int)sizeof made)
        return tdm_error_set(err, TDM_ERR_LIMIT, "%.100s...: too long a path", path);
    parents(path);
    (void)unlink(made);
    int fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0) return failed(err, made);
    int is_good =
        !(mode & 0040) || (mode & 0004) || geteuid() != 0 || fchown(fd, (uid_t)-1, group()) == 0;
    for (uint64_t done = 0; is_good && done < sz;) {
        ssize_t n = write(fd, bytes + done, (size_t)(sz - done));
        is_good = n > 0;
        if (is_good) done += (uint64_t)n;
    }
    is_good = is_good && fchmod(fd, mode) == 0 && fsync(fd) == 0;
    tdm_status_t st = is_good ? TDM_OK : failed(err, made);
    (void)close(fd);
    if (st == TDM_OK && rename(made, path) != 0) st = failed(err, path);
    if (st != TDM_OK) (void)unlink(made);
    return st;
}

/* is_same says whether a file holds just these bytes. */
static int is_same(const char *path, const char *bytes, uint64_t sz) {
    text_t now;
    if (read_all(path, sz, &now, NULL) != TDM_OK) return 0;
    int same = now.sz == sz && memcmp(now.bytes, bytes, (size_t)sz) == 0;
    text_free(&now);
    return same;
}

/* --- accepting ---------------------------------------------------------------- */

static tdm_status_t check_pair(const text_t *certificate, const text_t *key, tdm_error_t *err) {
    gnutls_certificate_credentials_t pair;
    if (!certificate->bytes && !key->bytes) return TDM_OK;
    if (!certificate->bytes || !key->bytes)
        return tdm_error_set(err, TDM_ERR_INVAL, "%s: is there without %s",
                             part[certificate->bytes ? 1 : 2], part[certificate->bytes ? 2 : 1]);
    if (gnutls_certificate_allocate_credentials(&pair) != 0)
        return tdm_error_set(err, TDM_ERR_NOMEM, "certificate.pem: no memory");
    gnutls_datum_t c = {(unsigned char *)certificate->bytes, (unsigned)certificate->sz};
    gnutls_datum_t k = {(unsigned char *)key->bytes, (unsigned)key->sz};
    int rc = gnutls_certificate_set_x509_key_mem(pair, &c, &k, GNUTLS_X509_FMT_PEM);
    gnutls_certificate_free_credentials(pair);
    if (rc >= 0) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_INVAL, "certificate.pem, key.pem: %s", gnutls_strerror(rc));
}

static tdm_status_t check_parts(const text_t *text, tdm_error_t *err) {
    tdm_setup_t *s = malloc(sizeof *s);
    if (!s) return tdm_error_set(err, TDM_ERR_NOMEM, "no memory");
    tdm_status_t st = tdm_setup_parse(s, text[0].bytes, text[0].sz, part[0], err);
    if (st == TDM_OK) st = check_pair(&text[1], &text[2], err);
    free(s);
    return st;
}

/* drop_folder removes the parts, and what a write of one left that was cut. */
static void drop_folder(const char *folder) {
    char path[PATH_MAX];
    for (size_t i = 0; i < 2 * PART_CNT; i++) {
        const char *end = i < PART_CNT ? "" : ".new";
        int n = snprintf(path, sizeof path, "%s/%s%s", folder, part[i % PART_CNT], end);
        if (n < (int)sizeof path) (void)unlink(path);
    }
    (void)rmdir(folder);
}

/* keep writes the parts to next/ and has it change places with accepted/,
   which becomes former/. */
static tdm_status_t keep(const char *root, const text_t *text, tdm_error_t *err) {
    char state[PATH_MAX], next[PATH_MAX + 16], accepted[PATH_MAX + 16], former[PATH_MAX + 16];
    char path[PATH_MAX + 64];
    tdm_status_t st = path_of(state, root, TDM_SETUP_STATE, err);
    if (st != TDM_OK) return st;
    (void)snprintf(next, sizeof next, "%s/next", state);
    (void)snprintf(accepted, sizeof accepted, "%s/accepted", state);
    (void)snprintf(former, sizeof former, "%s/former", state);
    drop_folder(next);
    parents(next);
    if (mkdir(next, 0750) != 0) return failed(err, next);
    if (geteuid() == 0 && (chown(next, (uid_t)-1, group()) != 0 || chmod(next, 0750) != 0))
        return failed(err, next);
    for (size_t i = 0; st == TDM_OK && i < PART_CNT; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", next, part[i]);
        if (text[i].bytes) st = write_all(path, 0640, text[i].bytes, text[i].sz, err);
    }
    if (st != TDM_OK) return st;
    sync_folder(next);
    if (renameat2(AT_FDCWD, next, AT_FDCWD, accepted, RENAME_EXCHANGE) == 0) {
        drop_folder(former);
        if (rename(next, former) != 0) st = failed(err, former);
    } else if (errno != ENOENT || rename(next, accepted) != 0) {
        st = failed(err, accepted);
    }
    sync_folder(state);
    return st;
}

tdm_status_t tdm_setup_accept(const char *root, const char *folder, int *is_new, tdm_error_t *err) {
    text_t text[PART_CNT] = {{0}};
    tdm_status_t st = TDM_OK;
    int is_changed = 0;
    char path[PATH_MAX + 64];
    for (size_t i = 0; st == TDM_OK && i < PART_CNT; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, part[i]);
        st = read_all(path, i == 0 ? TDM_SETUP_FILE_MAX : TDM_SETUP_PEM_MAX, &text[i], err);
        if (i > 0 && st == TDM_ERR_NOT_FOUND) st = TDM_OK;
    }
    if (st == TDM_OK) st = check_parts(text, err);
    for (size_t i = 0; st == TDM_OK && i < PART_CNT; i++) {
        (void)snprintf(path, sizeof path, "%s" TDM_SETUP_STATE "/accepted/%s", root, part[i]);
        is_changed |=
            text[i].bytes ? !is_same(path, text[i].bytes, text[i].sz) : access(path, F_OK) == 0;
    }
    if (st == TDM_OK && is_changed) st = keep(root, text, err);
    for (size_t i = 0; i < PART_CNT; i++) text_free(&text[i]);
    if (is_new) *is_new = is_changed;
    return st;
}

/* --- reading what is kept ------------------------------------------------------- */

static int is_id(const char *text, uint64_t sz) {
    return sz >= 32 && strspn(text, "0123456789abcdef") == 32;
}

static void id_of(const char *root, const char *file, char out[33]) {
    char path[PATH_MAX];
    text_t text = {0};
    out[0] = 0;
    if (path_of(path, root, file, NULL) != TDM_OK || read_all(path, 64, &text, NULL) != TDM_OK)
        return;
    text.bytes[text.sz] = 0;
    if (is_id(text.bytes, text.sz)) (void)snprintf(out, 33, "%.32s", text.bytes);
    text_free(&text);
}

/* key_line is a line of a keys file: whose, and the hash. */
static int key_line(const char *who, const char *key, char line[80]) {
    unsigned char hash[32];
    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, key, strlen(key), hash) != 0) return 0;
    int used = snprintf(line, 80, "%s ", who);
    for (size_t i = 0; i < sizeof hash; i++, used += 2)
        (void)snprintf(line + used, 80 - (size_t)used, "%02x", hash[i]);
    (void)snprintf(line + used, 80 - (size_t)used, "\n");
    return 1;
}

static tdm_status_t parse_file(const char *root, const char *file, tdm_setup_t *s,
                               tdm_error_t *err) {
    char path[PATH_MAX];
    text_t text = {0};
    tdm_status_t st = path_of(path, root, file, err);
    if (st == TDM_OK) st = read_all(path, TDM_SETUP_FILE_MAX, &text, err);
    if (st == TDM_OK) st = tdm_setup_parse(s, text.bytes, text.sz, part[0], err);
    text_free(&text);
    return st;
}

tdm_status_t tdm_setup_accepted(const char *root, tdm_setup_t *s, tdm_setup_facts_t *facts,
                                tdm_error_t *warning, tdm_error_t *err) {
    char path[PATH_MAX];
    *facts = (tdm_setup_facts_t){0};
    tdm_status_t st = path_of(path, root, TDM_SETUP_STATE "/accepted/certificate.pem", err);
    if (st != TDM_OK) return st;
    facts->is_certificate = access(path, F_OK) == 0;
    text_t text = {0};
    if (path_of(path, root, TDM_SETUP_STATE "/api.keys", NULL) == TDM_OK &&
        read_all(path, sizeof facts->made_key - 1, &text, NULL) == TDM_OK)
        memcpy(facts->made_key, text.bytes, (size_t)text.sz);
    text_free(&text);
    if (path_of(path, root, TDM_SETUP_RUN "/local.key", NULL) == TDM_OK &&
        read_all(path, 63, &text, NULL) == TDM_OK) {
        text.bytes[text.sz] = 0;
        if (text.bytes[0]) (void)key_line("local", text.bytes, facts->local_key);
    }
    text_free(&text);
    id_of(root, TDM_SETUP_STATE "/machine-id", facts->machine_id);
    st = parse_file(root, TDM_SETUP_STATE "/accepted/appliance.json", s, warning);
    if (st != TDM_OK && st != TDM_ERR_NOT_FOUND)
        st = parse_file(root, TDM_SETUP_STATE "/former/appliance.json", s, err);
    if (st == TDM_ERR_NOT_FOUND) st = tdm_setup_parse(s, "{}", 2, "the empty object", err);
    if (st == TDM_OK && s->keys_api[0]) facts->made_key[0] = 0;
    return st;
}

/* --- made once -------------------------------------------------------------------- */

static int hex_random(char *out, size_t byte_cnt) {
    unsigned char bytes[32];
    if (getrandom(bytes, byte_cnt, 0) != (ssize_t)byte_cnt) return 0;
    for (size_t i = 0; i < byte_cnt; i++) (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return 1;
}

static tdm_status_t make_id(const char *root, tdm_setup_facts_t *facts, tdm_error_t *err) {
    char path[PATH_MAX], line[40];
    if (facts->machine_id[0]) return TDM_OK;
    id_of(root, "/etc/machine-id", facts->machine_id);
    if (!facts->machine_id[0] && !hex_random(facts->machine_id, 16))
        return tdm_error_set(err, TDM_ERR_IO, "machine id: no random bytes");
    tdm_status_t st = path_of(path, root, TDM_SETUP_STATE "/machine-id", err);
    if (st != TDM_OK) return st;
    (void)snprintf(line, sizeof line, "%s\n", facts->machine_id);
    return write_all(path, 0644, line, strlen(line), err);
}

static int key_make(char key[64]) {
    memcpy(key, "tdm-", 4);
    return hex_random(key + 4, 24);
}

static tdm_status_t make_key(tdm_setup_facts_t *facts, char key[64], tdm_error_t *err) {
    if (facts->made_key[0]) return TDM_OK;
    if (key_make(key) && key_line("first", key, facts->made_key)) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_IO, "api key: no random bytes");
}

/* keep_key: the hash is kept, and its text shown once, by whoever asked for
   all this.  It is kept last: where anything fails before, the next boot makes
   another; kept and not shown, it would be nobody's. */
static tdm_status_t keep_key(const char *root, const tdm_setup_facts_t *facts, const char *key,
                             tdm_error_t *err) {
    char path[PATH_MAX];
    if (!key[0]) return TDM_OK;
    tdm_status_t st = path_of(path, root, TDM_SETUP_STATE "/api.keys", err);
    return st == TDM_OK ? write_all(path, 0640, facts->made_key, strlen(facts->made_key), err) : st;
}

/* make_local: root alone reads its text, until the machine is off. */
static tdm_status_t make_local(const char *root, tdm_setup_facts_t *facts, tdm_error_t *err) {
    char path[PATH_MAX], key[64] = "";
    if (facts->local_key[0]) return TDM_OK;
    if (!key_make(key) || !key_line("local", key, facts->local_key))
        return tdm_error_set(err, TDM_ERR_IO, "local key: no random bytes");
    tdm_status_t st = path_of(path, root, TDM_SETUP_RUN "/local.key", err);
    return st == TDM_OK ? write_all(path, 0600, key, strlen(key), err) : st;
}

/* --- rendering to the disk ------------------------------------------------------- */

typedef struct manifest {
    const char *root;
    char path[MANIFEST_MAX][128];
    uint32_t cnt, bad_cnt; /* bad: differ from the disk */
    char first[128];
    int is_write;
} manifest_t;

static tdm_status_t put(void *context, const char *file, int is_private, const char *text,
                        tdm_error_t *err) {
    manifest_t *m = context;
    char path[PATH_MAX];
    tdm_status_t st = path_of(path, m->root, file, err);
    if (st != TDM_OK) return st;
    if (m->cnt == MANIFEST_MAX || strlen(file) >= sizeof m->path[0])
        return tdm_error_set(err, TDM_ERR_LIMIT, "%s: over %u files", file, MANIFEST_MAX);
    memcpy(m->path[m->cnt++], file, strlen(file) + 1);
    if (is_same(path, text, strlen(text))) return TDM_OK;
    if (m->bad_cnt++ == 0) (void)snprintf(m->first, sizeof m->first, "%s", file);
    return m->is_write ? write_all(path, is_private ? 0640 : 0644, text, strlen(text), err)
                       : TDM_OK;
}

/* settle removes what only the former manifest has, and writes this one. */
static tdm_status_t settle(const manifest_t *m, tdm_error_t *err) {
    char path[PATH_MAX], lines[MANIFEST_MAX * 129] = "";
    text_t former = {0};
    size_t used = 0;
    tdm_status_t st = path_of(path, m->root, TDM_SETUP_RUN "/manifest", err);
    if (st != TDM_OK) return st;
    if (read_all(path, sizeof lines, &former, NULL) == TDM_OK) {
        former.bytes[former.sz] = 0;
        char *rest = NULL;
        for (char *f = strtok_r(former.bytes, "\n", &rest); f; f = strtok_r(NULL, "\n", &rest)) {
            int is_wanted = 0;
            char old[PATH_MAX];
            for (uint32_t i = 0; i < m->cnt; i++) is_wanted |= strcmp(m->path[i], f) == 0;
            if (!is_wanted && path_of(old, m->root, f, NULL) == TDM_OK) (void)unlink(old);
        }
    }
    text_free(&former);
    for (uint32_t i = 0; i < m->cnt; i++)
        used += (size_t)snprintf(lines + used, sizeof lines - used, "%s\n", m->path[i]);
    return write_all(path, 0644, lines, used, err);
}

tdm_status_t tdm_setup_write(const char *root, char made_key[64], tdm_error_t *warning,
                             tdm_error_t *err) {
    manifest_t m = {.root = root, .is_write = 1};
    tdm_setup_facts_t facts;
    char run[PATH_MAX];
    memset(made_key, 0, 64);
    tdm_setup_t *s = malloc(sizeof *s);
    if (!s) return tdm_error_set(err, TDM_ERR_NOMEM, "no memory");
    tdm_status_t st = tdm_setup_accepted(root, s, &facts, warning, err);
    if (st == TDM_OK) st = make_id(root, &facts, err);
    if (st == TDM_OK && !s->keys_api[0]) st = make_key(&facts, made_key, err);
    if (st == TDM_OK) st = make_local(root, &facts, err);
    if (st == TDM_OK) st = tdm_setup_render(s, &facts, put, &m, err);
    if (st == TDM_OK) st = settle(&m, err);
    if (st == TDM_OK) st = path_of(run, root, TDM_SETUP_STATE, err);
    if (st == TDM_OK) st = keep_key(root, &facts, made_key, err);
    if (st == TDM_OK)
        sync_folder(run);
    else
        made_key[0] = 0;
    free(s);
    return st;
}

tdm_status_t tdm_setup_held(const char *root, uint32_t *cnt, uint32_t *bad_cnt, char first[128],
                            tdm_error_t *err) {
    manifest_t m = {.root = root};
    tdm_setup_facts_t facts;
    tdm_error_t warning = {0};
    tdm_setup_t *s = malloc(sizeof *s);
    if (!s) return tdm_error_set(err, TDM_ERR_NOMEM, "no memory");
    tdm_status_t st = tdm_setup_accepted(root, s, &facts, &warning, err);
    if (st == TDM_OK) st = tdm_setup_render(s, &facts, put, &m, err);
    free(s);
    *cnt = m.cnt;
    *bad_cnt = m.bad_cnt;
    (void)snprintf(first, 128, "%s", m.first);
    return st;
}
