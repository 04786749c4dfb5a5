/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BOOT_HOUSE_H
#define TDM_BOOT_HOUSE_H

/* tdm_house is the appliance, put together in floor order and taken apart
   in reverse:

     model's shape and tokenizer, keys, certificate
     channel to the executor, wires, vitals
     port -> net tile      api tiles      scheduler tile      HTTP/1.1 door
     supervisor -> executor

   tdm_house_open leaves everything running and the executor loading; the
   caller's thread then is the management thread (tdm_house_run). */

#include "appliance/api/api_tile.h"
#include "appliance/api/auth.h"
#include "appliance/boot/live.h"
#include "appliance/boot/mgmt.h"
#include "appliance/boot/notify.h"
#include "appliance/boot/pages.h"
#include "appliance/boot/tile.h"
#include "appliance/boot/wires.h"
#include "appliance/config/config.h"
#include "appliance/control/console.h"
#include "appliance/exec/supervisor.h"
#include "appliance/model/model.h"
#include "appliance/sizing/sizing.h"
#include "appliance/tokenizer/tokenizer.h"
#include "net/port/port.h"
#include "net/tile/tile.h"
#include "scheduler/tile/sched_tile.h"
#include "telemetry/flight/file.h"

typedef struct tdm_house {
    const tdm_config_t *config;
    tdm_machine_t machine;
    tdm_sizing_t sizing;
    const char *version;
    int64_t start_ns;
    int64_t loaded_s; /* civil time that the model was read */

    tdm_model_t *model; /* shape and tokenizer only */
    tdm_tokenizer_t *tokenizer;
    tdm_encode_scratch_t *scratch[TDM_API_TILE_MAX];
    tdm_auth_t auth;
    char model_name[96];
    char build[24]; /* sum of the programs that serve */
    char cert_file[512];
    char key_file[512];

    tdm_channel_t channel;
    tdm_life_t life;
    tdm_supervisor_t supervisor;
    char exec_program[512];

    tdm_wires_t wires;
    tdm_flight_file_t flight; /* mem NULL: none */
    tdm_flight_ring_t flight_ring[TDM_FLIGHT_RING_MAX];
    tdm_vitals_t vitals;
    tdm_arena_t tables;           /* memory of the tiles */
    tdm_profile_table_t *profile; /* measured, NULL: guessed; free() */
    tdm_port_t *port;
    tdm_port_t *exception; /* the kernel's TAP; NULL: none */
    uint32_t has_env;
    tdm_net_tile_t *net;
    tdm_api_tile_t *api[TDM_API_TILE_MAX];
    tdm_sched_tile_t *sched;
    tdm_http1_t *http1;
    tdm_pages_t pages;
    tdm_mgmt_t mgmt;
    tdm_notify_t notify;
    tdm_console_t console;
    tdm_api_promises_t promises;
    tdm_sched_live_t live; /* in force, or handed over and about to be */

    tdm_tile_t net_thread;
    tdm_tile_t api_thread[TDM_API_TILE_MAX];
    tdm_tile_t sched_thread;
    tdm_tile_t mgmt_loop; /* runs on the caller's thread */
    uint32_t stop;        /* atomic: 1 drain, 2 at once */
} tdm_house_t;

/* tdm_house_open builds and starts everything from a checked config, which
   must outlive the house; read and read_ctx read it anew when a reload is
   asked for, NULL: none is possible.  On an error everything is taken
   apart again. */
TDM_MUST_USE tdm_status_t tdm_house_open(tdm_house_t *h, const tdm_config_t *config,
                                         tdm_change_read_fn *read, void *read_ctx,
                                         const char *version, tdm_error_t *err);

/* tdm_house_reload asks for the live keys to be read anew
   (appliance/control/change.h).
   Safe in a signal handler. */
void tdm_house_reload(tdm_house_t *h);

/* tdm_house_run is the management loop: until tdm_house_stop, then drains
   for at most sched.drain_ms.  CLOSED where the executor is gone for
   good, INVAL where it never came to serve. */
TDM_MUST_USE tdm_status_t tdm_house_run(tdm_house_t *h, tdm_error_t *err);

/* tdm_house_stop asks run to drain and return; asked twice, at once.  Safe
   in a signal handler. */
void tdm_house_stop(tdm_house_t *h);

/* tdm_house_close stops tiles and executor and gives everything back. */
void tdm_house_close(tdm_house_t *h);

#endif /* TDM_BOOT_HOUSE_H */
