/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/tokenizer/chat.h"

#include "appliance/tokenizer/utf8_private.h"

#include <string.h>

static const char *const kind_name[TDM_CHAT_KIND_CNT] = {
    [TDM_CHAT_NONE] = "none",     [TDM_CHAT_CHATML] = "chatml", [TDM_CHAT_SMOLLM2] = "smollm2",
    [TDM_CHAT_LLAMA2] = "llama2", [TDM_CHAT_LLAMA3] = "llama3", [TDM_CHAT_LLAMA31] = "llama3.1",
};
static const char *const role_name[] = {"system", "user", "assistant"};

#define SMOLLM2_SYSTEM "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
#define LLAMA31_DATES  "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"

const char *tdm_chat_kind_name(tdm_chat_kind_t kind) {
    return (unsigned)kind < TDM_CHAT_KIND_CNT ? kind_name[kind] : "unknown";
}

int tdm_chat_kind_from_name(const char *name) {
    for (int k = 0; k < TDM_CHAT_KIND_CNT; k++)
        if (strcmp(kind_name[k], name) == 0) return k;
    return -1;
}

int tdm_chat_role_from_name(const char *name, uint64_t sz) {
    for (int r = TDM_CHAT_SYSTEM; r <= TDM_CHAT_ASSISTANT; r++)
        if (strlen(role_name[r]) == sz && memcmp(role_name[r], name, sz) == 0) return r;
    return sz == 9 && memcmp(name, "developer", 9) == 0 ? TDM_CHAT_SYSTEM : -1;
}

tdm_chat_kind_t tdm_chat_detect(const char *source, uint64_t sz) {
    static const struct {
        const char *mark;
        tdm_chat_kind_t kind;
    } row[] = {
        {"named SmolLM, trained by Hugging Face", TDM_CHAT_SMOLLM2},
        {"<|im_start|>", TDM_CHAT_CHATML},
        {"Cutting Knowledge Date", TDM_CHAT_LLAMA31},
        {"<|start_header_id|>", TDM_CHAT_LLAMA3},
        {"<<SYS>>", TDM_CHAT_LLAMA2},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++)
        if (memmem(source, sz, row[i].mark, strlen(row[i].mark))) return row[i].kind;
    return sz > 0 ? TDM_CHAT_UNKNOWN : TDM_CHAT_NONE;
}

/* put appends bytes, trusted or not; is_full once they do not fit. */
typedef struct writer {
    tdm_chat_text_t *out;
    int is_full;
} writer_t;

static void put(writer_t *w, const char *bytes, uint64_t sz, int is_trusted) {
    tdm_chat_text_t *o = w->out;
    if (sz == 0) return;
    if (w->is_full || sz > o->text_max - o->sz || o->sz + sz > UINT32_MAX) {
        w->is_full = 1;
        return;
    }
    uint32_t start = (uint32_t)o->sz;
    memcpy(o->text + start, bytes, sz);
    o->sz += sz;
    if (!is_trusted) return;
    if (o->span_cnt > 0 && o->span[o->span_cnt - 1].end == start) {
        o->span[o->span_cnt - 1].end = (uint32_t)o->sz;
        return;
    }
    if (o->span_cnt == TDM_CHAT_SPAN_MAX) {
        w->is_full = 1;
        return;
    }
    o->span[o->span_cnt++] = (tdm_span_t){start, (uint32_t)o->sz};
}

/* own writes template text, said writes what a client sent. */
static void own(writer_t *w, const char *text) {
    put(w, text, strlen(text), 1);
}

static void said(writer_t *w, const char *content, uint64_t sz) {
    put(w, content, sz, 0);
}

/* is_strip_space: the characters that Python's str.strip removes, which is
   what the trim of these templates comes to. */
static int is_strip_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

/* strip drops white space at both ends; bytes that are no UTF-8 stay. */
static void strip(const char **content, uint64_t *sz) {
    const uint8_t *p = (const uint8_t *)*content;
    uint64_t from = 0, to = *sz;
    uint32_t len;
    while (from < to && tdm_utf8_scan(p + from, to - from) > 0 &&
           is_strip_space(tdm_utf8_decode(p + from, &len)))
        from += len;
    while (to > from) {
        uint64_t at = to - 1;
        while (at > from && (p[at] & 0xc0) == 0x80) at--;
        if (tdm_utf8_scan(p + at, to - at) != (int)(to - at)) break;
        if (!is_strip_space(tdm_utf8_decode(p + at, &len))) break;
        to = at;
    }
    *content += from;
    *sz = to - from;
}

static void said_stripped(writer_t *w, const tdm_chat_message_t *m) {
    const char *content = m->content;
    uint64_t sz = m->sz;
    strip(&content, &sz);
    said(w, content, sz);
}

static void render_chatml(writer_t *w, const tdm_chat_message_t *m, uint32_t cnt,
                          const char *system, int is_answer_due) {
    if (system && m[0].role != TDM_CHAT_SYSTEM) {
        own(w, "<|im_start|>system\n");
        own(w, system);
        own(w, "<|im_end|>\n");
    }
    for (uint32_t i = 0; i < cnt; i++) {
        own(w, "<|im_start|>");
        own(w, role_name[m[i].role]);
        own(w, "\n");
        said(w, m[i].content, m[i].sz);
        own(w, "<|im_end|>\n");
    }
    if (is_answer_due) own(w, "<|im_start|>assistant\n");
}

static void llama3_turn(writer_t *w, const char *role) {
    own(w, "<|start_header_id|>");
    own(w, role);
    own(w, "<|end_header_id|>\n\n");
}

static void render_llama3(writer_t *w, const tdm_chat_message_t *m, uint32_t cnt, int is_dated,
                          int is_answer_due) {
    own(w, "<|begin_of_text|>");
    uint32_t i = 0;
    if (is_dated) {
        llama3_turn(w, "system");
        own(w, LLAMA31_DATES);
        if (m[0].role == TDM_CHAT_SYSTEM) said_stripped(w, &m[i++]);
        own(w, "<|eot_id|>");
    }
    for (; i < cnt; i++) {
        llama3_turn(w, role_name[m[i].role]);
        said_stripped(w, &m[i]);
        own(w, "<|eot_id|>");
    }
    if (is_answer_due) llama3_turn(w, "assistant");
}

/* llama2_user writes a user's turn; the system message is part of the
   first one, and white space is stripped from the whole of it. */
static void llama2_user(writer_t *w, const tdm_chat_message_t *system,
                        const tdm_chat_message_t *user) {
    own(w, "<s>[INST] ");
    if (!system) {
        said_stripped(w, user);
    } else {
        own(w, "<<SYS>>\n");
        said(w, system->content, system->sz);
        own(w, "\n<</SYS>>");
        const char *content = user->content;
        uint64_t sz = user->sz;
        strip(&content, &sz);
        if (sz > 0) { /* the end of the message is the end of the whole, its begin is not */
            own(w, "\n\n");
            said(w, user->content, (uint64_t)(content - user->content) + sz);
        }
    }
    own(w, " [/INST]");
}

static tdm_chat_t render_llama2(writer_t *w, const tdm_chat_message_t *m, uint32_t cnt) {
    const tdm_chat_message_t *system = m[0].role == TDM_CHAT_SYSTEM ? &m[0] : NULL;
    uint32_t first = system != NULL;
    if (cnt == first) return TDM_CHAT_ROLE_ORDER;
    for (uint32_t i = first; i < cnt; i++) {
        int is_users_turn = (i - first) % 2 == 0;
        if (m[i].role != (is_users_turn ? TDM_CHAT_USER : TDM_CHAT_ASSISTANT))
            return TDM_CHAT_ROLE_ORDER;
        if (is_users_turn) {
            llama2_user(w, i == first ? system : NULL, &m[i]);
            continue;
        }
        own(w, " ");
        said_stripped(w, &m[i]);
        own(w, " </s>");
    }
    return TDM_CHAT_OK;
}

tdm_chat_t tdm_chat_render(tdm_chat_kind_t kind, const tdm_chat_message_t *message, uint32_t cnt,
                           int is_answer_due, tdm_chat_text_t *out) {
    writer_t w = {.out = out};
    tdm_chat_t rc = TDM_CHAT_OK;
    out->sz = 0;
    out->span_cnt = 0;
    if (cnt == 0) return TDM_CHAT_EMPTY;
    if (cnt > TDM_CHAT_MESSAGE_MAX) return TDM_CHAT_TOO_MANY;
    switch (kind) {
    case TDM_CHAT_CHATML: render_chatml(&w, message, cnt, NULL, is_answer_due); break;
    case TDM_CHAT_SMOLLM2: render_chatml(&w, message, cnt, SMOLLM2_SYSTEM, is_answer_due); break;
    case TDM_CHAT_LLAMA2: rc = render_llama2(&w, message, cnt); break;
    case TDM_CHAT_LLAMA3: render_llama3(&w, message, cnt, 0, is_answer_due); break;
    case TDM_CHAT_LLAMA31: render_llama3(&w, message, cnt, 1, is_answer_due); break;
    case TDM_CHAT_NONE:
    default:
        for (uint32_t i = 0; i < cnt; i++) {
            if (i > 0) own(&w, "\n");
            said(&w, message[i].content, message[i].sz);
        }
        break;
    }
    return rc == TDM_CHAT_OK && w.is_full ? TDM_CHAT_TOO_LONG : rc;
}
