# bash completion for megatrain: commands, each one's options as its --help lists them, and files.
_megatrain()
{
    local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$("$program" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p')" -- "$word")
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("$program" "$command" --help 2>/dev/null | sed -n 's/^  --\[no-\]\([a-z0-9-]*\).*/--\1\n--no-\1/p; s/^  \(--[a-z][a-z0-9-]*\).*/\1/p') --help" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
complete -o filenames -F _megatrain megatrain
