/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_FILE_H
#define TDM_TELEMETRY_FILE_H

/* The flight recorder as a mapped file, so that it is still there when the
   process that wrote it is not.  The file should lie where writing it back
   costs nothing: /dev/shm, or a hugetlbfs mount (the size is then rounded
   up to its pages; on /dev/shm hugepages are asked for and used where the
   system gives them).

   One process writes a file at a time; a lock that ends with the process
   says so.  What an earlier life left is kept beside it as PATH.last.

   Where all may write, anybody can put something in its place before the
   appliance starts or after it is gone.  Writer and reader alike take a
   plain file with one name and no other; in a folder that all may write
   (which must be sticky) only one of root, of themselves or of the unit's
   user (TDM_FLIGHT_USER) that nobody else may write. */

#include "telemetry/flight/flight.h"

TDM_BEGIN_DECLS

#define TDM_FLIGHT_USER "tandem"

typedef struct tdm_flight_file {
    void *mem; /* NULL: none */
    uint64_t sz;
    uint64_t page_sz; /* of the file system */
    int fd;           /* -1: none; holds the lock of a writer */
} tdm_flight_file_t;

/* tdm_flight_create makes path anew, maps and touches all of it, and
   formats it.  TDM_ERR_FULL: another process writes it.  TDM_ERR_PERM:
   what is there is not to be trusted; it stays as it is.  Boot time only. */
TDM_MUST_USE tdm_status_t tdm_flight_create(tdm_flight_file_t *f, const char *path,
                                            const tdm_flight_sizes_t *sizes, const char *version,
                                            const char *model, int64_t start_ns,
                                            int64_t wall_offset_ns, tdm_error_t *err);

/* tdm_flight_open maps path for reading and checks it.  TDM_ERR_PERM as
   above. */
TDM_MUST_USE tdm_status_t tdm_flight_open(tdm_flight_file_t *f, const char *path,
                                          const char *version, tdm_error_t *err);

/* tdm_flight_close unmaps; the file stays.  A zeroed struct with fd -1 is
   allowed. */
void tdm_flight_close(tdm_flight_file_t *f);

TDM_END_DECLS

#endif /* TDM_TELEMETRY_FILE_H */
