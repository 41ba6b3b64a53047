package target

import (
	"path"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// A danger is a pattern of command lines that a user should look at twice. It is a hint only: a program
// with any name can do the same.
type danger struct {
	what  string
	words []string // names of programs and arguments, in lower case, without .exe
	parts []string // of words
}

var dangers = []danger{
	{what: "runs as another user", words: []string{"sudo", "doas", "su", "pkexec", "runas", "gsudo"}},
	{what: "deletes or overwrites files", words: []string{"rm", "rmdir", "del", "shred", "mkfs", "dd", "format",
		"remove-item"}},
	{what: "loads or sends data", words: []string{"curl", "wget", "nc", "ncat", "scp", "invoke-webrequest", "iwr",
		"invoke-expression", "iex"}},
	{what: "gives a container rights on this machine", words: []string{"--privileged", "--pid=host", "--net=host",
		"--network=host", "--cap-add=all"}, parts: []string{"docker.sock"}},
	{what: "names files with credentials", words: []string{".netrc", ".npmrc", ".pgpass"}, parts: []string{".ssh",
		".aws", ".gnupg", ".kube", "id_rsa", "id_ed25519", "/etc/shadow", ".docker/config", "login.keychain"}},
	{what: "names all files of a user or of the machine", words: []string{"/", `c:\`, "~", "~/", "$home", "${home}",
		"${env:home}", "${userhome}", "--allow-all"}},
}

// shells are programs that run a text of their arguments, and the flags for that.
var shells = map[string][]string{"sh": {"-c"}, "bash": {"-c", "-lc", "-ic"}, "zsh": {"-c", "-lc"}, "dash": {"-c"},
	"ksh": {"-c"}, "fish": {"-c"}, "cmd": {"/c", "/k"}, "powershell": {"-c", "-command", "-enc", "-encodedcommand"},
	"pwsh": {"-c", "-command", "-enc", "-encodedcommand"}, "python": {"-c"}, "python3": {"-c"},
	"node": {"-e", "--eval", "-p"}, "perl": {"-e"}, "ruby": {"-e"}, "php": {"-r"}, "deno": {"eval"}}

// isDelimiter reports whether a character separates the words of a command line of a shell.
func isDelimiter(r rune) bool { return strings.ContainsRune(" \t\r\n;|&()<>`\"'", r) }

// DangersOf returns warnings about the command of a server, which is not expanded.
func DangersOf(s *config.Server) (warnings []string) {
	if s.Type != config.TypeStdio {
		return nil
	}
	argv := append([]string{s.Command}, s.Args...)
	for i, word := range argv[:len(argv)-1] {
		if slices.Contains(shells[baseProgram(word)], strings.ToLower(argv[i+1])) {
			warnings = append(warnings,
				"warning: runs a text as a program: "+term.ShellWord(word)+" "+term.ShellWord(argv[i+1]))
		}
	}
	var words []string
	for _, arg := range argv {
		words = append(words, arg)
		words = append(words, strings.FieldsFunc(arg, isDelimiter)...)
	}
	for _, d := range dangers {
		if i := slices.IndexFunc(words, d.matches); i >= 0 {
			warnings = append(warnings, "warning: "+d.what+": "+term.ShellWord(words[i]))
		}
	}
	return warnings
}

// baseProgram returns the name of a program without its directory.
func baseProgram(word string) string {
	return strings.TrimSuffix(strings.ToLower(path.Base(strings.ReplaceAll(word, `\`, "/"))), ".exe")
}

func (d *danger) matches(word string) bool {
	lower := strings.ToLower(word)
	return slices.Contains(d.words, lower) || len(lower) > 1 && slices.Contains(d.words, baseProgram(word)) &&
		!strings.HasSuffix(lower, "/") ||
		slices.ContainsFunc(d.parts, func(part string) bool { return strings.Contains(lower, part) })
}
