/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/complete.h"

#include "appliance/ctl/options.h"
#include "appliance/ctl/show.h"

#include <string.h>

/* options writes the names of the options that the help names. */
static void options(FILE *f) {
    for (const char *at = tdm_ctl_options_help(); (at = strstr(at, "  --")); at++) {
        size_t n = strcspn(at + 2, " ,\n");
        (void)fprintf(f, " %.*s", (int)n, at + 2);
        at += n;
    }
}

static void verbs(const tdm_ctl_command_t *c, FILE *f) {
    if (strcmp(c->verbs, "show") != 0) {
        (void)fprintf(f, "%s", c->verbs);
        return;
    }
    const char *word;
    for (size_t i = 0; (word = tdm_show_word(i)); i++) (void)fprintf(f, "%s%s", i ? " " : "", word);
}

void tdm_ctl_complete(const tdm_ctl_command_t *command, size_t cnt, FILE *f) {
    (void)fprintf(f, "# bash completion for tandemctl: source <(tandemctl completion bash)\n"
                     "_tandemctl() {\n"
                     "    local cur=${COMP_WORDS[COMP_CWORD]} words\n"
                     "    case ${COMP_WORDS[COMP_CWORD-1]} in\n"
                     "    -o) COMPREPLY=($(compgen -W 'table json' -- \"$cur\")); return ;;\n"
                     "    --socket|--certificate|--out|--config|--flight) "
                     "COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n"
                     "    esac\n"
                     "    if [[ $COMP_CWORD -eq 1 ]]; then words='");
    for (size_t i = 0; i < cnt; i++) (void)fprintf(f, "%s%s", i ? " " : "", command[i].name);
    (void)fprintf(f, "'\n    elif [[ $cur == -* ]]; then words='-o");
    options(f);
    (void)fprintf(f, "'\n    else case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; i < cnt; i++) {
        if (!command[i].verbs[0]) continue;
        (void)fprintf(f, "        %s) words='", command[i].name);
        verbs(&command[i], f);
        (void)fprintf(f, "' ;;\n");
    }
    (void)fprintf(f, "    esac; fi\n"
                     "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                     "}\n"
                     "complete -o default -F _tandemctl tandemctl\n");
}
