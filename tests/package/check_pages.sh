#!/bin/sh
# What an installation has for shells and man: a page a command, each option of --help-all in it, nothing
# that roff does not understand, and completions that complete.
#
# usage: check_pages.sh PREFIX
set -eu
sluice=$1/bin/sluice
share=$1/share

fail()
{
    echo "check_pages.sh: $*" >&2
    exit 1
}

commands=$("$sluice" help | sed -n '/^ Help:/q; s/^  \([a-z]*\) .*/\1/p')
[ -n "$commands" ] || fail "help lists no commands"
for command in $commands; do
    page=$share/man/man1/sluice-$command.1
    [ -s "$page" ] || fail "$page is missing"
    options=$("$sluice" "$command" --help-all | sed -n 's/^\(  -., \|      \)--\([a-z0-9-]*\)\(=.*\|  .*\|\)$/\2/p')
    [ -n "$options" ] || fail "$command has no options"
    for option in $options; do
        sed 's/\\//g' "$page" | grep -q -e "^\.B \(-., \)\{0,1\}--$option\( \|\$\)" ||
            fail "--$option of $command is not in its manual page"
    done
done
if command -v groff > /dev/null; then
    groff -man -ww -z "$share"/man/man1/sluice*.1 2>&1 | grep . && fail "roff complains"
fi
if command -v zsh > /dev/null; then
    zsh -n "$share/zsh/site-functions/_sluice" || fail "zsh does not read its completion"
fi
fish=$share/fish/vendor_completions.d/sluice.fish
[ -s "$fish" ] || fail "$fish is missing"
if command -v fish > /dev/null; then
    fish -n "$fish" || fail "fish does not read its completion"
fi

# complete_bash ANSWER WORD...: what bash answers to the last word.
complete_bash()
{
    answer=$1
    shift
    # shellcheck disable=SC2016 # for bash
    said=$(bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sluice; echo "${COMPREPLY[*]}"' \
        "$share/bash-completion/completions/sluice" "$@") || fail "bash does not run its completion"
    [ "$said" = "$answer" ] || fail "bash completes \"$*\" by \"$said\", not \"$answer\""
}
complete_bash 'train tokenize' sluice t
complete_bash '--policy' sluice train --pol
complete_bash 'nvme' sluice train --policy nv
complete_bash 'nvme' sluice train --policy = nv
complete_bash 'q8_0' sluice convert --type q
complete_bash '--offload-params --offload-grads --offload-optimizer --offload-activations --offload-updates' \
    sluice plan --offload
complete_bash '' sluice train --lr ''
complete_bash 'policies' sluice help pol
