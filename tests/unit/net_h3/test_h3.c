/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/3 from client to tile and back, in memory: what a request becomes,
   what a reply becomes, and how every kind of early end is noticed. */
#include "tests/unit/net_h3/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void get_is_answered(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
    rig_send(&r, 0, "GET", "/v1/models?limit=3", NULL, 0, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 100));
    assert_int_equal(reply.outcome, TDM_CLIENT_DONE);
    assert_int_equal(reply.status, 200);
    assert_string_equal(reply.body, "{\"path\":\"/v1/models\",\"body\":0}");
    assert_string_equal(r.last.path, "/v1/models");
    assert_string_equal(r.last.query, "limit=3");
    assert_string_equal(r.last.authorization, "Bearer secret");
    assert_string_equal(r.last.content_type, "application/json");
    assert_string_equal(r.last.request_id, "rig-1");
    assert_int_equal(r.last.method, TDM_METHOD_GET);
    assert_non_null(strstr(reply.head, "content-type: application/json\n"));
    assert_non_null(strstr(reply.head, "content-length: 30\n"));
    assert_non_null(strstr(reply.head, "server: tandem/test\n"));
    assert_non_null(strstr(reply.head, "x-request-id: rig-1\n"));
    assert_non_null(strstr(reply.head, "access-control-allow-origin: *\n"));
    rig_close(&r);
}

static void post_body_arrives_whole(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    const uint64_t sz = 200u << 10;
    uint8_t *body = malloc(sz);
    assert_non_null(body);
    rig_open(&r, &cfg);
    for (uint64_t i = 0; i < sz; i++) body[i] = (uint8_t)tdm_rng_next(&r.rng);
    rig_dial_ready(&r, 0);
    rig_send(&r, 0, "POST", "/v1/completions", body, sz, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 2000));
    assert_int_equal(reply.status, 200);
    assert_int_equal(r.last.body_sz, sz);
    assert_true(r.last_body_hash == rig_hash(0, body, sz));
    free(body);
    rig_close(&r);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(get_is_answered),
    cmocka_unit_test(post_body_arrives_whole),
};

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
