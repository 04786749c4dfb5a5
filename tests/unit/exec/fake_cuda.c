/* SPDX-License-Identifier: Apache-2.0 */
/* Plays CUDA's driver library as far as the kernel sees it: the nodes it
   opens and maps, what it reads of the system, the calls that its threads
   make, and what it tries and lives without (appliance/exec/sandbox.h has
   the sources).  cuInit gives 0, or the number of the step that failed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((visibility("default"))) int cuInit(unsigned flags);

/* may tells whether a path can be opened; one that this machine lacks may. */
static int may(const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT;
    (void)close(fd);
    return 1;
}

static int reads(void) {
    static const char *const path[] = {"/proc/driver/nvidia/params",
                                       "/proc/devices",
                                       "/proc/modules",
                                       "/proc/self/maps",
                                       "/proc/self/status",
                                       "/proc/meminfo",
                                       "/proc/cpuinfo",
                                       "/proc/sys/vm/mmap_min_addr",
                                       "/sys/devices/system/cpu/online",
                                       "/sys/devices/system/node/online",
                                       "/proc/driver/nvidia/capabilities/mig/config",
                                       "/proc/driver/nvidia/capabilities/mig/monitor",
                                       "/sys/devices/system/memory/block_size_bytes",
                                       "/sys/devices/system/node/node0/cpumap",
                                       "/sys/module/nvidia/initstate",
                                       "/sys/module/nvidia_uvm/initstate",
                                       "/sys/module/nvidia_uvm/parameters",
                                       "/etc/nvidia/nvidia-application-profiles-rc"};
    for (size_t i = 0; i < sizeof path / sizeof path[0]; i++)
        if (!may(path[i], O_RDONLY)) return 0;
    return may("/sys/bus/pci/devices", O_RDONLY | O_DIRECTORY) &&
           may("/dev", O_RDONLY | O_DIRECTORY);
}

/* A node is opened for as long as the process lives, asked and mapped. */
static int node(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return 0;
    char answer[32] = {0};
    if (ioctl(fd, _IOWR('F', 200, answer), answer) != 0 && errno != ENOTTY) return 0;
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED;
}

static int nodes(void) {
    return node("/dev/nvidiactl") && node("/dev/nvidia0") && node("/dev/nvidia-uvm") &&
           node("/dev/nvidia-uvm-tools") && node("/dev/nvidia-caps/nvidia-cap1");
}

/* One address space for host and device: a great range is reserved, then
   taken piece by piece. */
static int memory(void) {
    size_t sz = (size_t)1 << 36, page = 1 << 21;
    char *at = mmap(NULL, sz, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return 0;
    if (mmap(at, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        return 0;
    if (madvise(at, page, MADV_DONTFORK) != 0 || (mlock(at, 4096) != 0 && errno != ENOMEM))
        return 0;
    void *code =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = memfd_create("cuda", MFD_CLOEXEC);
    return code != MAP_FAILED && fd >= 0 && ftruncate(fd, 4096) == 0 && munmap(at, sz) == 0;
}

static void *watcher(void *arg) {
    char path[64];
    cpu_set_t set;
    int *is_good = arg, pipes[2];
    (void)snprintf(path, sizeof path, "/proc/self/task/%ld/comm", (long)gettid());
    int fd = open(path, O_RDWR | O_CLOEXEC);
    *is_good = fd >= 0 && write(fd, "cuda-EvtHandlr", 14) == 14 &&
               prctl(PR_SET_NAME, "cuda-watch") == 0 &&
               sched_getaffinity(0, sizeof set, &set) == 0 &&
               sched_setaffinity(0, sizeof set, &set) == 0 && sched_yield() == 0 &&
               sched_getscheduler(0) >= 0 && getpriority(PRIO_PROCESS, 0) >= -20 &&
               pipe2(pipes, O_CLOEXEC) == 0;
    struct pollfd p = {.fd = pipes[0], .events = POLLIN};
    struct epoll_event e = {.events = EPOLLIN};
    int ring = epoll_create1(EPOLL_CLOEXEC), bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    *is_good = *is_good && poll(&p, 1, 1) == 0 && bell >= 0 &&
               epoll_ctl(ring, EPOLL_CTL_ADD, bell, &e) == 0 && epoll_wait(ring, &e, 1, 1) == 0;
    return NULL;
}

/* A kernel may lack what is asked of NUMA, but nobody forbids it. */
static int numa(long call, long a, long b, long c) {
    return syscall(call, a, b, c, 0L, 0L, 0L) == 0 || errno != EPERM;
}

static int calls(void) {
    pthread_t t;
    struct sysinfo si;
    struct utsname un;
    struct rusage ru;
    struct rlimit rl;
    stack_t stack;
    int is_good = 0;
    if (pthread_create(&t, NULL, watcher, &is_good) != 0 || pthread_join(t, NULL) != 0) return 0;
    return is_good && sysinfo(&si) == 0 && uname(&un) == 0 && getrusage(RUSAGE_SELF, &ru) == 0 &&
           getrlimit(RLIMIT_STACK, &rl) == 0 && sigaltstack(NULL, &stack) == 0 &&
           numa(SYS_get_mempolicy, 0, 0, 0) && numa(SYS_set_mempolicy, 0, 0, 0) &&
           numa(SYS_mbind, 0, 0, 0);
}

/* The door by which another process would ask for its memory. */
static int door(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct stat ns;
    if (stat("/proc/self/ns/pid", &ns) != 0) return 0;
    int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "cuda-uvmfd-%lu-%d",
                     (unsigned long)ns.st_ino, (int)getpid());
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n + 1);
    struct pollfd p = {.fd = s, .events = POLLIN};
    return s >= 0 && bind(s, (struct sockaddr *)&at, len) == 0 && listen(s, 128) == 0 &&
           poll(&p, 1, 0) == 0;
}

/* What it tries, and goes on without. */
static int lives_without(void) {
    char *const modprobe[] = {"nvidia-modprobe", "-c0", NULL};
    char cache[128];
    pid_t pid = fork();
    if (pid == 0) {
        (void)execv("/usr/bin/nvidia-modprobe", modprobe);
        _exit(errno == EPERM ? 0 : 1);
    }
    int status = 1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) return 0;
    struct sockaddr_un mps = {.sun_family = AF_UNIX, .sun_path = "/tmp/nvidia-mps/control"};
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (s < 0 || connect(s, (struct sockaddr *)&mps, sizeof mps) == 0 || errno != EPERM) return 0;
    if (open("/dev/shm/cuda_injection_path_shm", O_RDWR | O_NOFOLLOW | O_CLOEXEC) >= 0) return 0;
    if (mknod("/dev/nvidia1", S_IFCHR | 0666, makedev(195, 1)) == 0 || errno != EACCES) return 0;
    const char *home = getenv("HOME");
    (void)snprintf(cache, sizeof cache, "%s/.nv", home ? home : "/root");
    return mkdir(cache, 0700) != 0 && errno == EACCES;
}

int cuInit(unsigned flags) {
    int (*const step[])(void) = {reads, nodes, memory, calls, door, lives_without};
    for (size_t i = 0; flags == 0 && i < sizeof step / sizeof step[0]; i++)
        if (!step[i]()) return (int)i + 1;
    return 0;
}
