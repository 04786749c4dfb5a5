/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_API_MEDIA_H
#define TDM_API_MEDIA_H

/* What a request says its body is.  Only JSON as it is gets read: who sends
   another type, or a coding, is told so by name instead of a complaint about
   bytes that it never wrote. */

#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

/* tdm_media_is_json: a Content-Type names JSON; none counts as JSON. */
int tdm_media_is_json(const char *content_type);

/* tdm_media_is_plain: a Content-Encoding leaves the body as it is: none, or
   a list of nothing but "identity" (RFC 9110 sections 8.4 and 12.5.3). */
int tdm_media_is_plain(const char *content_encoding);

/* What a coded body is answered with, beside unsupported_media_type. */
#define TDM_MEDIA_CODED "the body must come without Content-Encoding"

TDM_END_DECLS

#endif /* TDM_API_MEDIA_H */
