/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/appliance.h"

#include "appliance/ctl/options.h"
#include "appliance/setup/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One at a time, and large. */
static tdm_setup_t setup;

static int told(const tdm_error_t *err) {
    fprintf(stderr, "tandemctl: %s\n", err->text);
    return 1;
}

static int help(void) {
    static char text[8192];
    if (tdm_setup_help(text, sizeof text) >= sizeof text) return 1;
    (void)fputs(text, stdout);
    return 0;
}

static tdm_status_t load(const char *path, tdm_error_t *err) {
    static char text[TDM_SETUP_FILE_MAX + 1];
    FILE *f = fopen(path, "re");
    if (!f) return tdm_error_set(err, TDM_ERR_NOT_FOUND, "%s: cannot be read", path);
    size_t n = fread(text, 1, sizeof text, f);
    (void)fclose(f);
    return tdm_setup_parse(&setup, text, n, path, err);
}

static int check(const char *path) {
    tdm_error_t err = {0};
    return load(path, &err) == TDM_OK ? 0 : told(&err);
}

static int kernel(const char *root, const char *path) {
    tdm_setup_facts_t facts;
    tdm_error_t err = {0}, warning = {0};
    char text[1024];
    tdm_status_t st =
        path ? load(path, &err) : tdm_setup_accepted(root, &setup, &facts, &warning, &err);
    if (st != TDM_OK) return told(&err);
    if (tdm_setup_kernel(&setup, text, sizeof text) >= sizeof text) return 1;
    (void)puts(text);
    return 0;
}

static int accept_folder(const char *root, const char *folder) {
    tdm_error_t err = {0};
    int is_new;
    tdm_status_t st = tdm_setup_accept(root, folder, &is_new, &err);
    if (st == TDM_ERR_NOT_FOUND) return 3;
    if (st != TDM_OK) return told(&err);
    printf("appliance.json: %s\n", is_new ? "accepted" : "as before");
    return 0;
}

static int render(const char *root) {
    tdm_error_t err = {0}, warning = {0};
    char key[64];
    tdm_status_t st = tdm_setup_write(root, key, &warning, &err);
    if (warning.status != TDM_OK && warning.status != TDM_ERR_NOT_FOUND)
        fprintf(stderr, "tandemctl: %s: the former one is used\n", warning.text);
    if (st != TDM_OK) return told(&err);
    if (key[0]) printf("api key, shown this once: %s\n", key);
    return 0;
}

/* run gives -1 where the words are no verb's. */
static int run(const char *verb, const char *word, const char *root) {
    if (strcmp(verb, "help") == 0 && !word) return help();
    if (strcmp(verb, "check") == 0 && word) return check(word);
    if (strcmp(verb, "kernel") == 0) return kernel(root, word);
    if (strcmp(verb, "accept") == 0 && word) return accept_folder(root, word);
    if (strcmp(verb, "render") == 0 && !word) return render(root);
    return -1;
}

int tdm_ctl_appliance(int argc, char **argv) {
    const char *word[2] = {"", NULL}, *root = NULL, *other = NULL;
    int word_cnt = 0;
    for (int i = 2; i < argc && !other; i++) {
        if (strcmp(argv[i], "--root") == 0 && i + 1 < argc)
            root = argv[++i];
        else if (argv[i][0] == '-' || word_cnt == 2)
            other = argv[i];
        else
            word[word_cnt++] = argv[i];
    }
    int has_root = strcmp(word[0], "accept") == 0 || strcmp(word[0], "render") == 0 ||
                   (strcmp(word[0], "kernel") == 0 && !word[1]);
    if (!other && root && !has_root) other = "--root";
    tdm_error_t err = {0};
    if (other && strcmp(other, "--root") == 0 && !root) /* the last word */
        return tdm_ctl_usage("appliance", &(tdm_error_t){TDM_ERR_INVAL, "--root takes a value"});
    if (other && tdm_ctl_no_use(other, &err) != TDM_OK) return tdm_ctl_usage("appliance", &err);
    int rc = run(word[0], word[1], root ? root : "");
    if (rc >= 0) return rc;
    fprintf(stderr,
            "tandemctl: appliance: help, check FILE, kernel [FILE], accept FOLDER or render\n");
    return TDM_EXIT_HELP;
}
