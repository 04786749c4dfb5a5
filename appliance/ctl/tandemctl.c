/* SPDX-License-Identifier: Apache-2.0 */
/* tandemctl: the operator's hand.  Exit status: 0 ok, 1 failed, 2 usage,
   3 degraded (doctor), 4 unreachable. */

#include "appliance/ctl/ask.h"
#include "appliance/ctl/doctor.h"
#include "appliance/ctl/flight.h"
#include "appliance/ctl/plan.h"
#include "appliance/ctl/profile.h"
#include "appliance/ctl/replay.h"
#include "appliance/ctl/show.h"

#include <stdio.h>
#include <string.h>

static void usage(FILE *f) {
    fprintf(
        f,
        "usage: tandemctl COMMAND [options]\n"
        "  chat MESSAGE      ask over HTTP/3, print the answer as it streams\n"
        "  generate PROMPT   the same, raw completion\n"
        "  show WHAT         status, health, slo, scheduler, attention, fallbacks, drops, rings,\n"
        "                    tiles, kv, requests, flight, journey, metrics, config, models or\n"
        "                    version\n"
        "  wait              until the appliance is ready\n"
        "  reload            the live keys of its configuration, without a restart\n"
        "  doctor [NIC]      is this machine fit, and what to type if not\n"
        "  plan              capacity: --profile FILE|example --trace FILE|NAME, with\n"
        "                    --requests --ttft-ms --gap-ms --epsilon --appliances\n"
        "                    --kv-pages --noise --seed N, --json, --html FILE, --rates R,R..\n"
        "                    --scale --cv --sequences --context --prefill-tokens --grid\n"
        "                    --floor --starve-ms\n"
        "  replay            send a trace as it arrives: --trace FILE|NAME --door h3|http1\n"
        "                    --rate R | --load S --capacity C, --requests --duration --cv\n"
        "                    --scale --context --vocab --connections --open-max --ttft-ms\n"
        "                    --gap-ms --epsilon --records FILE --plain --quiet --json\n"
        "  profile           time the backend: --out BASE, with --config FILE --set K=V\n"
        "                    --budget SECONDS --power-w N, --json\n"
        "  explain           why an iteration was as it was: --at T, --iteration N, --slowest\n"
        "                    or --fallback REASON; --flight FILE\n"
        "  trace             what the flight recorder holds, to stdout: --format chrome|otlp\n"
        "                    --seconds N --flight FILE\n"
        "  version\n"
        "options:\n%s",
        tdm_ctl_options_help());
}

int main(int argc, char **argv) {
    const char *command = argc > 1 ? argv[1] : "";
    if (strcmp(command, "version") == 0) {
        printf("tandemctl %s\n", TDM_VERSION);
        return 0;
    }
    if (strcmp(command, "help") == 0 || strcmp(command, "--help") == 0) {
        usage(stdout);
        return 0;
    }
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--help") != 0) continue;
        usage(stdout);
        return 0;
    }
    if (strcmp(command, "explain") == 0) return tdm_ctl_explain(argc, argv, TDM_VERSION);
    if (strcmp(command, "trace") == 0) return tdm_ctl_trace(argc, argv, TDM_VERSION);
    if (strcmp(command, "plan") == 0) return tdm_ctl_plan(argc, argv);
    if (strcmp(command, "replay") == 0) return tdm_ctl_replay(argc, argv);
    if (strcmp(command, "profile") == 0) return tdm_ctl_profile(argc, argv, TDM_VERSION);
    tdm_ctl_options_t o;
    tdm_error_t err = {0};
    if (tdm_ctl_options_parse(argc, argv, 2, &o, &err) != TDM_OK) {
        fprintf(stderr, "tandemctl: %s\n", err.text);
        return 2;
    }
    if (strcmp(command, "chat") == 0) return tdm_ask(TDM_ASK_CHAT, &o);
    if (strcmp(command, "generate") == 0) return tdm_ask(TDM_ASK_COMPLETION, &o);
    if (strcmp(command, "show") == 0) return tdm_show(&o);
    if (strcmp(command, "reload") == 0) return tdm_ctl_reload(&o);
    if (strcmp(command, "doctor") == 0) return tdm_doctor(&o);
    if (strcmp(command, "wait") == 0) return tdm_wait_ready(&o);
    usage(stderr);
    return 2;
}
