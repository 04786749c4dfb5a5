/* SPDX-License-Identifier: Apache-2.0 */
/* ask HOST PORT PATH: GET over HTTP/3, the body to stdout.  Any certificate
   is taken: a demonstration.
   cc ask.c $(pkg-config --cflags --libs tandem) -o ask */
#include <net/client/client.h>

#include <stdio.h>
#include <stdlib.h>

static void body(void *ctx, int64_t id, const uint8_t *bytes, uint64_t sz) {
    (void)ctx;
    (void)id;
    (void)fwrite(bytes, 1, sz, stdout);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: ask HOST PORT PATH\n");
        return 2;
    }
    tdm_client_config_t config = {
        .host = argv[1], .port = (uint16_t)atoi(argv[2]), .verify = TDM_CLIENT_VERIFY_INSECURE};
    tdm_client_request_t request = {.method = "GET", .path = argv[3]};
    tdm_client_sink_t sink = {.body = body};
    tdm_client_t *client = NULL;
    tdm_error_t err = {0};
    int64_t id;
    tdm_status_t st = tdm_client_connect(&config, &client, &err);
    if (st == TDM_OK) st = tdm_client_request(client, &request, &sink, &id, &err);
    if (st == TDM_OK) st = tdm_client_wait(client, id, INT64_C(10000000000), &err);
    tdm_client_close(client);
    if (st != TDM_OK) fprintf(stderr, "ask: %s\n", err.text);
    return st != TDM_OK;
}
