/* SPDX-License-Identifier: Apache-2.0 */
/* tandemd: the appliance.  Exit status: 0 stopped as asked, 1 it cannot
   run as configured (a supervisor should not restart it in a loop), 2
   usage, 3 the executor served and is gone for good. */

#include "appliance/base/log.h"
#include "appliance/boot/house.h"
#include "appliance/config/config.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tdm_house_t house;

static void on_signal(int number) {
    int saved = errno; /* the bell may write */
    if (number == SIGHUP)
        tdm_house_reload(&house);
    else
        tdm_house_stop(&house);
    errno = saved;
}

static void usage(FILE *f) {
    fprintf(f, "usage: tandemd [--config FILE] [--set section.key=value]...\n"
               "       tandemd --help-config | --print-config | --version\n"
               "A prompt goes in as packets through DPDK and comes back as tokens.\n");
}

static int print(size_t (*text)(char *buf, size_t sz)) {
    size_t sz = text(NULL, 0) + 1;
    char *buf = malloc(sz);
    if (!buf) return 1;
    (void)text(buf, sz);
    fputs(buf, stdout);
    free(buf);
    return 0;
}

static tdm_config_t config;

static size_t effective(char *buf, size_t sz) {
    return tdm_config_print(&config, buf, sz);
}

/* The arguments, read at start and again at each reload. */
typedef struct arguments {
    int argc;
    char **argv;
} arguments_t;

/* read_config makes the configuration that the arguments name. */
static tdm_status_t read_config(void *ctx, tdm_config_t *c, tdm_error_t *err) {
    const arguments_t *a = ctx;
    tdm_status_t st = TDM_OK;
    tdm_config_default(c);
    for (int i = 1; st == TDM_OK && i < a->argc; i++) {
        if (strcmp(a->argv[i], "--config") == 0 && i + 1 < a->argc)
            st = tdm_config_load(c, a->argv[++i], err);
        else if (strcmp(a->argv[i], "--set") == 0 && i + 1 < a->argc)
            st = tdm_config_set(c, a->argv[++i], err);
        else if (strcmp(a->argv[i], "--print-config") != 0)
            st = tdm_error_set(err, TDM_ERR_INVAL, "\"%s\": see tandemd --help", a->argv[i]);
    }
    return st == TDM_OK ? tdm_config_check(c, err) : st;
}

/* configure reads the arguments; -1: go on, else exit with it. */
static int configure(arguments_t *a, tdm_error_t *err) {
    int is_print = 0;
    for (int i = 1; i < a->argc; i++) {
        if (strcmp(a->argv[i], "--version") == 0) return printf("tandemd %s\n", TDM_VERSION) < 0;
        if (strcmp(a->argv[i], "--help") == 0) return usage(stdout), 0;
        if (strcmp(a->argv[i], "--help-config") == 0) return print(tdm_config_help);
        is_print |= strcmp(a->argv[i], "--print-config") == 0;
    }
    if (read_config(a, &config, err) != TDM_OK) return 2;
    return is_print ? print(effective) : -1;
}

int main(int argc, char **argv) {
    tdm_error_t err = {0};
    arguments_t arguments = {.argc = argc, .argv = argv};
    int rc = configure(&arguments, &err);
    if (rc >= 0) {
        if (err.status != TDM_OK) tdm_log(TDM_LOG_ERROR, "config", "%s", err.text);
        return rc;
    }
    tdm_log_set_level((tdm_log_level_t)config.log_level);
    (void)signal(SIGPIPE, SIG_IGN);
    if (tdm_house_open(&house, &config, read_config, &arguments, TDM_VERSION, &err) != TDM_OK) {
        tdm_log(TDM_LOG_ERROR, "boot", "%s", err.text);
        return 1;
    }
    struct sigaction sa = {.sa_handler = on_signal};
    (void)sigaction(SIGTERM, &sa, NULL);
    (void)sigaction(SIGINT, &sa, NULL);
    (void)sigaction(SIGHUP, &sa, NULL);
    tdm_status_t st = tdm_house_run(&house, &err);
    if (st != TDM_OK) tdm_log(TDM_LOG_ERROR, "boot", "%s", err.text);
    (void)signal(SIGTERM, SIG_IGN); /* the bell that the handler rings goes now */
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    tdm_house_close(&house);
    if (st == TDM_OK) tdm_log(TDM_LOG_INFO, "boot", "stopped");
    return st == TDM_OK ? 0 : st == TDM_ERR_CLOSED ? 3 : 1;
}
