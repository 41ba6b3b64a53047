# bash completion of patchbay, for bash 3.2 and later. It needs no other package, and evaluates nothing.

_patchbay() {
    local line=${COMP_LINE:0:COMP_POINT} word i n glued directive=0 prefix entry out
    local words=() candidates=()

    # Bash splits words at = and : too. Join those that belong together.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        glued=0
        [[ ${#words[@]} -gt 0 && $line != [[:space:]]* ]] && glued=1
        line=${line#"${line%%[![:space:]]*}"}
        ((i == COMP_CWORD)) && word=$line
        line=${line#"$word"}
        n=${#words[@]}
        if ((glued)); then
            words[n - 1]=${words[n - 1]}$word
        else
            words[n]=$word
        fi
    done
    for ((i = 1; i < ${#words[@]} - 1; i++)); do
        case ${words[i]} in
        \'*\' | \"*\") words[i]=${words[i]:1:${#words[i]}-2} ;;
        esac
    done
    word=${words[${#words[@]} - 1]}

    out=$("${words[0]}" __completeNoDesc "${words[@]:1}" 2>/dev/null) || return 0
    while IFS= read -r entry; do
        candidates[${#candidates[@]}]=$entry
    done <<<"$out"
    n=$((${#candidates[@]} - 1))
    directive=${candidates[n]#:}
    unset "candidates[n]"
    [[ $directive =~ ^[0-9]+$ ]] || return 0

    if ((directive & 16)); then
        while IFS= read -r entry; do
            COMPREPLY[${#COMPREPLY[@]}]=$entry
        done < <(compgen -d -- "$word")
        compopt -o filenames 2>/dev/null
        return 0
    fi
    ((directive & 4)) && compopt +o default +o bashdefault 2>/dev/null
    ((directive & 2)) && compopt -o nospace 2>/dev/null

    # Bash replaces only what follows the last = or :.
    prefix=
    case $word in
    *[=:]*) prefix=${word%"${word##*[=:]}"} ;;
    esac
    [[ $prefix == *: && $COMP_WORDBREAKS != *:* || $prefix == *= && $COMP_WORDBREAKS != *=* ]] && prefix=
    for entry in "${candidates[@]}"; do
        COMPREPLY[${#COMPREPLY[@]}]=${entry#"$prefix"}
    done
}

complete -o default -o bashdefault -F _patchbay patchbay
