package childproc

import (
	"os"
	"runtime"
	"slices"
	"strings"
)

// Variables that a server inherits by default. Programs need them to run or to find their files.
var (
	inheritedUnix = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LANG", "LANGUAGE", "TMPDIR",
		"PWD"}

	inheritedWindows = []string{"PATH", "PATHEXT", "COMSPEC", "SYSTEMROOT", "WINDIR", "SYSTEMDRIVE", "TEMP", "TMP",
		"USERPROFILE", "USERNAME", "USERDOMAIN", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA",
		"PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432", "COMMONPROGRAMFILES", "COMPUTERNAME", "OS",
		"NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE", "LANG"}

	// inheritedNetwork are the variables, in upper or lower case, without which package runners and
	// servers cannot reach the network from behind a company's proxy. The values are files, flags
	// and URLs. A URL with credentials is not inherited.
	inheritedNetwork = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
		"NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "NODE_USE_ENV_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
		"NPM_CONFIG_PROXY", "NPM_CONFIG_HTTPS_PROXY", "NPM_CONFIG_NOPROXY", "NPM_CONFIG_CAFILE", "NPM_CONFIG_REGISTRY",
		"PIP_CERT", "PIP_PROXY", "PIP_INDEX_URL", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_INDEX_URL",
		"UV_DEFAULT_INDEX"}

	// runnerPrefixes begin the names of other variables that configure package runners. An error
	// names them, because without them a runner may wait until its timeout.
	runnerPrefixes = []string{"NPM_CONFIG_", "NODE_", "PIP_", "UV_", "BUN_", "DENO_", "DOCKER_"}
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

// Withheld returns the names of variables that a server with the variables env does not inherit,
// although package runners use them for the network.
func Withheld(env []string) (names []string) {
	const shown = 16 // an environment may have hundreds
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		upper := strings.ToUpper(name)
		used := slices.Contains(inheritedNetwork, upper) ||
			slices.ContainsFunc(runnerPrefixes, func(p string) bool { return strings.HasPrefix(upper, p) })
		set := func(v string) bool { return strings.HasPrefix(v, name+"=") }
		if used && !IsInherited(variable) && !slices.ContainsFunc(env, set) && len(names) < shown {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
