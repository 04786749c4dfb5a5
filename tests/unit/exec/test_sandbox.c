/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: behind tdm_sandbox_enter there is no socket, no program, no signal
   to another, no file but the model's and the system's own; and what an
   executor lives on still works.
   Goal: with a GPU its driver works inside as well, and has no node but its
   own; the socket that it names lets nobody in.
   Method: a child enters and tries; its exit status is the number of the
   first thing that was not as wanted.  The driver is played (fake_cuda.c), in
   a mount namespace whose /dev has its nodes as files. */
#include "appliance/exec/sandbox.h"
#include "tests/unit/shell.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka wants the first two above */
#include <cmocka.h>

static int has_gpu;
static char folder[64], model[96], secret[96], elsewhere[96];

static void put(const char *path) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fputs("GGUF", f);
    (void)fclose(f);
}

static int setup(void **state) {
    (void)state;
    strcpy(folder, "/tmp/tdm-sandbox-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    (void)snprintf(model, sizeof model, "%s/model", folder);
    (void)snprintf(secret, sizeof secret, "%s/keys", folder);
    (void)snprintf(elsewhere, sizeof elsewhere, "%s/blob", folder);
    if (mkdir(model, 0755) != 0) return -1;
    put(secret);
    put(elsewhere);
    char path[160];
    (void)snprintf(path, sizeof path, "%s/config.json", model);
    put(path);
    (void)snprintf(path, sizeof path, "%s/linked.safetensors", model);
    return symlink("../blob", path);
}

static int teardown(void **state) {
    (void)state;
    has_gpu = 0;
    return shell("rm -rf '%s'", folder);
}

static tdm_sandbox_t in_force;

/* write_text: 0 where the file took it all. */
static int write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    ssize_t n = write(fd, text, strlen(text));
    (void)close(fd);
    return n == (ssize_t)strlen(text) ? 0 : -1;
}

/* A /dev of this process's own, with the nodes of one GPU and others. */
static int own_dev(void) {
    static const char *const node[] = {"null",
                                       "zero",
                                       "random",
                                       "urandom",
                                       "nvidiactl",
                                       "nvidia0",
                                       "nvidia-uvm",
                                       "nvidia-uvm-tools",
                                       "nvidia-caps/nvidia-cap1",
                                       "vfio/5",
                                       "shm/tandem.flight"};
    char path[64], map[64];
    uid_t uid = getuid();
    gid_t gid = getgid();
    if (unshare(uid ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS) != 0) return -1;
    (void)snprintf(map, sizeof map, "%u %u 1", uid, uid);
    if (uid && write_text("/proc/self/uid_map", map) != 0) return -1;
    (void)snprintf(map, sizeof map, "%u %u 1", gid, gid);
    if (uid && write_text("/proc/self/setgroups", "deny") != 0) return -1;
    if (uid && write_text("/proc/self/gid_map", map) != 0) return -1;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return -1;
    if (mount("dev", "/dev", "tmpfs", 0, "mode=0755") != 0) return -1;
    if (mkdir("/dev/nvidia-caps", 0755) || mkdir("/dev/vfio", 0755) || mkdir("/dev/shm", 0755))
        return -1;
    for (size_t i = 0; i < TDM_COUNT_OF(node); i++) {
        (void)snprintf(path, sizeof path, "/dev/%s", node[i]);
        if (write_text(path, "x") != 0 || truncate(path, 4096) != 0) return -1;
    }
    return setenv("LD_LIBRARY_PATH", FAKE_CUDA_DIR, 1) || setenv("HOME", folder, 1);
}

/* in_child runs what after entering; 0 is all well. */
static int in_child(int (*what)(void)) {
    pid_t pid = fork();
    if (pid == 0) {
        tdm_error_t err = {0};
        if (has_gpu && own_dev() != 0) _exit(77);
        if (tdm_sandbox_enter(model, has_gpu, &in_force, &err) != TDM_OK) _exit(99);
        if (!in_force.is_files || !in_force.is_calls) _exit(77);
        _exit(what());
    }
    int status = 0;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip(); /* a kernel without Landlock, or a host without namespaces */
    return WEXITSTATUS(status);
}

static int fails(int rc, int want) {
    return rc == -1 && errno == want;
}

static int opens(const char *path, int flags) {
    int fd = open(path, flags, 0600);
    if (fd >= 0) (void)close(fd);
    return fd >= 0 ? 0 : -1;
}

static int try_calls(void) {
    char *const argv[] = {"true", NULL};
    if (!fails(socket(AF_INET, SOCK_STREAM, 0), EPERM)) return 1;
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "/tmp/none"};
    int local = socket(AF_UNIX, SOCK_STREAM, 0);
    if (local < 0) return 9; /* it may be made, and finds nobody */
    if (!fails(connect(local, (struct sockaddr *)&at, sizeof at), EPERM)) return 2;
    if (!fails(socket(AF_NETLINK, SOCK_RAW, 0), EPERM)) return 8;
    if (!fails(execv("/usr/bin/true", argv), EPERM)) return 3;
    if (!fails(kill(getppid(), 0), EPERM)) return 4;
    if (!fails(kill(-1, 0), EPERM)) return 5;
    if (kill(getpid(), 0) != 0) return 6;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return 7;
    return 0;
}

/* A datagram carries its address: no connect is asked for. */
static int try_datagrams(void) {
    int pair[2];
    if (!fails(socket(AF_UNIX, SOCK_DGRAM, 0), EPERM)) return 1;
    if (!fails(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), EPERM)) return 2;
    if (!fails(socket(AF_UNIX, SOCK_RAW, 0), EPERM)) return 3; /* another name of it */
    if (!fails(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), EPERM)) return 4;
    if (!fails(socketpair(AF_UNIX, SOCK_RAW, 0, pair), EPERM)) return 5;
    if (!fails(socketpair(AF_TIPC, SOCK_STREAM, 0, pair), EPERM)) return 6;
    return socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 ? 0 : 7;
}

/* bound: rc and errno of a bind of a fresh local socket, abstract where the
   name begins with @; out is the socket. */
static int bound(const char *name, int type, int *out) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t n = strlen(name);
    memcpy(at.sun_path, name, n);
    if (*name == '@') at.sun_path[0] = 0;
    *out = socket(AF_UNIX, type | SOCK_NONBLOCK, 0);
    return *out < 0 ? -2
                    : bind(*out, (struct sockaddr *)&at,
                           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1));
}

static int try_binding(void) {
    int s;
    if (!fails(bound("@tdm-sandbox", SOCK_SEQPACKET, &s), EPERM)) return 1;
    return fails(listen(s, 1), EPERM) ? 0 : 2;
}

static int try_files(void) {
    char path[160];
    if (opens(secret, O_RDONLY) == 0 || errno != EACCES) return 1;
    if (opens("/etc/passwd", O_RDONLY) == 0) return 2;
    if (opens("/etc", O_RDONLY | O_DIRECTORY) == 0) return 3;
    (void)snprintf(path, sizeof path, "%s/new", folder);
    if (opens(path, O_WRONLY | O_CREAT) == 0) return 4;
    (void)snprintf(path, sizeof path, "%s/config.json", model);
    if (opens(path, O_RDONLY) != 0) return 5;
    if (opens(path, O_WRONLY) == 0) return 6;
    (void)snprintf(path, sizeof path, "%s/linked.safetensors", model);
    if (opens(path, O_RDONLY) != 0) return 7;
    (void)snprintf(path, sizeof path, "/proc/%d/mem", (int)getppid());
    if (opens(path, O_RDONLY) == 0) return 8;
    if (unlink(secret) == 0) return 9;
    if (opens("/dev/full", O_RDWR) == 0 || errno != EACCES) return 10; /* no node but those named */
    return 0;
}

static void *on_thread(void *arg) {
    *(int *)arg = fails(socket(AF_INET, SOCK_STREAM, 0), EPERM);
    return NULL;
}

static int try_work(void) {
    pthread_t t;
    int is_closed = 0, bell = eventfd(0, EFD_CLOEXEC);
    uint64_t one = 1;
    void *m = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED || bell < 0) return 1;
    if (write(bell, &one, sizeof one) != sizeof one) return 2;
    if (pthread_create(&t, NULL, on_thread, &is_closed) != 0 || pthread_join(t, NULL) != 0)
        return 3;
    if (!is_closed) return 4; /* threads that come later are held too */
    if (opens("/proc/meminfo", O_RDONLY) != 0) return 5;
    if (opens("/dev/null", O_RDWR) != 0) return 6;
    if (opens("/proc/self/comm", O_WRONLY) != 0) return 7;
    return 0;
}

static void calls_are_refused(void **state) {
    (void)state;
    assert_int_equal(in_child(try_calls), 0);
}

static void datagrams_are_refused(void **state) {
    (void)state;
    assert_int_equal(in_child(try_datagrams), 0);
}

static void a_socket_gets_no_name(void **state) {
    (void)state;
    assert_int_equal(in_child(try_binding), 0);
}

static void files_are_out_of_reach(void **state) {
    (void)state;
    assert_int_equal(in_child(try_files), 0);
    assert_int_equal(access(secret, F_OK), 0);
}

static void an_executor_can_work(void **state) {
    (void)state;
    assert_int_equal(in_child(try_work), 0);
}

static int try_driver(void) {
    void *driver = dlopen(FAKE_CUDA_DIR "/libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = NULL;
    if (!driver) return 90;
    *(void **)&init = dlsym(driver, "cuInit");
    return init ? init(0) : 91;
}

static int try_other_nodes(void) {
    if (opens("/dev/nvidiactl", O_RDWR) != 0) return 1;
    if (opens("/dev/vfio/5", O_RDWR) == 0 || errno != EACCES) return 2;
    if (opens("/dev/shm/tandem.flight", O_RDONLY) == 0 || errno != EACCES) return 3;
    if (opens("/dev/nvidia1", O_RDWR | O_CREAT) == 0) return 4;
    if (opens(secret, O_RDONLY) == 0) return 5;
    return try_calls() ? 6 : 0;
}

/* The driver's socket has a name, and nobody comes in. */
static int try_visitors(void) {
    char name[64], path[96];
    int s, t;
    (void)snprintf(name, sizeof name, "@cuda-uvmfd-%u-%d", 4026531836u, (int)getpid());
    if (bound(name, SOCK_SEQPACKET, &s) != 0) return 1;
    if (listen(s, 128) != 0) return 2;
    if (!fails(accept(s, NULL, NULL), EPERM)) return 3; /* else EAGAIN */
    if (!fails(accept4(s, NULL, NULL, SOCK_CLOEXEC), EPERM)) return 4;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    socklen_t n = sizeof at;
    if (getsockname(s, (struct sockaddr *)&at, &n) != 0) return 5;
    t = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (!fails(connect(t, (struct sockaddr *)&at, n), EPERM)) return 6;
    (void)snprintf(path, sizeof path, "%s/door", folder);
    if (!fails(bound(path, SOCK_SEQPACKET, &t), EACCES)) return 7; /* Landlock */
    return try_datagrams() ? 8 : 0;
}

static void nobody_comes_in_by_the_drivers_socket(void **state) {
    (void)state;
    has_gpu = 1;
    assert_int_equal(in_child(try_visitors), 0);
}

static void a_gpus_driver_works_inside(void **state) {
    (void)state;
    has_gpu = 1;
    assert_int_equal(in_child(try_driver), 0);
}

static void a_gpus_driver_has_no_node_but_its_own(void **state) {
    (void)state;
    has_gpu = 1;
    assert_int_equal(in_child(try_other_nodes), 0);
}

static void a_model_that_is_not_there_is_no_error(void **state) {
    (void)state;
    strcpy(model, "dummy:tiny");
    assert_int_equal(in_child(try_work), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(datagrams_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_socket_gets_no_name, setup, teardown),
        cmocka_unit_test_setup_teardown(files_are_out_of_reach, setup, teardown),
        cmocka_unit_test_setup_teardown(an_executor_can_work, setup, teardown),
        cmocka_unit_test_setup_teardown(a_gpus_driver_works_inside, setup, teardown),
        cmocka_unit_test_setup_teardown(nobody_comes_in_by_the_drivers_socket, setup, teardown),
        cmocka_unit_test_setup_teardown(a_gpus_driver_has_no_node_but_its_own, setup, teardown),
        cmocka_unit_test_setup_teardown(a_model_that_is_not_there_is_no_error, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
