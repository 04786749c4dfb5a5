/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/exec/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LIBRARY_MAX 32u   /* folders of LD_LIBRARY_PATH */
#define ENTRY_MAX   4096u /* files of a model's folder */
#define NODE_MAX    4096u /* names in /dev */

/* --- files ----------------------------------------------------------------- */

#define READ_FILE                                                                                  \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
/* Without making or removing anything. */
#define READ_WRITE (READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE)
/* All of Landlock's first version (Linux 5.13): later ones add to it. */
#define HANDLED ((UINT64_C(1) << 13) - 1)

/* allow lets path and what is below it be used; one that is not there is
   not missed. */
static int allow(int rules, const char *path, uint64_t access) {
    struct stat sb;
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) return 1;
    int is_good = fstat(fd, &sb) == 0;
    struct landlock_path_beneath_attr at = {.allowed_access = access, .parent_fd = fd};
    if (is_good && !S_ISDIR(sb.st_mode)) /* folders' rights are refused for a file */
        at.allowed_access &= ~(uint64_t)LANDLOCK_ACCESS_FS_READ_DIR;
    is_good =
        is_good && syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &at, 0) == 0;
    (void)close(fd);
    return is_good;
}

/* A folder of safetensors may hold links to where the files are. */
static int allow_model(int rules, const char *model) {
    char path[PATH_MAX];
    int is_good = allow(rules, model, READ_FILE);
    DIR *folder = opendir(model);
    if (!folder) return is_good;
    uint32_t cnt = 0;
    for (const struct dirent *e = readdir(folder); is_good && e && cnt < ENTRY_MAX;
         e = readdir(folder), cnt++) {
        if (e->d_type != DT_LNK) continue;
        if (snprintf(path, sizeof path, "%s/%s", model, e->d_name) >= (int)sizeof path) continue;
        is_good = allow(rules, path, LANDLOCK_ACCESS_FS_READ_FILE);
    }
    (void)closedir(folder);
    return is_good;
}

/* Where the loader looks for a library that a driver brings in late. */
static int allow_libraries(int rules) {
    const char *at = getenv("LD_LIBRARY_PATH");
    char path[PATH_MAX];
    int is_good = 1;
    for (uint32_t i = 0; is_good && at && i < LIBRARY_MAX; i++) {
        size_t n = strcspn(at, ":");
        if (n && n < sizeof path) {
            memcpy(path, at, n);
            path[n] = 0;
            is_good = allow(rules, path, READ_FILE);
        }
        at = at[n] ? at + n + 1 : NULL;
    }
    return is_good;
}

/* The nodes of NVIDIA's driver, as many as there are GPUs, and its profiles
   of applications. */
static int allow_gpus(int rules) {
    char path[PATH_MAX];
    DIR *folder = opendir("/dev");
    int is_good = allow(rules, "/etc/nvidia", READ_FILE);
    uint32_t cnt = 0;
    if (!folder) return is_good;
    for (const struct dirent *e = readdir(folder); is_good && e && cnt < NODE_MAX;
         e = readdir(folder), cnt++) {
        if (strncmp(e->d_name, "nvidia", 6) != 0) continue;
        (void)snprintf(path, sizeof path, "/dev/%s", e->d_name);
        is_good = allow(rules, path, READ_WRITE);
    }
    (void)closedir(folder);
    return is_good;
}

static int allow_all(int rules, const char *model, int has_gpu) {
    static const char *const read_only[] = {"/usr",  "/lib", "/lib64",          "/opt",
                                            "/proc", "/sys", "/etc/ld.so.cache"};
    static const char *const written[] = {"/proc/self", "/dev/null", "/dev/zero", "/dev/random",
                                          "/dev/urandom"};
    char self[PATH_MAX];
    int is_good = allow(rules, "/dev", LANDLOCK_ACCESS_FS_READ_DIR);
    for (size_t i = 0; is_good && i < TDM_COUNT_OF(written); i++)
        is_good = allow(rules, written[i], READ_WRITE);
    for (size_t i = 0; is_good && i < TDM_COUNT_OF(read_only); i++)
        is_good = allow(rules, read_only[i], READ_FILE);
    if (is_good && has_gpu) is_good = allow_gpus(rules);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (is_good && n > 0) {
        self[n] = 0;
        char *slash = strrchr(self, '/');
        if (slash && slash != self) *slash = 0;
        is_good = allow(rules, self, READ_FILE);
    }
    return is_good && allow_libraries(rules) && allow_model(rules, model);
}

static tdm_status_t close_files(const char *model, int has_gpu, tdm_sandbox_t *out,
                                tdm_error_t *err) {
    struct landlock_ruleset_attr attr = {.handled_access_fs = HANDLED};
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1) return TDM_OK; /* ENOSYS, EOPNOTSUPP, or a filter that does not know it */
    int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    int is_good = rules >= 0 && allow_all(rules, model, has_gpu) &&
                  syscall(SYS_landlock_restrict_self, rules, 0) == 0;
    tdm_status_t st =
        is_good ? TDM_OK : tdm_error_set(err, TDM_ERR_IO, "Landlock: %s", strerror(errno));
    if (rules >= 0) (void)close(rules);
    out->is_files = st == TDM_OK;
    return st;
}

/* --- calls ------------------------------------------------------------------- */

/* Names, for libseccomp knows which of them an architecture has. */
static const char *const refused[] = {
    /* the net, and other processes' sockets; socket itself is below */
    "connect",
    "accept",
    "accept4",
    "socketcall",
    /* programs */
    "execve",
    "execveat",
#if !defined(__SANITIZE_ADDRESS__)
    /* other processes; the leak checker of AddressSanitizer traces its own */
    "ptrace",
#endif
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "pidfd_open",
    "pidfd_getfd",
    "pidfd_send_signal",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "tkill",
    "kcmp",
    /* the system's shape */
    "mount",
    "umount",
    "umount2",
    "pivot_root",
    "chroot",
    "unshare",
    "setns",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "swapon",
    "swapoff",
    "reboot",
    "sethostname",
    "setdomainname",
    "settimeofday",
    "clock_settime",
    "clock_adjtime",
    "adjtimex",
    "acct",
    "quotactl",
    "syslog",
    "open_by_handle_at",
    /* parts of the kernel that need no visitor */
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "keyctl",
    "add_key",
    "request_key",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "kexec_file_load",
    "fanotify_init",
    "iopl",
    "ioperm",
};

/* CUDA's driver gives a socket a name and does not start without (sandbox.h). */
static const char *const refused_without_gpu[] = {"bind", "listen"};

static int refuse(scmp_filter_ctx filter, const char *const *name, size_t cnt) {
    int is_good = 1;
    for (size_t i = 0; is_good && i < cnt; i++) {
        int call = seccomp_syscall_resolve_name(name[i]);
        if (call == __NR_SCMP_ERROR) continue; /* an older library does not know it */
        is_good = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), call, 0) == 0;
    }
    return is_good;
}

#define SOCK_TYPE_MASK 0xf /* of the kernel's linux/net.h: above it are flags */

/* Signals reach this process alone: abort() and the driver's own.  A driver
   that looks for its daemon may make the socket of a local one, and finds
   nobody: not by a datagram either, which needs no connect, for its address
   is beside it.  SOCK_RAW is a local datagram's other name (unix(7)). */
static int refuse_by_argument(scmp_filter_ctx filter) {
    const struct {
        int call;
        struct scmp_arg_cmp when;
    } rule[] = {
        {SCMP_SYS(kill), SCMP_A0(SCMP_CMP_NE, (scmp_datum_t)getpid(), 0)},
        {SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_NE, (scmp_datum_t)getpid(), 0)},
        {SCMP_SYS(socket), SCMP_A0(SCMP_CMP_NE, AF_UNIX, 0)},
        {SCMP_SYS(socket), SCMP_A1(SCMP_CMP_MASKED_EQ, SOCK_TYPE_MASK, SOCK_DGRAM)},
        {SCMP_SYS(socket), SCMP_A1(SCMP_CMP_MASKED_EQ, SOCK_TYPE_MASK, SOCK_RAW)},
        {SCMP_SYS(socketpair), SCMP_A0(SCMP_CMP_NE, AF_UNIX, 0)},
        {SCMP_SYS(socketpair), SCMP_A1(SCMP_CMP_MASKED_EQ, SOCK_TYPE_MASK, SOCK_DGRAM)},
        {SCMP_SYS(socketpair), SCMP_A1(SCMP_CMP_MASKED_EQ, SOCK_TYPE_MASK, SOCK_RAW)},
    };
    for (size_t i = 0; i < TDM_COUNT_OF(rule); i++)
        if (seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EPERM), rule[i].call, 1, &rule[i].when) !=
            0)
            return 0;
    return 1;
}

static tdm_status_t close_calls(int has_gpu, tdm_sandbox_t *out, tdm_error_t *err) {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (!filter) return tdm_error_set(err, TDM_ERR_NOMEM, "seccomp: no memory");
    int rc = 0;
    int is_good = refuse_by_argument(filter) && refuse(filter, refused, TDM_COUNT_OF(refused));
    if (is_good && !has_gpu)
        is_good = refuse(filter, refused_without_gpu, TDM_COUNT_OF(refused_without_gpu));
    if (is_good) rc = seccomp_load(filter);
    seccomp_release(filter);
    if (!is_good || (rc != 0 && rc != -EINVAL && rc != -ENOSYS))
        return tdm_error_set(err, TDM_ERR_IO, "seccomp: %s", strerror(rc ? -rc : EINVAL));
    out->is_calls = rc == 0; /* else: a kernel without it */
    return TDM_OK;
}

tdm_status_t tdm_sandbox_enter(const char *model, int has_gpu, tdm_sandbox_t *out,
                               tdm_error_t *err) {
    *out = (tdm_sandbox_t){0};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return tdm_error_set(err, TDM_ERR_IO, "no_new_privs: %s", strerror(errno));
    tdm_status_t st = close_files(model, has_gpu, out, err);
    return st == TDM_OK ? close_calls(has_gpu, out, err) : st;
}
