/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/flight/flight.h"

#include "appliance/base/check.h"
#include "appliance/base/size.h"

#include <string.h>

_Static_assert(sizeof(tdm_flight_iteration_t) == 232, "a record of whole words");
_Static_assert(sizeof(tdm_flight_hop_t) == 48, "a record of whole words");
_Static_assert(sizeof(tdm_flight_hop_t) % sizeof(uint64_t) == 0, "a record of whole words");

static uint64_t head_sz(void) {
    return tdm_size_align(sizeof(tdm_flight_head_t), TDM_CACHE_LINE);
}

static uint32_t record_sz(uint32_t kind) {
    return kind == TDM_FLIGHT_ITERATIONS ? sizeof(tdm_flight_iteration_t)
                                         : sizeof(tdm_flight_hop_t);
}

static uint64_t ring_sz(uint32_t kind, uint32_t slot_cnt) {
    return TDM_CACHE_LINE +
           tdm_size_align((uint64_t)slot_cnt * (8u + record_sz(kind)), TDM_CACHE_LINE);
}

uint64_t tdm_flight_footprint(const tdm_flight_sizes_t *z) {
    return head_sz() + ring_sz(TDM_FLIGHT_ITERATIONS, z->iteration_cnt) +
           z->api_cnt * ring_sz(TDM_FLIGHT_HOPS, z->hop_cnt);
}

static void copy_text(char *to, size_t cap, const char *from) {
    (void)strncpy(to, from, cap - 1);
    to[cap - 1] = 0;
}

void tdm_flight_init(void *mem, const tdm_flight_sizes_t *z, const char *version, const char *model,
                     int64_t start_ns, int64_t wall_offset_ns) {
    TDM_CHECK((uintptr_t)mem % TDM_CACHE_LINE == 0 && z->api_cnt <= TDM_API_TILE_MAX);
    tdm_flight_head_t *h = mem;
    h->sz = tdm_flight_footprint(z);
    h->wall_offset_ns = wall_offset_ns;
    h->start_ns = start_ns;
    copy_text(h->version, sizeof h->version, version);
    copy_text(h->model, sizeof h->model, model);
    uint64_t off = head_sz();
    for (uint32_t i = 0; i < 1u + z->api_cnt; i++) {
        uint32_t kind = i == 0 ? TDM_FLIGHT_ITERATIONS : TDM_FLIGHT_HOPS;
        uint32_t slot_cnt = i == 0 ? z->iteration_cnt : z->hop_cnt;
        TDM_CHECK(slot_cnt > 0 && (slot_cnt & (slot_cnt - 1u)) == 0);
        h->ring[h->ring_cnt++] = (tdm_flight_row_t){
            .kind = kind, .record_sz = record_sz(kind), .slot_cnt = slot_cnt, .off = off};
        off += ring_sz(kind, slot_cnt);
    }
    tdm_store_release(&h->magic, TDM_FLIGHT_MAGIC); /* F0: pairs with G0 in tdm_flight_check */
}

tdm_flight_ring_t tdm_flight_writer(void *mem, uint32_t idx) {
    const tdm_flight_head_t *h = mem;
    TDM_CHECK(idx < h->ring_cnt);
    const tdm_flight_row_t *row = &h->ring[idx];
    uint64_t *head = (uint64_t *)((uint8_t *)mem + row->off);
    return (tdm_flight_ring_t){.head = head,
                               .slot = head + TDM_CACHE_LINE / sizeof(uint64_t),
                               .mask = row->slot_cnt - 1u,
                               .record_words = row->record_sz / (uint32_t)sizeof(uint64_t)};
}

/* --- reading ---------------------------------------------------------- */

static int ring_is_sound(const tdm_flight_row_t *row, uint64_t sz) {
    if (row->kind != TDM_FLIGHT_ITERATIONS && row->kind != TDM_FLIGHT_HOPS) return 0;
    if (row->record_sz != record_sz(row->kind)) return 0;
    if (row->slot_cnt == 0 || row->slot_cnt > TDM_FLIGHT_SLOT_MAX) return 0;
    if ((row->slot_cnt & (row->slot_cnt - 1u)) != 0 || row->off % TDM_CACHE_LINE != 0) return 0;
    uint64_t need = ring_sz(row->kind, row->slot_cnt);
    return row->off >= head_sz() && row->off <= sz && need <= sz - row->off;
}

tdm_status_t tdm_flight_check(const void *mem, uint64_t sz, const char *version, tdm_error_t *err) {
    const tdm_flight_head_t *h = mem;
    /* G0: pairs with F0 in tdm_flight_init */
    if (sz < sizeof *h || tdm_load_acquire(&h->magic) != TDM_FLIGHT_MAGIC)
        return tdm_error_set(err, TDM_ERR_INVAL, "this is no flight recorder");
    if (h->version[sizeof h->version - 1] || h->model[sizeof h->model - 1])
        return tdm_error_set(err, TDM_ERR_INVAL, "the flight recorder's names have no end");
    if (strncmp(h->version, version, sizeof h->version - 1) != 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "written by version %s, read by %s", h->version,
                             version);
    if (h->ring_cnt == 0 || h->ring_cnt > TDM_FLIGHT_RING_MAX)
        return tdm_error_set(err, TDM_ERR_INVAL, "the flight recorder has %u rings", h->ring_cnt);
    for (uint32_t i = 0; i < h->ring_cnt; i++) {
        int is_right_kind = (h->ring[i].kind == TDM_FLIGHT_ITERATIONS) == (i == 0);
        if (!is_right_kind || !ring_is_sound(&h->ring[i], sz))
            return tdm_error_set(err, TDM_ERR_INVAL, "ring %u of the flight recorder is damaged",
                                 i);
    }
    return TDM_OK;
}

static const uint64_t *head_of(const void *mem, uint32_t idx) {
    const tdm_flight_head_t *h = mem;
    TDM_CHECK(idx < h->ring_cnt);
    return (const uint64_t *)((const uint8_t *)mem + h->ring[idx].off);
}

uint64_t tdm_flight_newest(const void *mem, uint32_t idx) {
    return tdm_load_acquire(head_of(mem, idx)); /* G3: pairs with F3 */
}

uint64_t tdm_flight_oldest(const void *mem, uint32_t idx) {
    const tdm_flight_head_t *h = mem;
    uint64_t newest = tdm_flight_newest(mem, idx);
    return newest > h->ring[idx].slot_cnt ? newest - h->ring[idx].slot_cnt : 0;
}

int tdm_flight_get(const void *mem, uint32_t idx, uint64_t n, void *record) {
    const tdm_flight_head_t *h = mem;
    const tdm_flight_row_t *row = &h->ring[idx];
    uint32_t words = row->record_sz / (uint32_t)sizeof(uint64_t);
    const uint64_t *slot = head_of(mem, idx) + TDM_CACHE_LINE / sizeof(uint64_t) +
                           (n & (row->slot_cnt - 1u)) * (1u + words);
    uint64_t word[TDM_FLIGHT_WORDS_MAX], turn = 2u * n + 2u;
    if (tdm_load_acquire(&slot[0]) != turn) return 0; /* G2: pairs with F2 */
    for (uint32_t i = 0; i < words; i++)
        word[i] = tdm_load_acquire(&slot[1u + i]); /* G1: pairs with F1 */
    memcpy(record, word, row->record_sz);
    return tdm_load_relaxed(&slot[0]) == turn;
}
