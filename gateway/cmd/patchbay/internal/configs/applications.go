package configs

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// An application is a program whose files share a format.
type application struct {
	name    string
	user    func(d dirs) []string // absolute paths of the user's files; empty if unknown
	project []string              // paths in the directory of a project
	// convert returns the file in the format of config.Parse.
	convert func(text []byte) ([]byte, error)
}

// Names of files that several applications use.
const (
	ownApp     = "patchbay"
	projectApp = "project"
)

// applications lists the applications, in order of precedence; see docs/applications.md.
var applications = []application{
	{ownApp, func(d dirs) []string { return d.in(d.config, "patchbay/mcp.json") }, nil, asIs},
	{projectApp, noFiles, []string{".mcp.json", "mcp.json"}, asIs},
	{"claude-code", func(d dirs) []string { return d.in(d.home, ".claude.json") }, nil, claudeCode},
	{"claude-desktop", func(d dirs) []string {
		return d.in(d.config, "Claude/claude_desktop_config.json")
	}, nil, claudeDesktop},
	{"vscode", func(d dirs) []string { return d.in(d.config, "Code/User/mcp.json") },
		[]string{".vscode/mcp.json"}, vscode},
	{"cursor", func(d dirs) []string { return d.in(d.home, ".cursor/mcp.json") },
		[]string{".cursor/mcp.json"}, sameForm},
	{"codex", func(d dirs) []string { return d.in(d.codex, "config.toml") }, []string{".codex/config.toml"}, codex},
	{"gemini", func(d dirs) []string { return d.in(d.home, ".gemini/settings.json") },
		[]string{".gemini/settings.json"}, gemini},
	{"windsurf", func(d dirs) []string {
		return d.in(d.home, ".codeium/windsurf/mcp_config.json", ".codeium/mcp_config.json")
	}, nil, sameForm},
	{"cline", func(d dirs) []string {
		return append(d.in(d.config, "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
			d.in(d.home, ".cline/data/settings/cline_mcp_settings.json")...) // of its command line
	}, nil, sameForm},
	{"opencode", func(d dirs) []string { return d.in(d.opencode, "opencode.json", "opencode.jsonc") },
		[]string{"opencode.json", "opencode.jsonc"}, opencode},
	{"zed", func(d dirs) []string { return d.in(d.zed, "settings.json") }, []string{".zed/settings.json"}, zed},
	{"goose", func(d dirs) []string { return d.in(d.goose, "config.yaml") }, nil, goose},
}

func noFiles(dirs) []string { return nil }

// appOf returns the application whose files end with a path. Default: the user's own file.
func appOf(path string) application {
	path = filepath.ToSlash(path)
	if abs, err := filepath.Abs(path); err == nil {
		path = filepath.ToSlash(abs)
	}
	d := userDirs()
	for _, a := range applications[1:] {
		for _, file := range a.project {
			if strings.HasSuffix(path, "/"+file) {
				return a
			}
		}
		if slices.ContainsFunc(a.user(d), func(file string) bool { return filepath.ToSlash(file) == path }) {
			return a
		}
	}
	return applications[0]
}

// dirs holds the directories of the user's files. An unknown directory is empty.
type dirs struct{ home, config, codex, zed, goose, opencode string }

// userDirs returns only absolute directories: a relative directory would depend on the current
// directory, which may belong to another author.
func userDirs() dirs {
	var d dirs
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) {
		d.home = filepath.Clean(home)
	}
	if config, err := os.UserConfigDir(); err == nil && filepath.IsAbs(config) {
		d.config = filepath.Clean(config)
	}
	d.codex = under(d.home, ".codex")
	if dir := os.Getenv("CODEX_HOME"); dir != "" {
		d.codex = ""
		if filepath.IsAbs(dir) {
			d.codex = filepath.Clean(dir)
		}
	}
	d.zed, d.goose = under(d.config, "zed"), under(d.config, "goose")
	d.opencode = under(d.home, ".config/opencode")
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		d.opencode = under(filepath.Clean(dir), "opencode")
	}
	switch runtime.GOOS {
	case "windows":
		d.zed, d.goose = under(d.config, "Zed"), under(d.config, "Block/goose/config")
	case "darwin":
		d.zed, d.goose = under(d.home, ".config/zed"), under(d.home, ".config/goose")
	}
	return d
}

func under(dir, path string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, filepath.FromSlash(path))
}

func (dirs) in(dir string, files ...string) (paths []string) {
	for _, file := range files {
		if path := under(dir, file); path != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

// Applications returns the names of the applications.
func Applications() (names []string) {
	for _, a := range applications {
		names = append(names, a.name)
	}
	return names
}
