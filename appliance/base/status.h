/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_STATUS_H
#define TDM_BASE_STATUS_H

/* tdm_status_t answers boot and control calls; tdm_error_t adds the one
   sentence an operator reads.  Data-path events (a dropped packet, a
   refused request) are never a status: they are a reason of
   appliance/abi/reasons.def with a counter. */

#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

typedef enum tdm_status {
    TDM_OK = 0,
    TDM_ERR_INVAL,       /* an argument or a configured value is wrong */
    TDM_ERR_NOMEM,       /* memory, or hugepages, are missing */
    TDM_ERR_FULL,        /* a bounded container has no room */
    TDM_ERR_EMPTY,       /* nothing there yet */
    TDM_ERR_IO,          /* the operating system refused; errno text in the error */
    TDM_ERR_NOT_FOUND,   /* no such file, key, device or name */
    TDM_ERR_UNSUPPORTED, /* well formed, and not implemented: named in the error */
    TDM_ERR_LIMIT,       /* over a stated bound */
    TDM_ERR_CORRUPT,     /* a file or message contradicts itself */
    TDM_ERR_TIMEOUT,     /* a bounded wait ran out */
    TDM_ERR_CLOSED,      /* the other side is gone */
    TDM_ERR_PERM,        /* needs a privilege this process lacks */
    TDM_ERR_INTERNAL,    /* should not happen */
    TDM_STATUS_CNT
} tdm_status_t;

/* tdm_status_name gives the lower-case name, "ok", "inval", ...; never
   NULL, "unknown" outside the enum. */
const char *tdm_status_name(tdm_status_t status);

/* tdm_error_t carries a status and its sentence from where it was found
   to where it is printed once.  Zero-initialised means no error. */
typedef struct tdm_error {
    tdm_status_t status;
    char text[240]; /* no newline; cut, never overrun */
} tdm_error_t;

/* tdm_error_set fills err (NULL is allowed) and returns status, so that a
   guard is one line: return tdm_error_set(err, TDM_ERR_INVAL, "...").
   Non-printable bytes in the text are replaced by '?'. */
tdm_status_t tdm_error_set(tdm_error_t *err, tdm_status_t status, const char *fmt, ...)
    TDM_PRINTF(3, 4);

TDM_END_DECLS

#endif /* TDM_BASE_STATUS_H */
