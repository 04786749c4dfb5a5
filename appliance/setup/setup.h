/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SETUP_SETUP_H
#define TDM_SETUP_SETUP_H

/* tdm_setup_t is appliance.json: the one file that makes a machine an
   appliance.  From it follow kernel arguments, the management network, the
   data NIC's driver, which processors are whose, keys, and tandem.json.

     appliance.json --parse--> tdm_setup_t --render--> files of /run
                                           --kernel--> command line

   Rendering is pure: the same file and facts always give the same texts,
   so that first boot can write them anew at each boot and doctor can hold
   a machine against them.  Nothing is written to /etc: the root may be
   read-only.

   The file is an object of sections, each an object of keys (setup.def),
   and three parts more:

     keys.api    ["tenant sha256", ...]   lines of api.keys_file
     keys.admin  ["name sha256", ...]     lines of control.admin_keys_file
     serve       {...}                    sections of tandem.json: model,
                                          classes, promises, bounds

   serve may not hold what other parts decide (port.kind, tile.cpus, the
   paths of keys and certificate ...).  Unknown keys, wrong types and texts
   that are no address, list or name are refused by name; what is refused
   is refused whole.  The file may come from anybody who can plug a stick:
   no text of it reaches a rendered file but through the check of its kind,
   or as a JSON string. */

#include "appliance/base/status.h"

#define TDM_SETUP_FILE_MAX  262144u /* bytes of appliance.json */
#define TDM_SETUP_KEYS_SZ   32768u  /* bytes of a list of keys, as lines */
#define TDM_SETUP_SERVE_SZ  65536u  /* bytes of serve, as compact JSON */
#define TDM_SETUP_RENDER_SZ 131072u /* bytes of the longest rendered file */

/* Kinds of text, and what they take. */
typedef enum tdm_setup_kind {
    TDM_SETUP_HOST,     /* a DNS label: letters, digits and inner dashes */
    TDM_SETUP_CPUS,     /* a list of processors, "0-1,4" */
    TDM_SETUP_NIC,      /* an interface's name, a PCI or a MAC address */
    TDM_SETUP_PCI,      /* a PCI address, "0000:05:00.0" */
    TDM_SETUP_NET,      /* an address of either family with /prefix */
    TDM_SETUP_NET4,     /* the same, IPv4 */
    TDM_SETUP_NET6,     /* the same, IPv6 */
    TDM_SETUP_ADDRESS,  /* an address of either family */
    TDM_SETUP_ADDRESS4, /* the same, IPv4 */
    TDM_SETUP_ADDRESS6, /* the same, IPv6 */
    TDM_SETUP_KIND_CNT
} tdm_setup_kind_t;

#define TDM_SETUP_STR(section, key, bytes, kind, help) char section##_##key[bytes];
#define TDM_SETUP_U64(section, key, max, help)         uint64_t section##_##key;
#define TDM_SETUP_ENUM(section, key, values, help)     uint32_t section##_##key;
typedef struct tdm_setup {
#include "appliance/setup/setup.def"
    char keys_api[TDM_SETUP_KEYS_SZ]; /* lines; empty: none given */
    char keys_admin[TDM_SETUP_KEYS_SZ];
    char serve[TDM_SETUP_SERVE_SZ]; /* JSON object */
} tdm_setup_t;
#undef TDM_SETUP_STR
#undef TDM_SETUP_U64
#undef TDM_SETUP_ENUM

/* What a rendering needs to know of the machine. */
typedef struct tdm_setup_facts {
    char machine_id[33];     /* 32 hex digits */
    uint32_t is_certificate; /* the operator gave certificate.pem and key.pem */
    char made_key[80];       /* line of the key that first boot made; empty: one was given */
    char local_key[80];      /* line of this boot's key for what runs on the machine itself */
} tdm_setup_facts_t;

/* Where things lie. */
#define TDM_SETUP_STATE "/var/lib/tandem-appliance" /* accepted files, machine id, made key */
#define TDM_SETUP_OWN   2u                          /* keys beside those given: made and local */
#define TDM_SETUP_RUN   "/run/tandem-appliance"     /* rendered at each boot */

/* tdm_setup_parse reads a file's text, sz bytes; name stands in the
   sentence of an error.  On an error out is not to be used.  out is large:
   not for the stack of a thread. */
TDM_MUST_USE tdm_status_t tdm_setup_parse(tdm_setup_t *out, const char *text, uint64_t sz,
                                          const char *name, tdm_error_t *err);

/* tdm_setup_hostname gives the name given, or the one made of the id. */
void tdm_setup_hostname(const tdm_setup_t *s, const tdm_setup_facts_t *facts, char out[64]);

/* tdm_setup_kernel writes the kernel arguments, by spaces, into buf and
   returns the bytes needed, as snprintf does. */
size_t tdm_setup_kernel(const tdm_setup_t *s, char *buf, size_t buf_sz);

/* tdm_setup_put_t is given one rendered file: its absolute path, whether
   tandemd alone may read it (root:tandem 0640, else 0644), and its text.
   What it answers but TDM_OK ends the rendering. */
typedef tdm_status_t (*tdm_setup_put_t)(void *context, const char *path, int is_private,
                                        const char *text, tdm_error_t *err);

/* tdm_setup_render gives every file to put, in an order that is always the
   same.  Not from two threads at once: it composes in one buffer. */
TDM_MUST_USE tdm_status_t tdm_setup_render(const tdm_setup_t *s, const tdm_setup_facts_t *facts,
                                           tdm_setup_put_t put, void *context, tdm_error_t *err);

/* tdm_setup_help writes a line per key, and the line that explains it. */
size_t tdm_setup_help(char *buf, size_t buf_sz);

#endif /* TDM_SETUP_SETUP_H */
