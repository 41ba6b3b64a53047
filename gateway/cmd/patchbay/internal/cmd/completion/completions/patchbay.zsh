#compdef patchbay
# zsh completion of patchbay. It evaluates nothing.

_patchbay() {
    local out directive entry
    local -a lines values shown space
    out=$("${(Q)words[1]}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null) || return 1
    lines=("${(@f)out}")
    directive=${lines[-1]#:}
    [[ $directive == <-> ]] || return 1
    lines[-1]=()
    for entry in $lines; do
        values+=("${entry%%$'\t'*}")
        if [[ $entry == *$'\t'* ]]; then
            shown+=("${entry%%$'\t'*} -- ${entry#*$'\t'}")
        else
            shown+=("$entry")
        fi
    done
    if (( directive & 16 )); then
        _files -/
        return
    fi
    (( directive & 2 )) && space=(-S '')
    [[ ${words[CURRENT]} == -*=* ]] && compset -P '*='
    if (( $#values )); then
        compadd "${space[@]}" -l -d shown -- "${values[@]}"
    elif (( ! (directive & 4) )); then
        _files
    fi
}

if [[ $funcstack[1] == _patchbay ]]; then
    _patchbay "$@"
else
    compdef _patchbay patchbay
fi
