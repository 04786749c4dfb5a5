/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/complete.h"

#include "appliance/ctl/options.h"
#include "appliance/ctl/show.h"

#include <string.h>

/* shared writes the names of the options that commands share and c uses. */
static void shared(const tdm_ctl_command_t *c, FILE *f) {
    int has_form = 0;
    for (uint32_t i = 0; i < TDM_CTL_OPTION_CNT; i++) {
        int is_form = i == TDM_CTL_JSON || i == TDM_CTL_FORMS;
        if (!(c->uses >> i & 1u)) continue;
        if (is_form && !has_form) (void)fprintf(f, " -o");
        if (i != TDM_CTL_FORMS) (void)fprintf(f, " %s", tdm_ctl_option_name((tdm_ctl_option_t)i));
        has_form |= is_form;
    }
}

/* is_but says whether c's help names an option as what it takes not: between
   "'s own but" and the next semicolon. */
static int is_but(const tdm_ctl_command_t *c, const char *option, size_t sz) {
    const char *at = strstr(c->help, "'s own but "), *end = at ? strchr(at, ';') : NULL;
    for (; end && (at = strstr(at, "--")) && at < end; at++)
        if (strncmp(at, option, sz) == 0 && strchr(" ;\n", at[sz])) return 1;
    return 0;
}

/* own writes the options that a command reads itself, as help names them, and
   that c takes. */
static void own(const tdm_ctl_command_t *of, const tdm_ctl_command_t *c, FILE *f) {
    for (const char *at = of->run ? of->help : ""; (at = strstr(at, "--"));) {
        size_t n = strspn(at, "-abcdefghijklmnopqrstuvwxyz");
        if (!is_but(c, at, n)) (void)fprintf(f, " %.*s", (int)n, at);
        at += n;
    }
}

/* options writes all of c's; where its help says "NAME's own", those of that
   one of command[cnt] too, but for those that it names. */
static void options(const tdm_ctl_command_t *c, const tdm_ctl_command_t *command, size_t cnt,
                    FILE *f) {
    shared(c, f);
    own(c, c, f);
    for (size_t i = 0; i < cnt; i++) {
        char words[32];
        (void)snprintf(words, sizeof words, "%s's own", command[i].name);
        if (strstr(c->help, words)) own(&command[i], c, f);
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
    (void)fprintf(
        f, "# bash completion for tandemctl: source <(tandemctl completion bash)\n"
           "_tandemctl() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} words\n"
           "    case ${COMP_WORDS[COMP_CWORD-1]} in\n"
           "    -o) COMPREPLY=($(compgen -W 'table json yaml prom' -- \"$cur\")); return ;;\n"
           "    --socket|--certificate|--out|--config|--flight|--trace|--profile|--html|--records|"
           "--planned|--plan) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n"
           "    esac\n"
           "    if [[ $COMP_CWORD -eq 1 ]]; then words='");
    for (size_t i = 0; i < cnt; i++) (void)fprintf(f, "%s%s", i ? " " : "", command[i].name);
    (void)fprintf(f, "'\n    elif [[ $cur == -* ]]; then case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; i < cnt; i++) {
        (void)fprintf(f, "        %s) words='", command[i].name);
        options(&command[i], command, cnt, f);
        (void)fprintf(f, "' ;;\n");
    }
    (void)fprintf(f, "    esac\n    else case ${COMP_WORDS[1]} in\n");
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
