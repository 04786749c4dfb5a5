/* SPDX-License-Identifier: Apache-2.0 */
/* Who is "this machine".  A loopback peer may be a browser that shows a page
   of somebody else: the page's own origin (a name of its maker's that leads
   to 127.0.0.1 by now, DNS rebinding), or another origin that sends us what
   needs no leave.  Both are told by names that a browser lets no page
   choose: the Host of a request (RFC 9110 section 7.2) and its Origin
   (RFC 6454 section 7.3). */
#include "net/http1/http1_private.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

static int is_equal(const char *a, size_t a_sz, const char *b, size_t b_sz) {
    return a_sz == b_sz && strncasecmp(a, b, a_sz) == 0;
}

/* is_literal: an address leads where it says, whoever wrote it. */
static int is_literal(const char *name, size_t sz) {
    char text[INET6_ADDRSTRLEN];
    struct in6_addr addr;
    int is_v6 = sz >= 2 && name[0] == '[' && name[sz - 1] == ']';
    if (is_v6) {
        name++;
        sz -= 2;
    }
    if (sz >= sizeof text) return 0;
    memcpy(text, name, sz);
    text[sz] = '\0';
    return inet_pton(is_v6 ? AF_INET6 : AF_INET, text, &addr) == 1;
}

/* is_localhost: RFC 6761 section 6.3. */
static int is_localhost(const char *name, size_t sz) {
    static const char top[] = "localhost";
    size_t top_sz = sizeof top - 1;
    if (sz < top_sz || !is_equal(name + sz - top_sz, top_sz, top, top_sz)) return 0;
    return sz == top_sz || name[sz - top_sz - 1] == '.';
}

static int is_listed(const char *list, const char *name, size_t sz) {
    while (*list) {
        size_t n = strcspn(list, ",");
        if (is_equal(list, n, name, sz)) return 1;
        list += n + (list[n] == ',');
    }
    return 0;
}

/* is_own says whether host, "name" or "name:port", is of this machine. */
static int is_own(const tdm_http1_t *d, const char *host) {
    size_t sz = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    if (sz > strlen(host)) return 0; /* a bracket is open */
    if (host[sz] != '\0' &&
        (host[sz] != ':' || strspn(host + sz + 1, "0123456789") != strlen(host + sz + 1)))
        return 0;
    if (is_literal(host, sz)) return 1;
    if (sz > 1 && host[sz - 1] == '.') sz--;
    return is_localhost(host, sz) || is_equal(host, sz, d->name, strlen(d->name)) ||
           is_listed(d->hosts, host, sz);
}

int tdm_http1_is_named(const tdm_http1_t *d, const char *host, const char *origin) {
    if (host[0] && !is_own(d, host)) return 0;
    if (!origin[0]) return 1;
    if (strncasecmp(origin, "http://", 7) == 0) return is_own(d, origin + 7);
    if (strncasecmp(origin, "https://", 8) == 0) return is_own(d, origin + 8);
    /* Programs with pages of their own (app://, vscode-webview://): no page of
       the web gets such an origin.  "null" any page gets that asks for it. */
    return strstr(origin, "://") != NULL;
}

tdm_status_t tdm_http1_names_take(tdm_http1_t *d, const char *hosts, const char *name,
                                  tdm_error_t *err) {
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    size_t name_sz = strlen(name);
    if (name_sz && name[name_sz - 1] == '.') name_sz--;
    memcpy(d->name, name, TDM_MIN(name_sz, sizeof d->name - 1));
    if (strlen(hosts) >= sizeof d->hosts)
        return tdm_error_set(err, TDM_ERR_LIMIT, "http1: hosts are over %zu bytes",
                             sizeof d->hosts - 1);
    size_t out = 0;
    while (*hosts) {
        size_t skip = strspn(hosts, ", ");
        size_t n = strcspn(hosts += skip, ", ");
        if (strspn(hosts, good) < n)
            return tdm_error_set(err, TDM_ERR_INVAL,
                                 "http1: hosts: \"%.*s\" is no name; without scheme and port, "
                                 "a,b",
                                 (int)n, hosts);
        size_t kept = n > 1 && hosts[n - 1] == '.' ? n - 1 : n;
        if (kept && out) d->hosts[out++] = ',';
        memcpy(d->hosts + out, hosts, kept);
        out += kept;
        hosts += n;
    }
    return TDM_OK;
}
