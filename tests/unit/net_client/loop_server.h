/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TEST_LOOP_SERVER_H
#define TDM_TEST_LOOP_SERVER_H

/* The server of net/quic and net/h3 on a kernel UDP socket of the loopback
   interface, in a thread of its own.  It answers
     GET /health            {"status":"ok"}
     GET /stream?N          N server-sent events and "data: [DONE]"
     POST anything          {"body":<bytes>,"hash":"<FNV-1a>"} */

#include "appliance/base/attr.h"

typedef struct loop_server loop_server_t;

/* loop_server_start binds 127.0.0.1 (port 0: any free one). */
loop_server_t *loop_server_start(uint16_t port, const char *cert_file, const char *key_file);
uint16_t loop_server_port(const loop_server_t *s);
/* loop_server_stop joins the thread; it returns how many requests were
   answered. */
uint64_t loop_server_stop(loop_server_t *s);

#endif /* TDM_TEST_LOOP_SERVER_H */
