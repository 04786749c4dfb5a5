/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/flight/file.h"

#include "appliance/base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
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

/* is_trusted: a user who may write what the appliance and its operators
   take for the recorder. */
static int is_trusted(uid_t uid) {
    if (uid == 0 || uid == geteuid()) return 1;
    const struct passwd *own = getpwnam(TDM_FLIGHT_USER);
    return own && own->pw_uid == uid;
}

/* folder looks at that of path: whether all may write it.  Where they may, it
   must be sticky. */
static tdm_status_t folder(const char *path, int *is_open_to_all, tdm_error_t *err) {
    char name[512];
    struct stat info;
    const char *slash = strrchr(path, '/');
    size_t sz = !slash ? 1 : slash == path ? 1 : (size_t)(slash - path);
    if (sz >= sizeof name)
        return tdm_error_set(err, TDM_ERR_INVAL, "%s: the path is too long", path);
    (void)snprintf(name, sizeof name, "%.*s", (int)sz, slash ? path : ".");
    if (stat(name, &info) != 0)
        return tdm_error_set(err, TDM_ERR_IO, "%s: %s", name, strerror(errno));
    *is_open_to_all = (info.st_mode & S_IWOTH) != 0;
    if (*is_open_to_all && !(info.st_mode & S_ISVTX))
        return tdm_error_set(err, TDM_ERR_PERM,
                             "%s: all may replace the files of its folder, which is not sticky: "
                             "chmod +t, or another flight.path",
                             path);
    return TDM_OK;
}

/* judge refuses what is not to be taken for a recorder. */
static tdm_status_t judge(const char *path, const struct stat *info, tdm_error_t *err) {
    int is_open_to_all;
    tdm_status_t st = folder(path, &is_open_to_all, err);
    if (st != TDM_OK) return st;
    if (!S_ISREG(info->st_mode))
        return tdm_error_set(err, TDM_ERR_PERM, "%s: %s: no plain file is there", path,
                             S_ISLNK(info->st_mode)    ? "a symbolic link"
                             : S_ISDIR(info->st_mode)  ? "a folder"
                             : S_ISFIFO(info->st_mode) ? "a pipe"
                                                       : "a device or a socket");
    if (!is_open_to_all) return TDM_OK;
    if (!is_trusted(info->st_uid))
        return tdm_error_set(err, TDM_ERR_PERM,
                             "%s: of user %u, who is neither root, nor " TDM_FLIGHT_USER
                             ", nor user %u that asks: remove it, or another flight.path",
                             path, (unsigned)info->st_uid, (unsigned)geteuid());
    if (info->st_mode & (S_IWGRP | S_IWOTH))
        return tdm_error_set(err, TDM_ERR_PERM, "%s: mode %04o: others than its owner may write it",
                             path, (unsigned)(info->st_mode & 07777));
    if (info->st_nlink != 1)
        return tdm_error_set(err, TDM_ERR_PERM, "%s: the file has %lu names", path,
                             (unsigned long)info->st_nlink);
    return TDM_OK;
}

/* take opens what is there and may be trusted; *fd is -1 where nothing is.
   Judged before, so that nothing strange is opened, and after: it may have
   been put in another's place meanwhile. */
static tdm_status_t take(const char *path, int flags, int *fd, tdm_error_t *err) {
    struct stat info;
    *fd = -1;
    if (lstat(path, &info) != 0 && errno == ENOENT) {
        int is_open_to_all;
        return folder(path, &is_open_to_all, err);
    }
    tdm_status_t st = lstat(path, &info) == 0 ? judge(path, &info, err) : TDM_OK;
    if (st != TDM_OK) return st;
    *fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (*fd < 0 || fstat(*fd, &info) != 0)
        st = tdm_error_set(err, TDM_ERR_IO, "%s: %s", path, strerror(errno));
    else
        st = judge(path, &info, err);
    if (st == TDM_OK) return TDM_OK;
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
    return st;
}

/* set_aside renames what another life left, unless that life goes on. */
static tdm_status_t set_aside(const char *path, tdm_error_t *err) {
    char last[512];
    int fd;
    tdm_status_t st = take(path, O_RDWR, &fd, err);
    if (st != TDM_OK || fd < 0) return st;
    int is_free = flock(fd, LOCK_EX | LOCK_NB) == 0;
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
    tdm_status_t st = take(path, O_RDONLY, &f->fd, err);
    if (st != TDM_OK) return st;
    if (f->fd < 0) return tdm_error_set(err, TDM_ERR_IO, "%s: there is none", path);
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
    st = tdm_flight_check(f->mem, f->sz, version, err);
    if (st != TDM_OK) tdm_flight_close(f);
    return st;
}

void tdm_flight_close(tdm_flight_file_t *f) {
    if (f->mem) (void)munmap(f->mem, f->sz);
    if (f->fd >= 0) (void)close(f->fd);
    *f = (tdm_flight_file_t){.fd = -1};
}
