package configs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Clients returns the names of the applications in whose files Install writes.
func Clients() (names []string) {
	for _, a := range applications[2:] { // after Patchbay's own and the shared project file
		names = append(names, a.name)
	}
	return names
}

// ClientFile returns the path of the file in which an application stores its servers: the user's
// file, or the project's file in the current directory. If an application uses several files, the
// result is the first file that exists, or whose folder exists. The file must be in the form of the
// returned application.
func ClientFile(app string, project bool) (path, formOf string, err error) {
	i := slices.IndexFunc(applications, func(a application) bool { return a.name == app })
	if i < 0 {
		return "", "", fmt.Errorf("unknown application %.64q", app)
	}
	a := applications[i]
	if project && app == "claude-code" {
		a = applications[1] // it reads .mcp.json
	}
	paths := a.user(userDirs())
	if project {
		paths = a.project
	}
	switch {
	case len(paths) == 0 && project:
		return "", "", fmt.Errorf("%s has no project file: leave out --project", app)
	case len(paths) == 0:
		return "", "", fmt.Errorf("cannot find the file of %s: the home directory is unknown; use --file", app)
	}
	for _, exists := range []func(path string) string{asGiven, filepath.Dir} {
		for _, path := range paths {
			if _, err := os.Stat(exists(path)); err == nil {
				return path, a.name, nil
			}
		}
	}
	return paths[0], a.name, nil
}

func asGiven(path string) string { return path }
