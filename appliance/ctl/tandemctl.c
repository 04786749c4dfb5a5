/* SPDX-License-Identifier: Apache-2.0 */
/* tandemctl: the operator's hand.  Exit status: 0 ok, 1 failed, 2 usage,
   3 degraded (doctor, show health), 4 unreachable. */

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

#include <stdio.h>
#include <string.h>

/* with_options reads the words after the command and runs it. */
static int with_options(int argc, char **argv, int (*run)(const tdm_ctl_options_t *o)) {
    tdm_ctl_options_t o;
    tdm_error_t err = {0};
    tdm_status_t st = tdm_ctl_options_parse(argc, argv, 2, &o, &err);
    int is_shows_alone = o.form > TDM_FORM_JSON || o.since_s;
    if (st == TDM_OK && is_shows_alone && run != tdm_show)
        st = tdm_error_set(&err, TDM_ERR_INVAL, "-o yaml, -o prom and --since are for show");
    if (st == TDM_OK) return run(&o);
    fprintf(stderr, "tandemctl: %s\n", err.text);
    return TDM_EXIT_USAGE;
}

static int run_chat(const tdm_ctl_options_t *o) {
    return tdm_ask(TDM_ASK_CHAT, o);
}
static int run_generate(const tdm_ctl_options_t *o) {
    return tdm_ask(TDM_ASK_COMPLETION, o);
}
static int run_bundle(const tdm_ctl_options_t *o) {
    return tdm_ctl_support(o, TDM_VERSION);
}

static int chat(int argc, char **argv) {
    return with_options(argc, argv, run_chat);
}
static int generate(int argc, char **argv) {
    return with_options(argc, argv, run_generate);
}
static int show(int argc, char **argv) {
    return with_options(argc, argv, tdm_show);
}
static int top(int argc, char **argv) {
    return with_options(argc, argv, tdm_ctl_top);
}
static int wait_ready(int argc, char **argv) {
    return with_options(argc, argv, tdm_wait_ready);
}
static int config(int argc, char **argv) {
    return with_options(argc, argv, tdm_ctl_config);
}
static int reload(int argc, char **argv) {
    return with_options(argc, argv, tdm_ctl_reload);
}
static int drain(int argc, char **argv) {
    return with_options(argc, argv, tdm_ctl_drain);
}
static int undrain(int argc, char **argv) {
    return with_options(argc, argv, tdm_ctl_undrain);
}
static int support(int argc, char **argv) {
    return with_options(argc, argv, run_bundle);
}
static int doctor(int argc, char **argv) {
    return with_options(argc, argv, tdm_doctor);
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
static int completion(int argc, char **argv);

static int version(int argc, char **argv) {
    (void)argc;
    (void)argv;
    printf("tandemctl %s\n", TDM_VERSION);
    return 0;
}

static const tdm_ctl_command_t command[] = {
    {"chat", chat, "", "chat MESSAGE      ask over HTTP/3, print the answer as it streams"},
    {"generate", generate, "", "generate PROMPT   the same, raw completion"},
    {"show", show, "show",
     "show WHAT         status, health, slo, scheduler, attention, fallbacks, drops, rings,\n"
     "                    tiles, kv, requests, gpu, power, flight, journey, metrics, config,\n"
     "                    changes, audit, models or version"},
    {"top", top, "", "top               all of it on a whole terminal, live"},
    {"wait", wait_ready, "", "wait              until the appliance is ready"},
    {"config", config, "show diff apply confirm rollback",
     "config VERB       the live keys: show, diff CANDIDATE, apply CANDIDATE [--confirm T],\n"
     "                    confirm, rollback [REVISION]; a candidate is a file or\n"
     "                    section.key=value ..."},
    {"reload", reload, "", "reload            its configuration file read anew, without a restart"},
    {"drain", drain, "", "drain             take nothing new, finish what runs; --why TEXT"},
    {"undrain", undrain, "", "undrain           take requests again"},
    {"support", support, "bundle",
     "support bundle    what a helper needs to see, in one file without any prompt: --out FILE"},
    {"doctor", doctor, "", "doctor [NIC]      is this machine fit, and what to type if not"},
    {"appliance", tdm_ctl_appliance, "accept check help kernel render",
     "appliance VERB    appliance.json, what makes a machine an appliance: help, check FILE,\n"
     "                    kernel [FILE], accept FOLDER, render; --root DIR"},
    {"plan", tdm_ctl_plan, "",
     "plan              capacity: --profile FILE|example --trace FILE|NAME, with\n"
     "                    --requests --ttft-ms --ttft-share --gap-ms --epsilon --appliances\n"
     "                    --kv-pages --noise --seed N, --json, --html FILE, --rates R[@WARM],..\n"
     "                    --scale --cv --sequences --context --prefill-tokens --grid\n"
     "                    --floor --starve-ms --policies P,P.. --link-gbit X --kv-bytes N\n"
     "                    --link-us X --spread --window S --clock MHZ"},
    {"replay", tdm_ctl_replay, "",
     "replay            send a trace as it arrives: --trace FILE|NAME --door h3|http1\n"
     "                    --rate R | --load S --capacity C, --requests --duration --cv\n"
     "                    --scale --context --vocab --connections --open-max --ttft-ms\n"
     "                    --gap-ms --epsilon --records FILE --warm N --cut --text-seed N --spread\n"
     "                    --plain --quiet\n"
     "                    --json"},
    {"bench", tdm_ctl_bench, "serve merge",
     "bench serve       promises kept over load: --out BASE --rates R,R.. --cells PATH/POLICY,..\n"
     "                    --window S --planned FILE, and replay's own; goes on with BASE.json\n"
     "                    --only PATH/POLICY[@RATE],.. --seconds N --first S\n"
     "                    --note KEY=VALUE: said of each window\n"
     "  bench merge       several sittings in one: --out BASE --keep CELL,.. FILE.. --plan FILE"},
    {"profile", profile, "",
     "profile           time the backend: --out BASE, with --config FILE --set K=V\n"
     "                    --budget SECONDS --power-w N, --json"},
    {"explain", explain, "",
     "explain           why an iteration was as it was: --at T, --iteration N, --slowest\n"
     "                    or --fallback REASON; --flight FILE"},
    {"trace", trace, "",
     "trace             what the flight recorder holds, to stdout: --format chrome|otlp\n"
     "                    --seconds N --flight FILE"},
    {"completion", completion, "bash", "completion bash   a script for bash's completion"},
    {"version", version, "", "version           also as --version"},
};

static int completion(int argc, char **argv) {
    if (argc != 3 || strcmp(argv[2], "bash") != 0) {
        fprintf(stderr, "tandemctl: completion bash\n");
        return TDM_EXIT_USAGE;
    }
    tdm_ctl_complete(command, TDM_COUNT_OF(command), stdout);
    return 0;
}

static void usage(FILE *f) {
    fprintf(f, "usage: tandemctl COMMAND [options]\n");
    for (size_t i = 0; i < TDM_COUNT_OF(command); i++) fprintf(f, "  %s\n", command[i].help);
    fprintf(f, "options:\n%s", tdm_ctl_options_help());
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    int is_help = strcmp(name, "help") == 0 || strcmp(name, "-h") == 0;
    for (int i = 1; i < argc; i++) is_help |= strcmp(argv[i], "--help") == 0;
    if (is_help) {
        usage(stdout);
        return 0;
    }
    if (strcmp(name, "--version") == 0) return version(argc, argv);
    for (size_t i = 0; i < TDM_COUNT_OF(command); i++)
        if (strcmp(name, command[i].name) == 0) return command[i].run(argc, argv);
    if (*name)
        fprintf(stderr, "tandemctl: no command \"%s\"; tandemctl help lists them\n", name);
    else
        usage(stderr);
    return TDM_EXIT_USAGE;
}
