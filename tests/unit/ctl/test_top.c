/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the full-screen console shows what was said, says by a letter or a
   word what it colours, keeps inside every size, and prints nothing that
   a terminal would obey.
   Method: hand-made answers, every cell looked at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "appliance/ctl/top_view.h"

#include <stdio.h>
#include <string.h>

static tdm_top_view_t view;
static tdm_grid_t grid;
static char screen[TDM_TOP_ROW_MAX * (TDM_TOP_COL_MAX + 1) + 1];

static const char status_text[] =
    "{\"tandem\":{\"version\":\"0.1.0\",\"model\":\"a\\u001b[2Jmodel\\u0007\",\"backend\":\"cpu\"},"
    "\"state\":\"ready\",\"uptime_s\":3725.5,\"revision\":4,"
    "\"findings\":[{\"gravity\":\"warning\",\"cause\":\"ring\",\"text\":\"ring request was full\"},"
    "{\"gravity\":\"notice\",\"cause\":\"config\",\"text\":\"other\"}],"
    "\"requests\":{\"waiting\":5,\"running\":7},\"tokens\":{\"output\":1000},"
    "\"slo\":[{\"class\":\"interactive\",\"objective\":\"ttft\",\"promise_ms\":500,\"met\":99,"
    "\"missed\":1},{\"class\":\"interactive\",\"objective\":\"tpot\",\"promise_ms\":50,\"met\":50,"
    "\"missed\":50},{\"class\":\"interactive\",\"objective\":\"all\",\"met\":1,\"missed\":1},"
    "{\"class\":\"batch\",\"objective\":\"ttft\",\"promise_ms\":5000,\"met\":0,\"missed\":0},"
    "{\"class\":\"batch\",\"objective\":\"tpot\",\"promise_ms\":900,\"met\":0,\"missed\":0},"
    "{\"class\":\"batch\",\"objective\":\"all\",\"met\":0,\"missed\":0}],"
    "\"latency\":{\"ttft_ms\":{\"p50\":12.5,\"p99\":99},\"itl_ms\":{\"p50\":4,\"p99\":40}},"
    "\"vcta\":{\"executed\":{\"prefill\":300,\"decode\":100}},"
    "\"cta_tiles\":{\"64x64\":{\"whole\":6,\"split\":3},\"128x64\":{\"whole\":3,\"split\":0}},"
    "\"hybrid\":{\"fused\":3,\"fallback\":1},\"fallbacks\":{\"operator\":1},"
    "\"chunk_limited\":{\"no_work\":9,\"time_limit\":12},"
    "\"rings\":[{\"ring\":\"request\",\"entries\":1,\"capacity\":16,\"high_watermark\":16,"
    "\"full\":4}],\"tiles\":[{\"tile\":\"api\",\"busy_s\":9.5,\"idle_s\":0.5,"
    "\"longest_turn_ms\":120}],\"net\":{\"packets\":{\"rx\":1,\"tx\":2},\"drops\":{\"ip_ttl\":5}},"
    "\"kv\":{\"total\":100,\"used\":50},\"gpu\":{\"sms\":132,\"life\":2},"
    "\"power\":{\"sm_clock_mhz\":1200,\"sm_clock_max_mhz\":1980}}";

static int setup(void **state) {
    (void)state;
    memset(&view, 0, sizeof view);
    view.page = TDM_TOP_ALL;
    tdm_top_take_status(&view, json_loads(status_text, 0, NULL));
    json_t *page =
        json_loads("{\"next\": 5, \"iterations\": ["
                   "{\"path\":\"fused\",\"ms\":10,\"limit_ms\":12,\"late\":0,\"lost\":0},"
                   "{\"path\":\"serial\",\"ms\":20,\"limit_ms\":12,\"late\":1,\"lost\":0},"
                   "{\"path\":\"decode_only\",\"ms\":1,\"limit_ms\":12,\"late\":0,\"lost\":0},"
                   "{\"path\":\"?\",\"ms\":1,\"limit_ms\":12,\"late\":0,\"lost\":0},"
                   "{\"path\":\"fused\",\"ms\":0,\"limit_ms\":12,\"late\":0,\"lost\":1}]}",
                   0, NULL);
    assert_non_null(page);
    assert_non_null(view.status);
    tdm_top_take_iterations(&view, page);
    json_decref(page);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    tdm_top_forget(&view);
    return 0;
}

static void draw(int cols, int rows) {
    grid.cols = cols;
    grid.rows = rows;
    tdm_top_draw(&view, &grid);
    size_t n = 0;
    for (int r = 0; r < grid.rows; r++) {
        for (int c = 0; c < grid.cols; c++) {
            assert_in_range(grid.ch[r][c], ' ', '~');
            assert_in_range(grid.style[r][c], 0, TDM_STYLE_CNT - 1);
            screen[n++] = grid.ch[r][c];
        }
        screen[n++] = '\n';
    }
    screen[n] = '\0';
}

static void says(const char *word) {
    if (!strstr(screen, word)) fail_msg("not said: %s\n%s", word, screen);
}

static void everything_has_its_place_at_80x24(void **state) {
    (void)state;
    draw(80, 24);
    says("tandem 0.1.0");
    says("ready up 1:02:05 rev 4 run 7 wait 5 0 tok/s");
    says("warning: ring request was full (+1)");
    says("first<500ms [########]  99.00%");
    says("gap<50ms [####....]  50.00%");
    says("since start: first token p50 12.5 p99 99.0 ms, gap p50 4.0 p99 40.0 ms");
    says("F fused  S serial");
    says("decode  300 : 100");
    says("prefill tiles 64x64 [#####.] 75% 128x64 [##....] 25%  split in 25%");
    says("75.0%  fallback operator 1  prefill ended: time_limit");
    says("api 95% (120ms)");
    says("rings at most request 16/16 FULL");
    says("most dropped: ip_ttl 5");
    says("power the device does not tell");
    says("kv [#####.....]  50% SM clock 1200 of 1980 MHz");
    says("no event yet");
    says("p pause d drain ? help q end");
}

/* The name of a model has what room the words beside it leave: a pause and
   the rate are seen at 80 columns. */
static void a_long_name_hides_nothing(void **state) {
    (void)state;
    json_t *facts = json_object_get(view.status, "tandem");
    (void)json_object_set_new(facts, "model",
                              json_string("a-model-with-a-name-of-40-characters-1b"));
    (void)json_object_set_new(view.status, "state", json_string("draining"));
    (void)json_object_set_new(view.status, "uptime_s", json_real(3600.0 * 2000));
    view.is_paused = 1;
    draw(80, 24);
    says("a-model-");
    says("draining PAUSED up 2000:00:00 rev 4 run 7 wait 5 0 tok/s");
}

/* What an appliance said before it fell silent is no news: it says so, and
   nothing is coloured as if it were. */
static void what_is_stale_says_so(void **state) {
    (void)state;
    view.is_gone = 1;
    view.silent_s = 75;
    for (int page = TDM_TOP_ALL; page <= TDM_TOP_HELP; page++) {
        view.page = (tdm_top_page_t)page;
        draw(80, 24);
        says("no answer");
        says("no answer for 75 s: what stands below is what it said last");
        assert_null(strstr(screen, "tok/s")); /* a rate is of now */
        assert_null(strstr(screen, "run 7"));
        assert_null(strstr(screen, "nothing is wrong"));
        for (int r = 2; r < 23; r++)
            for (int c = 0; c < 80; c++)
                if (grid.ch[r][c] != ' ') assert_int_equal(grid.style[r][c], TDM_STYLE_DIM);
    }
    view.page = TDM_TOP_ALL;
    view.is_gone = 0;
    draw(80, 24);
    assert_null(strstr(screen, "no answer"));
}

/* A life counts from 0: iterations and rates of the one before are no part
   of its picture. */
static void another_life_begins_anew(void **state) {
    (void)state;
    tdm_top_take_status(&view,
                        json_loads("{\"uptime_s\":3726.5,\"tokens\":{\"output\":1500}}", 0, NULL));
    draw(80, 24);
    says(" 500 tok/s");
    says("FSd?X");
    assert_int_equal(view.lane_next, 5);
    tdm_top_take_status(&view, json_loads("{\"uptime_s\":2,\"tokens\":{\"output\":8}}", 0, NULL));
    draw(80, 24);
    says(" 0 tok/s");
    assert_null(strstr(screen, "FSd?X"));
    assert_int_equal(view.lane_next, 0);
    tdm_top_take_status(&view, json_loads("{\"uptime_s\":4,\"tokens\":{\"output\":28}}", 0, NULL));
    draw(80, 24);
    says(" 10 tok/s");
}

/* Promises follow what is found, however much room there is. */
static void no_page_has_a_hole(void **state) {
    (void)state;
    view.page = TDM_TOP_PROMISES;
    draw(120, 40);
    says("warning: ring request was full");
    says("notice: other");
    assert_memory_equal(grid.ch[3], "interactive", 11);
    assert_memory_equal(grid.ch[4], "batch", 5);
    view.page =
        TDM_TOP_ALL; /* where there is room, more of what is found is told, and more events */
    draw(120, 40);
    says("notice: other");
    draw(80, 24);
    assert_null(strstr(screen, "notice: other"));
}

/* Every line of help is whole at 80 columns. */
static void help_fits(void **state) {
    (void)state;
    view.page = TDM_TOP_HELP;
    draw(400, 40);
    for (int r = 3; r < 39; r++)
        for (int c = 80; c < 400; c++) assert_int_equal(grid.ch[r][c], ' ');
}

/* With too little room for all rings the ones that were full stand. */
static void a_full_ring_is_not_cut(void **state) {
    (void)state;
    json_t *list = json_array();
    for (int i = 0; i < 9; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "ring%d", i);
        (void)json_array_append_new(list,
                                    json_pack("{s:s, s:i, s:i, s:i}", "ring", name, "capacity", 512,
                                              "high_watermark", i == 8 ? 512 : 3, "full", i == 8));
    }
    (void)json_object_set_new(view.status, "rings", list);
    draw(80, 24);
    says("ring8 512/512 FULL");
    says("ring0 3/512");
}

/* What a board tells is drawn as power, load and what holds it back; what it
   does not tell is no number. */
static void a_board_is_told_or_said_to_be_silent(void **state) {
    (void)state;
    static const char *const at[] = {
        "{\"uptime_s\":10,\"tokens\":{\"output\":1000},\"power\":{\"average_w\":610.4,"
        "\"instant_max_w\":688,\"limit_w\":700,\"energy_j\":5000,\"held_by_power_s\":1,"
        "\"held_by_heat_s\":0,\"held_by_hardware_s\":0},\"board\":{\"sm_active\":0.875,"
        "\"occupancy\":0.42,\"tensor\":null,\"dram\":0.71,\"temperature_c\":41}}",
        "{\"uptime_s\":12,\"tokens\":{\"output\":3000},\"power\":{\"average_w\":610.4,"
        "\"instant_max_w\":688,\"limit_w\":700,\"energy_j\":6200,\"held_by_power_s\":1.5,"
        "\"held_by_heat_s\":0,\"held_by_hardware_s\":0},\"board\":{\"sm_active\":0.875,"
        "\"occupancy\":0.42,\"tensor\":null,\"dram\":0.71,\"temperature_c\":41}}"};
    draw(80, 24);
    says("power the device does not tell");
    says("SM - occupancy - tensor - DRAM -");
    tdm_top_take_status(&view, json_loads(at[0], 0, NULL));
    tdm_top_take_status(&view, json_loads(at[1], 0, NULL));
    draw(80, 24);
    says("power [#########.] 610 of 700 W, peak 688, 41 C, 0.60 J/token, held back 25%");
    says("load  SM [#####.]88% occupancy [###...]42% tensor - DRAM [####..]71%");
}

/* The bottom row of the lane: one letter a column, the newest right. */
static void the_lane_is_in_letters(void **state) {
    (void)state;
    draw(80, 24);
    int bottom = 0;
    for (int r = 0; r < 24; r++)
        if (memcmp(grid.ch[r], "  0 ms", 6) == 0) bottom = r;
    assert_true(bottom > 0);
    assert_memory_equal(&grid.ch[bottom][75], "FSd?X", 5);
    assert_int_equal(grid.style[bottom][75], TDM_STYLE_FUSED);
    assert_int_equal(grid.style[bottom][76], TDM_STYLE_UNFUSED);
    int top = bottom;
    while (grid.ch[top - 1][76] == 'S' || grid.ch[top - 1][76] == '!') top--;
    int fused = bottom;
    while (grid.ch[fused - 1][75] == 'F') fused--;
    assert_true(top < fused);                      /* twice the time */
    assert_int_equal(grid.ch[top][76], '!');       /* a token came late */
    assert_int_equal(grid.ch[fused - 1][75], '='); /* the limit above it */
}

static void every_page_keeps_inside_every_size(void **state) {
    (void)state;
    view.requests = json_loads("{\"requests\":[{\"id\":\"0.1.2\",\"class\":\"batch\",\"ending\":"
                               "\"length\",\"total_ms\":12,\"phases\":{\"decode\":3}}]}",
                               0, NULL);
    view.audit = json_loads("{\"entries\":[{\"at\":\"2026-09-21T14:13:20Z\",\"who\":\"uid 0\","
                            "\"what\":\"drain\",\"why\":\"\\u001b]0;x\\u0007\",\"result\":\"ok\","
                            "\"detail\":\"revision 1\"}]}",
                            0, NULL);
    view.changes =
        json_loads("{\"pending\":{\"revision\":3,\"left_s\":9},\"drained\":{\"by\":\"u\","
                   "\"why\":\"w\"}}",
                   0, NULL);
    for (int page = TDM_TOP_ALL; page <= TDM_TOP_HELP; page++) {
        view.page = (tdm_top_page_t)page;
        for (int cols = 1; cols <= 200; cols += 7)
            for (int rows = 1; rows <= 60; rows += 3) draw(cols, rows);
        draw(10000, 10000);
        assert_int_equal(grid.cols, TDM_TOP_COL_MAX);
    }
    view.page = TDM_TOP_EVENTS;
    draw(80, 24);
    says("revision 3 awaits its confirmation, back in 9 s");
    says("drained by u: w");
    says("2026-09-21T14:13:20 drain ok by uid 0 revision 1 ?]0;x?");
    view.page = TDM_TOP_REQUESTS;
    draw(80, 24);
    says("0.1.2");
}

static void nothing_said_yet_is_drawn_too(void **state) {
    (void)state;
    tdm_top_forget(&view);
    memset(&view, 0, sizeof view);
    view.is_gone = 1;
    for (int page = 0; page <= TDM_TOP_HELP; page++) {
        view.page = (tdm_top_page_t)page;
        draw(80, 24);
        says("no answer");
    }
    (void)snprintf(view.question, sizeof view.question, "drain? y/n");
    draw(80, 24);
    says("drain? y/n");
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(everything_has_its_place_at_80x24),
        T(a_long_name_hides_nothing),
        T(what_is_stale_says_so),
        T(another_life_begins_anew),
        T(no_page_has_a_hole),
        T(help_fits),
        T(a_full_ring_is_not_cut),
        T(a_board_is_told_or_said_to_be_silent),
        T(the_lane_is_in_letters),
        T(every_page_keeps_inside_every_size),
        T(nothing_said_yet_is_drawn_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
