package target

import (
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/visible"
)

// TargetNames returns the names of servers, plain and with the prefix of their application.
func (p *Finder) TargetNames(typed string) (names []string) {
	for f, err := range configs.Files(p.Flags.Config) {
		if err != nil {
			continue
		}
		for _, name := range f.Names() {
			for _, name := range []string{name, f.Target(name)} {
				if !slices.Contains(names, name) && len(names) < maxNames {
					names = append(names, name)
				}
			}
		}
	}
	return Matching(names, typed)
}

// maxNames bounds the names of servers, so that project files do not slow completion down.
const maxNames = 1000

// maxCompleted limits a completed name, in bytes: a longer name would fill the terminal.
const maxCompleted = 1000

// shellActive are the characters with which a shell runs commands, continues a line, or expands
// file names. Shells insert the common beginning of several completions unquoted.
const shellActive = "$`;&|<>()'\"\\!*[]{}^"

// Matching returns the names that begin with what was typed and are safe on a command line and on a
// terminal. A name that begins with a hyphen would be a flag.
func Matching(names []string, typed string) (found []string) {
	for _, name := range names {
		if strings.HasPrefix(name, typed) && IsSafeWord(name) {
			found = append(found, name)
		}
	}
	return found
}

// IsSafeWord reports whether a word means itself in the shells, unquoted.
func IsSafeWord(word string) bool {
	const first = "-~#=@%" // a flag, a directory, a comment, a program, an array, a job
	value := word[strings.IndexByte(word, '=')+1:]
	return word != "" && len(word) <= maxCompleted && !strings.ContainsAny(word[:1], first) &&
		!strings.HasPrefix(value, "~") && !strings.ContainsAny(word, shellActive) &&
		(!strings.Contains(word, "?") || strings.Contains(word, "://")) && // the URL is no name of a file
		!strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' || visible.Hidden(r) })
}
