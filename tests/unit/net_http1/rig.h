/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TEST_HTTP1_RIG_H
#define TDM_TEST_HTTP1_RIG_H

/* The door under test with everything it needs: two api tiles played by
   one thread, the management thread that polls, and a raw client.

   The played api answers by path:
     /echo            the body back, content_sz known
     /info            what it saw of the exchange, one line per field
     /stream?N,US     N records "data: i\n\n" of one token, US microseconds
                      apart, then END
     /big?N           N bytes, content_sz known
     /never           nothing until the hang-up
     /limited         429 with retry_after_ms 1500
     /coded           415 with is_coded
     /allow           204 with allow = GET, POST, OPTIONS
     /abort           one record, then END with ABORT
     /headless        END with ABORT and no HEAD
   Every hang-up ends its call with END and ABORT. */

#include "net/http1/http1.h"
#include "telemetry/read/snapshot.h"

typedef struct rig rig_t;

/* rig_open starts the door with config (NULL: small defaults). */
rig_t *rig_open(const tdm_http1_config_t *config);
rig_t *rig_open_with_page(const tdm_http1_config_t *config, tdm_http1_page_fn *page);
void rig_close(rig_t *rig);

/* rig_turn does one turn of the library, the api tiles and the poller, for
   a config with is_driven: no thread runs then, /stream has no pauses, and
   no answer is longer than 100,000 records or bytes. */
void rig_turn(rig_t *rig);
tdm_http1_config_t rig_config(void);

tdm_http1_t *rig_door(rig_t *rig);

/* What the played api saw. */
uint64_t rig_arrivals(rig_t *rig);
uint64_t rig_hangups(rig_t *rig);
int64_t rig_hangup_ns(rig_t *rig); /* of the newest hang-up */
void rig_hold_hangups(rig_t *rig, int is_held);
int rig_push_word(rig_t *rig, tdm_egress_t word); /* from outside, while api is idle */

/* rig_wait_idle waits up to 2 s until no exchange slot is in use. */
int rig_wait_idle(rig_t *rig);

/* rig_counter is a counter or a histogram's count, over both blocks. */
uint64_t rig_counter(rig_t *rig, tdm_metric_t metric, uint32_t idx);
uint64_t rig_observations(rig_t *rig, tdm_metric_t metric);

/* --- client ----------------------------------------------------------- */

int client_connect(rig_t *rig);

/* client_connect_from does so from the loopback address 127.0.0.last. */
int client_connect_from(rig_t *rig, uint32_t last);
void client_send(int fd, const char *text);
void client_send_bytes(int fd, const void *bytes, size_t sz);

/* client_read reads until `mark` was seen (NULL: until the peer closed)
   or 5 s passed; the text stays valid until the next call. */
const char *client_read(int fd, const char *mark, size_t *sz);

/* client_ask sends one request and reads to the end of the connection. */
const char *client_ask(rig_t *rig, const char *request);

void sleep_us(int64_t us);

#endif /* TDM_TEST_HTTP1_RIG_H */
