/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/flight/file.h"

#include "appliance/base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static tdm_status_t refuse(tdm_flight_file_t *f, const char *path, const char *what,
                           tdm_error_t *err) {
    int code = errno;
    tdm_flight_close(f);
    return tdm_error_set(err, TDM_ERR_IO, "%s: %s: %s", path, what, strerror(code));
}

/* set_aside renames what another life left, unless that life goes on. */
static tdm_status_t set_aside(const char *path, tdm_error_t *err) {
    char last[512];
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT) return TDM_OK;
    if (fd < 0) return tdm_error_set(err, TDM_ERR_IO, "%s: %s", path, strerror(errno));
    int is_free = flock(fd, LOCK_EX | LOCK_NB) == 0;
    tdm_status_t st = TDM_OK;
    if (!is_free)
        st = tdm_error_set(err, TDM_ERR_FULL, "%s: another process writes it", path);
    else if ((size_t)snprintf(last, sizeof last, "%s.last", path) >= sizeof last)
        st = tdm_error_set(err, TDM_ERR_INVAL, "%s: the path is too long", path);
    else if (rename(path, last) != 0)
        st = tdm_error_set(err, TDM_ERR_IO, "%s: %s", last, strerror(errno));
    (void)close(fd);
    return st;
}

tdm_status_t tdm_flight_create(tdm_flight_file_t *f, const char *path,
                               const tdm_flight_sizes_t *sizes, const char *version,
                               const char *model, int64_t start_ns, int64_t wall_offset_ns,
                               tdm_error_t *err) {
    *f = (tdm_flight_file_t){.fd = -1};
    tdm_status_t st = set_aside(path, err);
    if (st != TDM_OK) return st;
    f->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (f->fd < 0) return refuse(f, path, "cannot be made", err);
    struct statfs fs;
    if (flock(f->fd, LOCK_EX | LOCK_NB) != 0 || fstatfs(f->fd, &fs) != 0)
        return refuse(f, path, "lock", err);
    f->page_sz = (uint64_t)fs.f_bsize;
    f->sz = tdm_size_align(tdm_flight_footprint(sizes), f->page_sz);
    if (ftruncate(f->fd, (off_t)f->sz) != 0) return refuse(f, path, "no room", err);
    /* Room is taken now: a later store to a page that is not there would
       end the process. */
    int code = posix_fallocate(f->fd, 0, (off_t)f->sz);
    if (code) {
        errno = code;
        (void)unlink(path);
        return refuse(f, path, "no room", err);
    }
    void *mem = mmap(NULL, f->sz, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
    if (mem == MAP_FAILED) return refuse(f, path, "mmap", err);
    f->mem = mem;
    (void)madvise(f->mem, f->sz, MADV_HUGEPAGE);
    memset(f->mem, 0, f->sz);
    tdm_flight_init(f->mem, sizes, version, model, start_ns, wall_offset_ns);
    ((tdm_flight_head_t *)f->mem)->pid = (uint32_t)getpid();
    return TDM_OK;
}

tdm_status_t tdm_flight_open(tdm_flight_file_t *f, const char *path, const char *version,
                             tdm_error_t *err) {
    *f = (tdm_flight_file_t){.fd = -1};
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0) return refuse(f, path, "cannot be read", err);
    struct stat info;
    if (fstat(f->fd, &info) != 0) return refuse(f, path, "fstat", err);
    if (info.st_size < (off_t)sizeof(tdm_flight_head_t)) {
        tdm_flight_close(f);
        return tdm_error_set(err, TDM_ERR_INVAL, "%s: too short for a flight recorder", path);
    }
    f->sz = (uint64_t)info.st_size;
    void *mem = mmap(NULL, f->sz, PROT_READ, MAP_SHARED, f->fd, 0);
    if (mem == MAP_FAILED) return refuse(f, path, "mmap", err);
    f->mem = mem;
    tdm_status_t st = tdm_flight_check(f->mem, f->sz, version, err);
    if (st != TDM_OK) tdm_flight_close(f);
    return st;
}

void tdm_flight_close(tdm_flight_file_t *f) {
    if (f->mem) (void)munmap(f->mem, f->sz);
    if (f->fd >= 0) (void)close(f->fd);
    *f = (tdm_flight_file_t){.fd = -1};
}
