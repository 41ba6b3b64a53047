# fish completion of patchbay. It evaluates nothing.

function __patchbay_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct | string unescape)
    set -q typed[1]; or set typed ""
    set -l lines ($words[1] __complete $words[2..-1] "$typed" 2>/dev/null)
    or return
    set -l directive (string replace -r '^:' '' -- $lines[-1])
    string match -qr '^[0-9]+$' -- $directive; or return
    set -e lines[-1]
    if test (math "bitand($directive, 16)") -ne 0
        __fish_complete_directories "$typed"
        return
    end
    if test (count $lines) -eq 0; and test (math "bitand($directive, 4)") -eq 0
        __fish_complete_path "$typed"
        return
    end
    set -l flag (string match -r '^-[^=]*=' -- $typed)
    or set flag ""
    printf '%s\n' "$flag"$lines
end

complete -c patchbay -e
complete -c patchbay -f -a '(__patchbay_complete)'
