# bash completion for megatrain: commands, each one's options as its --help-all lists them, the values of options that have a
# list of them, and files.
_megatrain()
{
    local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} before=${COMP_WORDS[COMP_CWORD-1]} values
    # bash splits --option=value into three words
    if [[ $word == = ]]; then word=
    elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD-2]}
    fi
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$("$program" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p')" -- "$word")
        return
    fi
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("$program" "$command" --help-all 2>/dev/null | sed -n 's/^  --\[no-\]\([a-z0-9-]*\).*/--\1\n--no-\1/p; s/^  \(--[a-z][a-z0-9-]*\).*/\1/p') --quiet --verbose --help --help-all" -- "$word")
        return
    fi
    [[ $before == --* ]] && values=$("$program" --complete "$before" 2>/dev/null)
    if [ -n "$values" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
complete -o filenames -F _megatrain megatrain
