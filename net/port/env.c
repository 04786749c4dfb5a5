/* SPDX-License-Identifier: Apache-2.0 */
#include "net/port/port_private.h"

#include "appliance/base/arena.h"
#include "appliance/base/size.h"

#include <inttypes.h>
#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB (1024u * 1024u)
/* EAL's own tables, device queues and the pool's ring, with room to
   spare: about 6 MiB were seen with one TAP and 8191 buffers. */
#define ENV_OWN_MIB 16u
/* Object header, trailer and alignment that rte_mempool adds to each
   buffer, and its slot in the free ring. */
#define MBUF_OVERHEAD_SZ 256u

uint32_t tdm_port_memory_mb(uint32_t mbuf_cnt, uint16_t mtu) {
    uint64_t each =
        sizeof(struct rte_mbuf) + TDM_PORT_HEADROOM + port_frame_room(mtu) + MBUF_OVERHEAD_SZ;
    return (uint32_t)tdm_ceil_div(mbuf_cnt * each, MIB) + ENV_OWN_MIB;
}

/* hugepages_check refuses before EAL has a chance to fail at length. */
static tdm_status_t hugepages_check(uint32_t memory_mb, tdm_error_t *err) {
    uint64_t page_sz, total_cnt, free_cnt;
    tdm_hugepages_read(&page_sz, &total_cnt, &free_cnt);
    if (page_sz == 0)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "hugepages: this kernel has none; run with ordinary pages (no_huge)");
    uint64_t need_cnt = tdm_ceil_div((uint64_t)memory_mb * MIB, page_sz);
    if (free_cnt >= need_cnt) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_NOMEM,
                         "hugepages: have %" PRIu64 " free of %" PRIu64 ", need %" PRIu64
                         " of %" PRIu64 " KiB for packets; sysctl -w vm.nr_hugepages=%" PRIu64,
                         free_cnt, total_cnt, need_cnt, page_sz / 1024,
                         total_cnt - free_cnt + need_cnt);
}

static uint32_t first_cpu(const cpu_set_t *set) {
    for (uint32_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, set)) return i;
    return 0;
}

tdm_status_t tdm_port_env_start(const tdm_port_env_config_t *config, tdm_error_t *err) {
    if (config->memory_mb == 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "packets: memory of 0 MiB");
    if (!config->is_no_huge) {
        tdm_status_t st = hugepages_check(config->memory_mb, err);
        if (st != TDM_OK) return st;
    }

    /* EAL binds the calling thread to its first lcore; boot decides who
       runs where, so the old affinity comes back afterwards. */
    cpu_set_t before;
    if (pthread_getaffinity_np(pthread_self(), sizeof before, &before) != 0) CPU_ZERO(&before);
    char prefix[80], memory[16], cpu[16];
    snprintf(prefix, sizeof prefix, "--file-prefix=%.60s",
             config->file_prefix != NULL ? config->file_prefix : "tandem");
    snprintf(memory, sizeof memory, "%u", config->memory_mb);
    snprintf(cpu, sizeof cpu, "%u", first_cpu(&before));

    char program[] = "tandem", no_pci[] = "--no-pci", va[] = "--iova-mode=va";
    char allow[48];
    snprintf(allow, sizeof allow, "--allow=%.32s", config->pci != NULL ? config->pci : "");
    char no_telemetry[] = "--no-telemetry", telemetry[] = "--telemetry", lcore[] = "-l", m[] = "-m";
    char pages_huge[] = "--in-memory", pages_plain[] = "--no-huge";
    char no_shconf[] = "--no-shconf";
    char quiet[] = "--log-level=*:error", loud[] = "--log-level=*:info";
    char driver_folder[] = "-d", drivers[256];
    snprintf(drivers, sizeof drivers, "%s", config->drivers != NULL ? config->drivers : "");
    char *argv[] = {program,
                    config->is_no_huge ? pages_plain : pages_huge,
                    m,
                    memory,
                    lcore,
                    cpu,
                    config->pci != NULL ? allow : no_pci,
                    config->is_told ? telemetry : no_telemetry,
                    no_shconf,
                    prefix,
                    config->is_debug ? loud : quiet,
                    NULL, /* the rest where wanted */
                    NULL,
                    NULL,
                    NULL};
    int argc = (int)TDM_COUNT_OF(argv) - 4;
    /* With a PCI device EAL chooses the addresses: vfio-pci takes virtual
       ones, uio needs physical ones. */
    if (config->pci == NULL) argv[argc++] = va;
    if (config->drivers != NULL) {
        argv[argc++] = driver_folder;
        argv[argc++] = drivers;
    }
    if (!config->is_debug) rte_log_set_global_level(RTE_LOG_ERR);
    /* The TAP driver learns of frames by a real-time signal to the process
       (DPDK tap_intr: SIGIO's successor through F_SETSIG).  EAL's own
       thread inherits this mask, so one thread takes the signal however
       strictly boot blocks it elsewhere. */
    sigset_t real_time, mask_before;
    sigemptyset(&real_time);
    for (int i = SIGRTMIN; i <= SIGRTMAX; i++) sigaddset(&real_time, i);
    pthread_sigmask(SIG_UNBLOCK, &real_time, &mask_before);
    int rc = rte_eal_init(argc, argv);
    pthread_sigmask(SIG_SETMASK, &mask_before, NULL);
    pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    if (rc < 0)
        return tdm_error_set(err, TDM_ERR_IO,
                             "DPDK environment: %s (network log level debug says more)",
                             rte_strerror(rte_errno));
    /* The TAP driver calls an error what it then does without: a queueing
       discipline for flow rules, secondary processes. */
    if (!config->is_debug) rte_log_set_level_pattern("pmd.net.tap", RTE_LOG_CRIT);
    return TDM_OK;
}

void tdm_port_env_stop(void) {
    char dir[256];
    snprintf(dir, sizeof dir, "%s", rte_eal_get_runtime_dir());
    rte_eal_cleanup();
    (void)rmdir(dir); /* EAL makes it even where it shares nothing */
}
