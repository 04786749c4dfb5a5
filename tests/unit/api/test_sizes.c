/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: depth, keys, ids, text, messages, stop strings, JSON memory and the
   body itself are refused at their bound and not before it. */
#include "tests/unit/api/rig.h"

#include <jansson.h>

#define OK        TDM_REASON_NONE
#define R(reason) TDM_REFUSE_##reason

static char *repeated(const char *head, const char *unit, uint32_t cnt, const char *tail) {
    size_t unit_sz = strlen(unit);
    char *text = malloc(strlen(head) + unit_sz * cnt + strlen(tail) + 1);
    assert_non_null(text);
    char *at = stpcpy(text, head);
    for (uint32_t i = 0; i < cnt; i++) at = stpcpy(at, unit);
    strcpy(at, tail);
    return text;
}

static void expect(rig_t *r, const char *path, char *body, tdm_reason_t reason, const char *param) {
    rig_exchange_t *e = rig_post(r, path, body);
    rig_settle(r);
    if (reason != OK) {
        rig_check_error(e, reason, param);
    } else {
        const tdm_request_t *q = rig_submit(r);
        assert_non_null(q);
        rig_serve(r, q, "x", TDM_FINISH_LENGTH);
        assert_int_equal(e->x.head.status, 200);
    }
    free(body);
}

static void sizes_are_refused_at_their_bound(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    /* depth 32 passes, 33 does not; brackets in strings are text */
    expect(&r, COMP, repeated("{\"prompt\":\"hi\",\"x\":", "[", 31, ""), R(bad_json), NULL);
    expect(&r, COMP, repeated("{\"prompt\":\"hi\",\"x\":", "[", 32, ""), R(json_depth), NULL);
    expect(&r, COMP, repeated("", "{\"a\":", 33, ""), R(json_depth), NULL);
    expect(&r, COMP, repeated("{\"prompt\":\"", "[{", 100, "\"}"), OK, NULL);
    expect(&r, COMP, repeated("{\"prompt\":\"\\\"", "[{", 100, "\"}"), OK, NULL);
    /* keys of one object */
    char *keys = malloc(4096);
    for (uint32_t cnt = 63; cnt <= 64; cnt++) {
        char *at = stpcpy(keys, "{\"prompt\":\"hi\"");
        for (uint32_t i = 0; i < cnt; i++) at += sprintf(at, ",\"k%u\":0", i);
        strcpy(at, "}");
        expect(&r, COMP, strdup(keys), cnt == 63 ? OK : R(bad_value), NULL);
    }
    free(keys);
    /* ids around the context */
    expect(&r, COMP, repeated("{\"prompt\":[1", ",1", 510, "]}"), OK, NULL);
    expect(&r, COMP, repeated("{\"prompt\":[1", ",1", 511, "]}"), R(context_too_long),
           "max_tokens");
    expect(&r, COMP, repeated("{\"prompt\":[1", ",1", 512, "]}"), R(context_too_long), "prompt");
    expect(&r, COMP, repeated("{\"prompt\":[1", ",1", 20000, "]}"), R(bad_value), NULL);
    /* text around the context: BOS and 510 bytes leave one token */
    expect(&r, COMP, repeated("{\"prompt\":\"", "a", 510, "\"}"), OK, NULL);
    expect(&r, COMP, repeated("{\"prompt\":\"", "a", 511, "\"}"), R(context_too_long),
           "max_tokens");
    expect(&r, COMP, repeated("{\"prompt\":\"", "a", 512, "\"}"), R(context_too_long), "prompt");
    expect(&r, COMP, repeated("{\"prompt\":\"", "a", 60000, "\"}"), R(context_too_long), "prompt");
    expect(&r, CHAT,
           repeated("{\"messages\":[{\"role\":\"user\",\"content\":\"", "a", 600, "\"}]}"),
           R(context_too_long), "messages");
    expect(&r, CHAT,
           repeated("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}",
                    ",{\"role\":\"user\",\"content\":\"a\"}", 1024, "]}"),
           R(bad_value), "messages");
    /* stop strings: one too long, and too long together */
    expect(&r, COMP, repeated("{\"prompt\":\"a\",\"stop\":\"", "b", 1025, "\"}"), R(bad_value),
           "stop");
    /* the body itself */
    expect(&r, COMP, repeated("{\"prompt\":\"", "a", 65536, "\"}"), R(body_too_large), NULL);
    rig_stop(&r);
}

/* A body whose tree outgrows jansson's region is too large, and the next
   one finds the region empty again. */
static void the_json_region_is_a_bound(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    r.config.context_max = 65536;
    r.config.id_slab_sz = 1 << 20;
    r.config.json_sz = 64 * 1024;
    rig_start(&r);
    expect(&r, COMP, repeated("{\"prompt\":[1", ",1", 20000, "]}"), R(body_too_large), NULL);
    expect(&r, COMP, repeated("{\"prompt\":[1", ",1", 200, "]}"), OK, NULL);
    assert_in_range(rig_count(&r, TDM_METRIC_api_json_bytes, 0), 200 * 2, 64 * 1024);
    rig_stop(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_refused_at_their_bound),
        cmocka_unit_test(the_json_region_is_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
