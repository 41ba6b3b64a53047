// Package configs finds the configuration files with the servers of applications, such as editors,
// and reads them.
//
// A file in the user's home belongs to the user. A file in the current directory, or above it up to
// the root of its repository, is a project file: see [config.TrustStore]. Reading a file must not
// run commands or replace variables.
package configs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// A File is a configuration file of an application.
type File struct {
	*config.File
	// App is the name of the application, such as "cursor", "patchbay" for the user's own file and
	// files that the user names, or "project" for .mcp.json and mcp.json.
	App string
}

// Target returns a server's name on the command line, with the prefix that [Split] removes.
func (f *File) Target(server string) string {
	if f.App == ownApp || f.App == projectApp {
		return server
	}
	return f.App + ":" + server
}

// Limits of configuration files, in bytes.
const (
	maxOwnFile     = 32 << 20  // Claude Code keeps the history of all projects in its file
	maxProjectFile = 256 << 10 // another author may have written it
)

// Split splits a target such as cursor:github into the application and the name of the server.
func Split(target string) (app, server string, ok bool) {
	app, server, ok = strings.Cut(target, ":")
	return app, server, ok && server != "" && slices.ContainsFunc(applications, func(a application) bool {
		return a.name == app
	})
}

// Files reads the configuration files in order of precedence: the user's files before the project's
// files. If path or $PATCHBAY_CONFIG names a file, Files reads only this file. An error belongs to
// a file of which only App is set. Files that do not exist are skipped.
func Files(path string) iter.Seq2[*File, error] { return filesAt(places(path)) }

// FilesWith reads the files of [Files], but uses a text in place of the file at a path of [Places].
func FilesWith(named, path string, text []byte) iter.Seq2[*File, error] {
	all := places(named)
	for i := range all {
		if all[i].path == path {
			all[i].text = text
		}
	}
	return filesAt(all)
}

// All reads the files of all applications, like [Files] without a path.
func All() iter.Seq2[*File, error] { return filesAt(standardPlaces()) }

// AppOf returns the application whose form the file at a path must use: "patchbay" unless the path
// belongs to another application.
func AppOf(path string) string { return appOf(path).name }

func filesAt(places []place) iter.Seq2[*File, error] {
	return func(yield func(*File, error) bool) {
		for _, p := range places {
			f, err := p.read()
			if err != nil {
				f = &File{App: p.app.name}
			}
			if err == nil && len(f.Names()) == 0 || errors.Is(err, fs.ErrNotExist) && p.namedBy == "" {
				continue
			}
			if !yield(f, err) {
				return
			}
		}
	}
}

// Paths returns the paths of the files that [Files] reads for an application unless the user names
// a file. Paths of the project are relative.
func Paths(app string) (paths []string) {
	for _, p := range standardPlaces() {
		if p.app.name == app {
			paths = append(paths, p.path)
		}
	}
	return paths
}

// A place is where a configuration file may be.
type place struct {
	app     application
	path    string
	dir     string // of the project; empty for a file of the user
	namedBy string // the flag or variable that names the file; may be empty
	text    []byte // in place of the content; nil for the content
}

// Places returns the paths at which [Files] looks for files, whether they exist or not.
func Places(path string) (paths []string) {
	for _, p := range places(path) {
		paths = append(paths, p.path)
	}
	return paths
}

func places(path string) []place {
	if named := cmp.Or(path, os.Getenv(config.PathEnv)); named != "" {
		p := place{app: appOf(named), path: named, namedBy: "--config"}
		if path == "" {
			p.namedBy = "$" + config.PathEnv
		}
		if path == "" && !filepath.IsAbs(named) {
			p.dir = filepath.Dir(named) // it names another file in each directory
		}
		return []place{p}
	}
	return standardPlaces()
}

func standardPlaces() []place {
	d, own, all := userDirs(), []string{}, []place{}
	for _, a := range applications {
		for _, file := range a.user(d) {
			own = append(own, file)
			all = append(all, place{app: a, path: file})
		}
	}
	for _, dir := range projectDirs(d.home) {
		for _, a := range applications {
			for _, file := range a.project {
				file = filepath.Join(dir, file)
				if !slices.ContainsFunc(own, func(o string) bool { return sameFile(o, file) }) {
					all = append(all, place{app: a, path: file, dir: dir})
				}
			}
		}
	}
	return all
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	two, err := os.Stat(b)
	return err == nil && os.SameFile(one, two)
}

// projectDirs returns the current directory and its parents up to the root of the repository, if
// the repository is below the user's home directory, the nearest first. All are relative.
func projectDirs(home string) []string {
	const most = 64 // levels
	current, err := os.Getwd()
	if err != nil {
		return []string{"."}
	}
	dirs := []string{"."}
	for dir, up := current, "."; len(dirs) < most && dir != home; up = filepath.Join(up, "..") {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dirs
		}
		parent := filepath.Dir(dir)
		if parent == dir || parent == home {
			break
		}
		dir = parent
		dirs = append(dirs, filepath.Join(up, ".."))
	}
	return dirs[:1] // not in a repository
}

// read reads the file. The error wraps fs.ErrNotExist if it does not exist.
func (p *place) read() (*File, error) {
	text, err := p.content()
	switch {
	case errors.Is(err, fs.ErrNotExist) && p.namedBy != "":
		return nil, fmt.Errorf("configuration file %s does not exist (named by %s)", p.path, p.namedBy)
	case err != nil:
		return nil, err
	}
	return p.parse(text)
}

// Parse parses a text in the form that its path specifies. The result counts as named by the user.
func Parse(path string, text []byte) (*File, error) {
	p := place{app: appOf(path), path: path}
	return p.parse(text)
}

func (p *place) parse(text []byte) (*File, error) {
	c := &config.File{}
	converted, err := p.app.convert(text)
	if err == nil {
		c, err = config.Parse(converted)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.path, err)
	}
	c.Path, c.Project, c.Dir = p.path, p.dir != "", p.dir
	if c.Extra["patchbay"] != nil {
		c.Source = text // for the lines of errors
	}
	return &File{File: c, App: p.app.name}, nil
}

// content returns the text of the file. A project file must be a regular file and not a link:
// reading a pipe may block, and a link may lead to a file of the user. A file that the user named
// may be a pipe.
func (p *place) content() ([]byte, error) {
	if p.text != nil {
		return p.text, nil
	}
	limit := maxOwnFile
	if p.namedBy == "" || p.dir != "" {
		stat := os.Stat
		if p.dir != "" {
			stat, limit = os.Lstat, maxProjectFile
			if err := checkFolder(filepath.Dir(p.path)); err != nil {
				return nil, err
			}
		}
		info, err := stat(p.path)
		switch {
		case err != nil:
			return nil, err
		case !info.Mode().IsRegular():
			return nil, fmt.Errorf("%s: invalid configuration file: must be a regular file", p.path)
		}
	}
	f, err := os.Open(p.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(text) > limit {
		err = fmt.Errorf("%s: configuration file is too large: want at most %d bytes", p.path, limit)
	}
	return text, err
}

// checkFolder returns an error if the folder of a project file, such as .vscode, is a link.
func checkFolder(dir string) error {
	info, err := os.Lstat(dir)
	if err == nil && info.Mode().Type() == fs.ModeSymlink {
		err = fmt.Errorf("%s: invalid folder of configuration files: must not be a symbolic link", dir)
	}
	return err
}

// Identity returns a text that identifies a configuration: the named file, or the user's files
// together with the project files that exist here. path is the value of --config. A user's file
// that is added later does not change the identity.
func Identity(path string) (string, error) {
	if named := cmp.Or(path, os.Getenv(config.PathEnv)); named != "" {
		full, err := filepath.Abs(named)
		return "file\x00" + full, err
	}
	found := []string{"user"}
	for _, p := range standardPlaces() {
		if p.dir == "" {
			continue
		}
		if _, err := os.Stat(p.path); err == nil {
			full, err := filepath.Abs(p.path)
			if err != nil {
				return "", err
			}
			found = append(found, full)
		}
	}
	return strings.Join(found, "\x00"), nil
}
