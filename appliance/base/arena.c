/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/arena.h"

#include "appliance/base/check.h"
#include "appliance/base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <hugetlbfs.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* pool_counter reads one number of the default pool from sysfs
   (Documentation/admin-guide/mm/hugetlbpage.rst); libhugetlbfs keeps its
   own reader private. */
static uint64_t pool_counter(long page_sz, const char *name) {
    char path[128];
    (void)snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/hugepages-%ldkB/%s", page_sz / 1024,
                   name);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    unsigned long long v = 0;
    if (fscanf(f, "%llu", &v) != 1) v = 0;
    (void)fclose(f);
    return v;
}

void tdm_hugepages_read(uint64_t *page_sz, uint64_t *total_cnt, uint64_t *free_cnt) {
    long sz = gethugepagesize();
    *page_sz = sz > 0 ? (uint64_t)sz : 0;
    *total_cnt = sz > 0 ? pool_counter(sz, "nr_hugepages") : 0;
    *free_cnt = sz > 0 ? pool_counter(sz, "free_hugepages") : 0;
}

/* page_size_of reads KernelPageSize of the mapping that starts at addr. */
static uint64_t page_size_of(const void *addr) {
    FILE *f = fopen("/proc/self/smaps", "re");
    if (!f) return 0;
    char line[512];
    int is_ours = 0;
    uint64_t kib = 0;
    while (fgets(line, sizeof line, f)) {
        unsigned long lo, hi;
        if (sscanf(line, "%lx-%lx ", &lo, &hi) == 2 && strchr(line, '-') < strchr(line, ' ')) {
            is_ours = (uintptr_t)addr >= lo && (uintptr_t)addr < hi;
            continue;
        }
        unsigned long long v;
        if (is_ours && sscanf(line, "KernelPageSize: %llu kB", &v) == 1) {
            kib = v;
            break;
        }
    }
    (void)fclose(f);
    return kib * 1024;
}

static tdm_status_t huge_shortage(uint64_t sz, tdm_error_t *err) {
    uint64_t page, total, avail;
    tdm_hugepages_read(&page, &total, &avail);
    if (page == 0) return tdm_error_set(err, TDM_ERR_NOMEM, "this kernel offers no hugepages");
    uint64_t need = tdm_ceil_div(sz, page);
    return tdm_error_set(err, TDM_ERR_NOMEM,
                         "hugepages: have %llu free of %llu, need %llu of %llu KiB; "
                         "how: echo %llu > /proc/sys/vm/nr_hugepages",
                         (unsigned long long)avail, (unsigned long long)total,
                         (unsigned long long)need, (unsigned long long)page / 1024,
                         (unsigned long long)total - avail + need);
}

static tdm_status_t open_shared(tdm_arena_t *a, int is_huge, tdm_error_t *err) {
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (is_huge ? MFD_HUGETLB : 0u);
    a->fd = memfd_create("tandem-arena", flags);
    if (a->fd < 0) return tdm_error_set(err, TDM_ERR_IO, "memfd_create: %s", strerror(errno));
    if (ftruncate(a->fd, (off_t)a->sz) != 0)
        return tdm_error_set(err, TDM_ERR_IO, "ftruncate of the arena: %s", strerror(errno));
    int populate = is_huge ? MAP_POPULATE : 0;
    a->base = mmap(NULL, a->sz, PROT_READ | PROT_WRITE, MAP_SHARED | populate, a->fd, 0);
    return TDM_OK;
}

tdm_status_t tdm_arena_open(tdm_arena_t *a, tdm_arena_kind_t kind, uint64_t sz, tdm_error_t *err) {
    memset(a, 0, sizeof *a);
    a->fd = -1;
    a->kind = kind;
    if (sz == 0 || sz > (UINT64_C(1) << 46))
        return tdm_error_set(err, TDM_ERR_INVAL, "arena of %llu bytes", (unsigned long long)sz);
    int is_huge = kind == TDM_ARENA_HUGE || kind == TDM_ARENA_SHARED_HUGE;
    long page = is_huge ? gethugepagesize() : sysconf(_SC_PAGESIZE);
    if (page <= 0) return huge_shortage(sz, err);
    a->sz = tdm_size_align(sz, (uint64_t)page);
    if (is_huge) {
        uint64_t psz, total, avail;
        tdm_hugepages_read(&psz, &total, &avail);
        TDM_CHECK(psz > 0);
        if (a->sz / psz > avail) return huge_shortage(a->sz, err);
    }
    tdm_status_t st = TDM_OK;
    switch (kind) {
    case TDM_ARENA_PLAIN:
        a->base = mmap(NULL, a->sz, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        /* A wish: weights streamed over 4 KiB pages run at 60 % of the rate. */
        if (a->base != MAP_FAILED) (void)madvise(a->base, a->sz, MADV_HUGEPAGE);
        break;
    case TDM_ARENA_HUGE:
        a->base = get_hugepage_region(a->sz, GHR_STRICT);
        if (!a->base) a->base = MAP_FAILED;
        break;
    case TDM_ARENA_SHARED:
    case TDM_ARENA_SHARED_HUGE: st = open_shared(a, is_huge, err); break;
    }
    if (st == TDM_OK && a->base == MAP_FAILED) {
        st = is_huge ? huge_shortage(a->sz, err)
                     : tdm_error_set(err, TDM_ERR_NOMEM, "cannot map %llu bytes: %s",
                                     (unsigned long long)a->sz, strerror(errno));
    }
    if (st != TDM_OK) {
        if (a->fd >= 0) (void)close(a->fd);
        memset(a, 0, sizeof *a);
        a->fd = -1;
        return st;
    }
    /* A fork (the executor's start) would make every private page of ours
       read-only until the next write: a fault and a copy on a polling tile. */
    if (kind == TDM_ARENA_PLAIN || kind == TDM_ARENA_HUGE)
        (void)madvise(a->base, a->sz, MADV_DONTFORK);
    a->page_sz = page_size_of(a->base);
    if (is_huge && a->page_sz < (uint64_t)page) {
        uint64_t got = a->page_sz;
        tdm_arena_close(a);
        return tdm_error_set(err, TDM_ERR_NOMEM,
                             "asked for %ld-byte hugepages, got %llu-byte pages", page,
                             (unsigned long long)got);
    }
    return TDM_OK;
}

tdm_status_t tdm_arena_attach(tdm_arena_t *a, int fd, tdm_error_t *err) {
    memset(a, 0, sizeof *a);
    a->fd = -1;
    struct stat sb;
    if (fstat(fd, &sb) != 0 || sb.st_size <= 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "descriptor %d is no arena", fd);
    a->sz = (uint64_t)sb.st_size;
    a->kind = TDM_ARENA_SHARED;
    a->base = mmap(NULL, a->sz, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (a->base == MAP_FAILED) {
        a->base = NULL;
        return tdm_error_set(err, TDM_ERR_IO, "cannot map the arena: %s", strerror(errno));
    }
    a->page_sz = page_size_of(a->base);
    a->is_sealed = 1;
    return TDM_OK;
}

void *tdm_arena_take(tdm_arena_t *a, uint64_t sz, uint64_t align) {
    TDM_CHECK(!a->is_sealed);
    TDM_CHECK(align != 0 && (align & (align - 1)) == 0 && align <= 4096);
    uint64_t off = tdm_size_align(a->used, align);
    if (sz > a->sz || off > a->sz - sz) return NULL;
    a->used = off + sz;
    return a->base + off;
}

void tdm_arena_seal(tdm_arena_t *a) {
    a->is_sealed = 1;
    if (a->fd >= 0) (void)fcntl(a->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

void tdm_arena_close(tdm_arena_t *a) {
    if (a->base) (void)munmap(a->base, a->sz);
    if (a->fd >= 0) (void)close(a->fd);
    memset(a, 0, sizeof *a);
    a->fd = -1;
}
