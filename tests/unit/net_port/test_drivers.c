/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: DPDK's drivers are taken from the folder that is named, and a folder
   that is not there is an error and no silent default.  Method: EAL starts
   once a process, so each try is a child. */
#include "net/port/port.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int start_with(const char *drivers) {
    pid_t pid = fork();
    if (pid == 0) {
        tdm_error_t err = {0};
        tdm_port_env_config_t env = {.memory_mb = tdm_port_memory_mb(1024, 1500),
                                     .is_no_huge = 1,
                                     .file_prefix = "tandem-drivers",
                                     .drivers = drivers};
        tdm_status_t st = tdm_port_env_start(&env, &err);
        if (st == TDM_OK) tdm_port_env_stop();
        _exit((int)st);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_folder_that_is_missing_is_an_error(void **state) {
    (void)state;
    assert_int_equal(start_with("/nonexistent/drivers"), TDM_ERR_IO);
}

static void a_folder_of_drivers_is_taken(void **state) {
    (void)state;
    glob_t found = {0};
    if (glob("/usr/lib/*/dpdk/pmds-*", GLOB_ONLYDIR, NULL, &found) != 0) skip();
    assert_int_equal(start_with(found.gl_pathv[0]), TDM_OK);
    globfree(&found);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_that_is_missing_is_an_error),
        cmocka_unit_test(a_folder_of_drivers_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
