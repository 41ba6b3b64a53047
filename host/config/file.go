// Package config reads the configuration files of programs that connect to several servers.
//
//	file, err := config.Load(".mcp.json")
//	server, err := file.Server("files")
//	server, err = server.Expand(ctx, os.LookupEnv)
//
// The format is the one that most clients share: a member mcpServers, or servers, maps names to
// commands with arguments, or to URLs. Comments and trailing commas are allowed. Unknown members
// are kept.
//
// A configuration file chooses which commands run: starting a server from it runs code of the
// file's author. The current directory may be a repository of another author, so a file in it is a
// project file. Before a program uses a server of a project file, or calls [Server.Expand] to read
// variables for it, it asks the user and records the answer in a [TrustStore].
package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 4 << 20

// A File is a configuration file with servers. It is immutable, and safe for concurrent use.
type File struct {
	// Path is the path of the file, or empty for [Parse].
	Path string
	// Project is set by [LoadAll] for a file that was found in the current directory, and not
	// chosen by the user.
	Project bool
	// Dir is the directory of the project for a file in one of its folders, such as .vscode/mcp.json.
	// Relative paths of servers refer to it. Default: the directory of Path.
	Dir string
	// Source is the text in which [File.Settings] finds the lines of its errors, if it is not the text
	// that was parsed: that of a file in the form of another application.
	Source []byte
	// Extra holds the members other than the servers, unparsed.
	Extra map[string]json.RawMessage

	text    []byte   // without comments; the offsets are the offsets in the file
	names   []string // in the order of the file
	servers map[string]json.RawMessage
	ids     map[string]string // by name
	sources map[string]Entry  // of the servers of a merged file; nil for others
}

// Load reads a configuration file. The error wraps fs.ErrNotExist if the file does not exist, and
// contains the line and column of a JSON syntax error.
func Load(path string) (*File, error) {
	opened, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	text, err := io.ReadAll(io.LimitReader(opened, maxFile+1))
	if err != nil {
		return nil, err
	}
	f, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.Path = path
	return f, nil
}

// Parse parses a configuration. It reads only the names of the servers: [File.Server] parses an
// entry, so that an invalid server does not affect others.
func Parse(text []byte) (*File, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("configuration of %d bytes is too large: want at most %d", len(text), maxFile)
	}
	plain, err := Plain(text)
	if err != nil {
		return nil, err
	}
	if jsonscan.Kind(plain) != '{' {
		return nil, errors.New("invalid configuration: must be a JSON object")
	}
	f := &File{text: plain, Extra: map[string]json.RawMessage{}, servers: map[string]json.RawMessage{}}
	found := false
	for key, value := range jsonscan.Members(plain) {
		if string(key) != "mcpServers" && string(key) != "servers" {
			f.Extra[string(key)] = value
			continue
		}
		found = true
		if err := f.addServers(string(key), value); err != nil {
			return nil, err
		}
	}
	if !found {
		return nil, errors.New(`invalid configuration: must have a member "mcpServers" or "servers"`)
	}
	f.ids = serverIDs(f.names)
	return f, nil
}

func (f *File) addServers(key string, servers []byte) error {
	if jsonscan.Kind(servers) != '{' {
		return fmt.Errorf("invalid %s: must be an object", key)
	}
	for name, server := range jsonscan.Members(servers) {
		if f.Has(string(name)) {
			return fmt.Errorf("duplicate server %.64q in mcpServers and servers", name)
		}
		f.names = append(f.names, string(name))
		f.servers[string(name)] = server
	}
	return nil
}

// Names returns the names of the servers, in the order of the file.
func (f *File) Names() []string { return slices.Clone(f.names) }

// Has reports whether the file contains a server with the name, valid or not.
func (f *File) Has(name string) bool {
	_, ok := f.servers[name]
	return ok
}

// Server parses the entry of a server. Its variables are not expanded: see [Server.Expand]. The
// error names the invalid member.
func (f *File) Server(name string) (*Server, error) {
	if source, ok := f.sources[name]; ok {
		return source.server()
	}
	raw, ok := f.servers[name]
	if !ok {
		return nil, fmt.Errorf("unknown server %q", name)
	}
	if strings.TrimSpace(name) == "" {
		return nil, fmt.Errorf("invalid server name %.64q: must not be empty or blank", name)
	}
	s, err := parseServer(raw)
	if err != nil {
		return nil, fmt.Errorf("server %.64q: %w", name, err)
	}
	s.Name, s.Project = name, f.Project
	settings, _ := jsonscan.Get(f.Extra["patchbay"], "servers")
	if raw, has := jsonscan.Get(settings, name); has {
		var compact bytes.Buffer
		_ = json.Compact(&compact, raw) // valid since Parse
		s.Settings = compact.Bytes()
	}
	s.path, s.base = f.Path, f.Dir
	if s.base == "" && f.Path != "" {
		s.base = filepath.Dir(f.Path)
	}
	if s.Inputs, err = parseInputs(f.Extra["inputs"], s); err != nil {
		return nil, fmt.Errorf("inputs: %w", err)
	}
	return s, nil
}

// PathEnv is the environment variable that names a configuration file.
const PathEnv = "PATCHBAY_CONFIG"

// Paths returns the paths of the configuration files, in order of precedence: path, if it is
// not empty; else the value of the environment variable [PathEnv]; else patchbay/mcp.json in the
// user's configuration directory, and the project files .mcp.json and mcp.json in the current
// directory. The user's own file comes first, so no project can replace one of its servers.
func Paths(path string) []string {
	path = cmp.Or(path, os.Getenv(PathEnv))
	if path != "" {
		return []string{path}
	}
	if dir, err := os.UserConfigDir(); err == nil {
		return append([]string{filepath.Join(dir, "patchbay", "mcp.json")}, projectFiles...)
	}
	return projectFiles
}

// projectFiles are the configuration files of the current directory.
var projectFiles = []string{".mcp.json", "mcp.json"}

// LoadAll reads the files of [Paths] that exist. A file given by path or by the environment must
// exist. A file in the current directory is a project file unless path names it: a relative path in
// the environment names another file in each directory. LoadAll returns the files that it could
// read, even with an error, which joins the errors of the others.
func LoadAll(path string) ([]*File, error) {
	required := path != "" || os.Getenv(PathEnv) != ""
	var files []*File
	var errs []error
	for _, name := range Paths(path) {
		project := path == "" && !filepath.IsAbs(name)
		f, err := load(name, project)
		switch {
		case err == nil:
			files = append(files, f)
		case required || !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	return files, errors.Join(errs...)
}

// load reads a file. A project file must be regular: reading a pipe or a device may block, and
// a symbolic link may lead to a file of the user.
func load(path string, project bool) (*File, error) {
	if project {
		info, err := os.Lstat(path)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s: invalid project file: must be a regular file", path)
		}
	}
	f, err := Load(path)
	if err != nil {
		return nil, err
	}
	f.Project = project
	return f, nil
}

// readRegular reads a regular file of at most limit bytes.
func readRegular(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: invalid file: must be a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("%s: file is too large: want at most %d bytes", path, limit)
	}
	return content, err
}
