/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/top.h"

#include "appliance/base/clock.h"
#include "appliance/ctl/operate.h"
#include "appliance/ctl/page.h"
#include "appliance/ctl/top_view.h"

#include <curses.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_MS    200
#define PATIENCE_S 2u /* with one answer: keys, and the word that none comes, wait for it */

/* fetch gives the JSON of a path, NULL where nobody answers with any. */
static json_t *fetch(const tdm_ctl_options_t *o, const char *path) {
    tdm_page_t page;
    tdm_error_t err = {0};
    tdm_ctl_options_t brief = *o;
    brief.seconds = TDM_MIN(o->seconds, PATIENCE_S);
    if (tdm_page_get(&brief, path, &page, &err) != TDM_OK) return NULL;
    json_t *root = page.status == 200 && page.text ? json_loads(page.text, 0, NULL) : NULL;
    free(page.text);
    return root;
}

static void renew(json_t **at, json_t *value) {
    if (!value) return;
    json_decref(*at);
    *at = value;
}

static void ask_lane(const tdm_ctl_options_t *o, tdm_top_view_t *v) {
    char path[64];
    (void)snprintf(path, sizeof path, "/api/v1/iterations?from=%llu",
                   (unsigned long long)v->lane_next);
    json_t *page = fetch(o, path);
    if (page) tdm_top_take_iterations(v, page);
    json_decref(page);
}

static void ask_all(const tdm_ctl_options_t *o, tdm_top_view_t *v) {
    static int64_t heard_ns;
    int64_t now_ns = tdm_clock_now_ns();
    json_t *status = fetch(o, "/api/v1/status");
    v->is_gone = status == NULL;
    v->silent_s = (double)(tdm_clock_now_ns() - heard_ns) / 1e9;
    if (!status) return;
    heard_ns = now_ns;
    tdm_top_take_status(v, status);
    renew(&v->changes, fetch(o, "/api/v1/changes"));
    renew(&v->audit, fetch(o, "/api/v1/audit"));
    if (v->page == TDM_TOP_REQUESTS) renew(&v->requests, fetch(o, "/api/v1/requests?slowest=50"));
}

/* --- the terminal ---------------------------------------------------------------- */

static attr_t attr[TDM_STYLE_CNT];

/* styles: bold, dim and reverse everywhere, colours where there are some
   and NO_COLOR does not forbid them. */
static void styles(void) {
    attr[TDM_STYLE_BOLD] = attr[TDM_STYLE_BAD] = attr[TDM_STYLE_WARN] = A_BOLD;
    attr[TDM_STYLE_DIM] = A_DIM;
    if (!has_colors() || getenv("NO_COLOR")) return;
    static const struct {
        tdm_style_t style;
        short colour;
    } row[] = {{TDM_STYLE_GOOD, COLOR_GREEN},  {TDM_STYLE_WARN, COLOR_YELLOW},
               {TDM_STYLE_BAD, COLOR_RED},     {TDM_STYLE_FUSED, COLOR_GREEN},
               {TDM_STYLE_UNFUSED, COLOR_RED}, {TDM_STYLE_PREFILL, COLOR_BLUE},
               {TDM_STYLE_DECODE, COLOR_CYAN}};
    (void)start_color();
    (void)use_default_colors();
    for (short i = 0; i < (short)TDM_COUNT_OF(row); i++) {
        (void)init_pair((short)(i + 1), row[i].colour, -1);
        attr[row[i].style] |= COLOR_PAIR(i + 1);
    }
}

static void show(const tdm_top_view_t *v) {
    static tdm_grid_t g;
    getmaxyx(stdscr, g.rows, g.cols);
    tdm_top_draw(v, &g);
    (void)erase();
    for (int r = 0; r < g.rows; r++)
        for (int c = 0; c < g.cols; c++)
            if (g.ch[r][c] != ' ' || g.style[r][c])
                (void)mvaddch(r, c, (chtype)(unsigned char)g.ch[r][c] | attr[g.style[r][c]]);
    (void)refresh();
}

/* drain asks for a yes and does it; what it prints stays off the screen. */
static void drain(const tdm_ctl_options_t *o, tdm_top_view_t *v) {
    int is_drained = json_is_object(json_object_get(v->changes, "drained"));
    double running =
        json_number_value(json_object_get(json_object_get(v->status, "requests"), "running"));
    (void)snprintf(v->question, sizeof v->question,
                   is_drained ? "take requests again? y/n"
                              : "drain: refuse what is new; %.0f running requests end? y/n",
                   running);
    show(v);
    timeout(-1);
    int key = getch();
    timeout(TICK_MS);
    v->question[0] = '\0';
    if (key != 'y') return;
    tdm_ctl_options_t quiet = *o;
    if (!quiet.why[0]) quiet.why = "tandemctl top";
    tdm_page_t page;
    tdm_error_t err = {0};
    char body[256];
    json_t *root = json_object();
    (void)json_object_set_new(root, "why", json_string(quiet.why));
    size_t n = json_dumpb(root, body, sizeof body - 1, JSON_COMPACT);
    json_decref(root);
    if (n >= sizeof body) return;
    body[n] = '\0';
    tdm_status_t st =
        tdm_page_post(o, is_drained ? "/api/v1/undrain" : "/api/v1/drain", body, &page, &err);
    int is_ok = st == TDM_OK && page.status == 202;
    (void)snprintf(v->said, sizeof v->said, "%s", is_ok ? "" : "not allowed, or no answer");
    if (st == TDM_OK) free(page.text);
}

/* press handles a key; 0: the end. */
static int press(const tdm_ctl_options_t *o, tdm_top_view_t *v, int key) {
    if (key == 'q' || key == 27) return 0;
    if (key >= '1' && key <= '6') v->page = (tdm_top_page_t)(key - '0');
    if (key == '?' || key == 'h') v->page = v->page == TDM_TOP_HELP ? TDM_TOP_ALL : TDM_TOP_HELP;
    if (key == 'p') v->is_paused = !v->is_paused;
    if (key == 'd' && !v->is_gone) drain(o, v);
    return 1;
}

int tdm_ctl_top(const tdm_ctl_options_t *o) {
    static tdm_top_view_t v;
    if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
        fprintf(stderr, "tandemctl: top needs a terminal; show status --watch 1 does not\n");
        return TDM_EXIT_FAILED;
    }
    v.page = TDM_TOP_ALL;
    ask_all(o, &v);
    if (v.is_gone) {
        fprintf(stderr, "tandemctl: the appliance does not answer\n");
        return TDM_EXIT_UNREACHABLE;
    }
    (void)setlocale(LC_CTYPE, "");
    if (!initscr()) return TDM_EXIT_FAILED;
    (void)cbreak();
    (void)noecho();
    (void)keypad(stdscr, TRUE);
    (void)curs_set(0);
    set_escdelay(25);
    timeout(TICK_MS);
    styles();
    int64_t period_ns = (o->watch_s ? o->watch_s : 1) * TDM_NS_PER_S, due_ns = 0;
    for (;;) {
        int64_t now_ns = tdm_clock_now_ns();
        if (!v.is_paused && !v.is_gone) ask_lane(o, &v);
        if (now_ns >= due_ns && !v.is_paused) {
            ask_all(o, &v);
            due_ns = now_ns + period_ns;
        }
        show(&v);
        int key = getch(); /* KEY_RESIZE: drawn anew at once */
        if (key != ERR && !press(o, &v, key)) break;
        if (key >= '1' && key <= '6') due_ns = 0;
    }
    (void)endwin();
    tdm_top_forget(&v);
    return 0;
}
