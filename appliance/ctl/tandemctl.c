/* SPDX-License-Identifier: Apache-2.0 */
/* tandemctl: the operator's hand.  Exit status: 0 ok, 1 failed, 2 usage,
   3 degraded (doctor, show health; a replay of which requests had no whole
   answer), 4 unreachable. */

#include "appliance/ctl/appliance.h"
#include "appliance/ctl/ask.h"
#include "appliance/ctl/bench.h"
#include "appliance/ctl/bundle.h"
#include "appliance/ctl/complete.h"
#include "appliance/ctl/doctor.h"
#include "appliance/ctl/flight.h"
#include "appliance/ctl/operate.h"
#include "appliance/ctl/page.h"
#include "appliance/ctl/plan.h"
#include "appliance/ctl/profile.h"
#include "appliance/ctl/replay.h"
#include "appliance/ctl/show.h"
#include "appliance/ctl/top.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int run_chat(const tdm_ctl_options_t *o) {
    return tdm_ask(TDM_ASK_CHAT, o);
}
static int run_generate(const tdm_ctl_options_t *o) {
    return tdm_ask(TDM_ASK_COMPLETION, o);
}
static int run_bundle(const tdm_ctl_options_t *o) {
    return tdm_ctl_support(o, TDM_VERSION);
}

static int profile(int argc, char **argv) {
    return tdm_ctl_profile(argc, argv, TDM_VERSION);
}
static int explain(int argc, char **argv) {
    return tdm_ctl_explain(argc, argv, TDM_VERSION);
}
static int trace(int argc, char **argv) {
    return tdm_ctl_trace(argc, argv, TDM_VERSION);
}
static int completion(const tdm_ctl_options_t *o);

static int version(const tdm_ctl_options_t *o) {
    (void)o;
    printf("tandemctl %s\n", TDM_VERSION);
    return 0;
}

/* What several commands use. */
#define USE(x)   TDM_CTL_USE(x)
#define USE_PAGE TDM_CTL_USE_PAGE
#define USE_ASK                                                                                    \
    (USE(HOST) | USE(PORT) | USE(CERTIFICATE) | USE(INSECURE) | USE(KEY) | USE(MODEL) |            \
     USE(MAX_TOKENS) | USE(TEMPERATURE) | USE(SEED) | USE(IDS) | USE(JSON) | USE(SECONDS))
#define USE_CHANGE (USE_PAGE | USE(WHY) | USE(SECONDS))
#define USE_SHOW                                                                                   \
    (USE_PAGE | USE(JSON) | USE(FORMS) | USE(SINCE) | USE(WATCH) | USE(SLOWEST) | USE(SECONDS))

static const tdm_ctl_command_t command[] = {
    {"chat", NULL, run_chat, USE_ASK, 1, "",
     "chat MESSAGE      ask over HTTP/3, print the answer as it streams"},
    {"generate", NULL, run_generate, USE_ASK, 1, "", "generate PROMPT   the same, raw completion"},
    {"show", NULL, tdm_show, USE_SHOW, 1, "show",
     "show WHAT         status, health, slo, scheduler, attention, fallbacks, drops, rings,\n"
     "                    tiles, kv, requests, gpu, power, flight, journey, metrics, config,\n"
     "                    changes, audit, models or version"},
    {"top", NULL, tdm_ctl_top, USE_PAGE | USE(WATCH) | USE(WHY), 0, "",
     "top               all of it on a whole terminal, live"},
    {"wait", NULL, tdm_wait_ready, USE_PAGE | USE(SECONDS) | USE(PID), 0, "",
     "wait              until the appliance is ready"},
    {"config", NULL, tdm_ctl_config,
     USE_CHANGE | USE(CONFIRM) | USE(REVISION) | USE(JSON) | USE(FORMS) | USE(WATCH), 32,
     "show diff apply confirm rollback",
     "config VERB       the live keys: show, diff CANDIDATE, apply CANDIDATE [--confirm T]\n"
     "                    [--revision N], confirm, rollback [REVISION]; a candidate is a file or\n"
     "                    section.key=value ..."},
    {"reload", NULL, tdm_ctl_reload, USE_CHANGE, 0, "",
     "reload            its configuration file read anew, without a restart"},
    {"drain", NULL, tdm_ctl_drain, USE_CHANGE, 0, "",
     "drain             take nothing new, finish what runs; --why TEXT"},
    {"undrain", NULL, tdm_ctl_undrain, USE_CHANGE, 0, "", "undrain           take requests again"},
    {"support", NULL, run_bundle, USE_PAGE | USE(OUT), 1, "bundle",
     "support bundle    what a helper needs to see, in one file without any prompt: --out FILE"},
    {"doctor", NULL, tdm_doctor, USE(MODEL) | USE(JSON), 1, "",
     "doctor [NIC]      is this machine fit, and what to type if not"},
    {"appliance", tdm_ctl_appliance, NULL, 0, 0, "accept check help kernel render",
     "appliance VERB    appliance.json, what makes a machine an appliance: help, check FILE,\n"
     "                    kernel [FILE], accept FOLDER, render; --root DIR: kernel without FILE,\n"
     "                    accept, render"},
    {"plan", tdm_ctl_plan, NULL, 0, 0, "",
     "plan              capacity: --profile FILE|example --trace FILE|NAME, with\n"
     "                    --requests --ttft-ms --ttft-share --gap-ms --epsilon --appliances\n"
     "                    --kv-pages --noise --seed N, --json, --html FILE, --rates R[@WARM],..\n"
     "                    --scale --cv --sequences --context --prefill-tokens --grid\n"
     "                    --floor --starve-ms --policies P,P.. --link-gbit X,X.. --kv-bytes N\n"
     "                    --link-us X --spread --window S --clock MHZ --measured FILE"},
    {"replay", tdm_ctl_replay, NULL, TDM_CTL_REPLAY_USES, 0, "",
     "replay            send a trace as it arrives: --trace FILE|NAME --door h3|http1\n"
     "                    --rate R | --load S --capacity C, --requests --duration --cv\n"
     "                    --scale --context --vocab --connections --open-max --ttft-ms\n"
     "                    --gap-ms --epsilon --records FILE --warm N --cut --text-seed N --spread\n"
     "                    --plain --quiet"},
    {"bench", tdm_ctl_bench, NULL, (TDM_CTL_REPLAY_USES | USE(SOCKET)) & ~USE(JSON), 0,
     "serve merge",
     "bench serve       promises kept over load: --out BASE --rates R,R.. --cells PATH/POLICY,..\n"
     "                    --window S --planned FILE, and replay's own but --rate --load\n"
     "                    --capacity --duration --cut --text-seed --records --quiet --json;\n"
     "                    goes on with BASE.json; --only PATH/POLICY[@RATE],.. --seconds N\n"
     "                    --first S --note KEY=VALUE: said of each window\n"
     "  bench merge       several sittings in one: --out BASE --keep CELL,.. FILE.. --plan FILE\n"
     "                    --note KEY=VALUE: said of all windows"},
    {"profile", profile, NULL, 0, 0, "",
     "profile           time the backend: --out BASE, with --config FILE --set K=V\n"
     "                    --budget SECONDS --power-w N, --json"},
    {"explain", explain, NULL, 0, 0, "",
     "explain           why an iteration was as it was: --at T, --iteration N, --slowest\n"
     "                    or --fallback REASON; --flight FILE"},
    {"trace", trace, NULL, 0, 0, "",
     "trace             what the flight recorder holds, to stdout: --format chrome|otlp\n"
     "                    --seconds N --flight FILE"},
    {"completion", NULL, completion, 0, 1, "bash",
     "completion bash   a script for bash's completion"},
    {"version", NULL, version, 0, 0, "", "version           also as --version"},
};

static int completion(const tdm_ctl_options_t *o) {
    if (o->word_cnt != 1 || strcmp(o->word[0], "bash") != 0) {
        fprintf(stderr, "tandemctl: completion bash\n");
        return TDM_EXIT_USAGE;
    }
    tdm_ctl_complete(command, TDM_COUNT_OF(command), stdout);
    return 0;
}

/* run reads the words after the command, where it does not itself, and runs it. */
static int run(const tdm_ctl_command_t *c, int argc, char **argv) {
    tdm_ctl_options_t o;
    tdm_error_t err = {0};
    int rc;
    if (c->run) {
        rc = c->run(argc, argv);
    } else {
        tdm_status_t st = tdm_ctl_options_parse(argc, argv, 2, c->uses, &o, &err);
        if (st == TDM_OK && o.word_cnt > c->word_max)
            st = tdm_ctl_no_use(o.word[c->word_max], &err);
        rc = st == TDM_OK ? c->ask(&o) : tdm_ctl_usage(c->name, &err);
    }
    if (rc != TDM_EXIT_HELP) return rc;
    fprintf(stderr, "usage: tandemctl %s\n", c->help);
    if (c->uses) fprintf(stderr, "options:");
    for (uint32_t i = 0; i < TDM_CTL_OPTION_CNT; i++)
        if (c->uses >> i & 1u) fprintf(stderr, " %s", tdm_ctl_option_name((tdm_ctl_option_t)i));
    if (c->uses) fprintf(stderr, "\n");
    return TDM_EXIT_USAGE;
}

static void usage(FILE *f) {
    fprintf(f, "usage: tandemctl COMMAND [options]\n");
    for (size_t i = 0; i < TDM_COUNT_OF(command); i++) fprintf(f, "  %s\n", command[i].help);
    fprintf(f, "options:\n%s", tdm_ctl_options_help());
}

static int dispatch(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    int is_help = strcmp(name, "help") == 0 || strcmp(name, "-h") == 0;
    for (int i = 1; i < argc; i++) is_help |= strcmp(argv[i], "--help") == 0;
    if (is_help) {
        usage(stdout);
        return 0;
    }
    if (strcmp(name, "--version") == 0) name = "version";
    for (size_t i = 0; i < TDM_COUNT_OF(command); i++)
        if (strcmp(name, command[i].name) == 0) return run(&command[i], argc, argv);
    if (*name)
        fprintf(stderr, "tandemctl: no command \"%s\"; tandemctl help lists them\n", name);
    else
        usage(stderr);
    return TDM_EXIT_USAGE;
}

/* What was said and reached nobody was not done. */
int main(int argc, char **argv) {
    int rc = dispatch(argc, argv);
    if ((fflush(stdout) == 0 && !ferror(stdout)) || rc != 0) return rc;
    fprintf(stderr, "tandemctl: standard output: %s\n", strerror(errno));
    return TDM_EXIT_FAILED;
}
