package childproc

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"unicode"
)

// Variables that a server inherits by default. Programs need them to run or to find their files.
var (
	inheritedUnix = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LANG", "LANGUAGE", "TMPDIR",
		"PWD"}

	inheritedWindows = []string{"PATH", "PATHEXT", "COMSPEC", "SYSTEMROOT", "WINDIR", "SYSTEMDRIVE", "TEMP", "TMP",
		"USERPROFILE", "USERNAME", "USERDOMAIN", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA",
		"PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432", "COMMONPROGRAMFILES", "COMPUTERNAME", "OS",
		"NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE", "LANG"}

	// inheritedNetwork lists the variables, in upper or lower case, that package runners and
	// servers need to reach the network through a company's proxy and to find their caches. The
	// values are files, flags and URLs. A URL with credentials is not inherited.
	inheritedNetwork = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
		"NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "NODE_USE_ENV_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
		"NPM_CONFIG_PROXY", "NPM_CONFIG_HTTPS_PROXY", "NPM_CONFIG_NOPROXY", "NPM_CONFIG_CAFILE", "NPM_CONFIG_REGISTRY",
		"PIP_CERT", "PIP_PROXY", "PIP_INDEX_URL", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_INDEX_URL",
		"UV_DEFAULT_INDEX", "GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GONOSUMDB", "GOINSECURE", "GOVCS",
		"GOFLAGS", "GOPATH", "GOCACHE", "GOMODCACHE", "GOENV", "GOTOOLCHAIN", "GOROOT"}

	// runnerPrefixes begin the names of other variables that configure package runners. An error
	// names them, because without them a runner may wait until its timeout.
	runnerPrefixes = []string{"NPM_CONFIG_", "NODE_", "PIP_", "UV_", "BUN_", "DENO_", "DOCKER_",
		"CGO_", "GOAUTH"}
)

// IsInherited reports whether a server inherits a variable, such as "HOME=/root", by default.
func IsInherited(variable string) bool {
	name, value, _ := strings.Cut(variable, "=")
	upper := strings.ToUpper(name)
	switch {
	case strings.HasPrefix(value, "()"):
		return false // a shell function is code, whatever its name
	case slices.Contains(inheritedNetwork, upper):
		return !strings.Contains(value, "@") // user information of a URL
	case runtime.GOOS == "windows":
		return slices.Contains(inheritedWindows, upper) // names are case-insensitive there
	}
	return slices.Contains(inheritedUnix, name) || strings.HasPrefix(name, "LC_")
}

// Withheld returns the names of variables that a server with the environment env does not inherit:
// first the variables that stderr, the output of the server, mentions, then the variables of
// package runners.
func Withheld(env []string, stderr string) (names []string) {
	const shown = 16 // an environment may contain hundreds
	words := strings.FieldsFunc(stderr, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	var mentioned []string
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		upper := strings.ToUpper(name)
		used := slices.Contains(inheritedNetwork, upper) ||
			slices.ContainsFunc(runnerPrefixes, func(p string) bool { return strings.HasPrefix(upper, p) })
		set := func(v string) bool { return strings.HasPrefix(v, name+"=") }
		switch {
		case value == "" || IsInherited(variable) || slices.ContainsFunc(env, set):
		case len(name) > 2 && slices.Contains(words, name):
			mentioned = append(mentioned, name)
		case used:
			names = append(names, name)
		}
	}
	slices.Sort(mentioned)
	slices.Sort(names)
	names = append(mentioned, names...)
	return names[:min(len(names), shown)]
}

// A WithheldError reports a failed start. Variables that the server did not inherit may be the
// cause.
type WithheldError struct {
	Err   error
	Names []string // of the variables; see Withheld
}

// Error returns the text of Err and the names of the variables.
func (e *WithheldError) Error() string {
	return fmt.Sprintf("%v\nthe server did not inherit %s: set the variables that it needs in its environment", e.Err,
		strings.Join(e.Names, ", "))
}

// Unwrap returns Err.
func (e *WithheldError) Unwrap() error { return e.Err }
