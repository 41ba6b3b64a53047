package cli

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
)

// newFiles has a directory for each kind of program, whose files are templates.
//
//go:embed new
var newFiles embed.FS

// A newModule is what the templates use.
type newModule struct {
	Module  string `json:"module"` // module path
	Name    string `json:"name"`   // its last element
	Version string `json:"-"`      // of the SDK; empty if this program is not a release

	Dir   string   `json:"directory"`
	Files []string `json:"files"`
}

func (p *program) newCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:                   "new server|client NAME",
		Short:                 "Write a Go module of an MCP server or client, with a test",
		DisableFlagsInUseLine: true,
		ValidArgs:             []string{"server", "client"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 || args[0] != "server" && args[0] != "client" {
				return usage(fmt.Errorf("want server or client, and a name\nusage: %s", cmd.UseLine()))
			}
			m, err := newModuleOf(args[1], dir)
			if err != nil {
				return usage(err)
			}
			if err := m.write(args[0]); err != nil {
				return &coded{exitFailure, err}
			}
			p.showModule(m)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write to this `directory` (default the last element of NAME)")
	return cmd
}

var (
	// modulePath is the form of the module paths that new accepts, a part of those that Go does.
	modulePath = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.~-]*(/[A-Za-z0-9][A-Za-z0-9_.~-]*)*$`)
	// programName is the form of the last element.
	programName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)
	// released is the form of the version of a release.
	released = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`)
)

// maxModulePath bounds a module path, in characters.
const maxModulePath = 80

func newModuleOf(name, dir string) (*newModule, error) {
	m := &newModule{Module: name, Name: path.Base(name), Dir: dir}
	if !modulePath.MatchString(name) || !programName.MatchString(m.Name) || len(name) > maxModulePath {
		return nil, fmt.Errorf("invalid name %q: want a module path such as weather or github.com/me/weather, "+
			"of at most %d characters", name, maxModulePath)
	}
	if err := checkModuleName(name); err != nil {
		return nil, err
	}
	if m.Dir == "" {
		m.Dir = m.Name
	}
	if v := version(); released.MatchString(v) && !strings.HasPrefix(v, "v0.0.0") {
		m.Version = v
	}
	return m, nil
}

// write writes the files of a kind of program to a directory that does not exist or is empty.
func (m *newModule) write(kind string) error {
	existing, err := os.ReadDir(m.Dir)
	switch {
	case err == nil && len(existing) > 0:
		return fmt.Errorf("directory %q is not empty: choose another name, or another directory with --dir", m.Dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	templates, err := newFiles.ReadDir("new/" + kind)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return err
	}
	for _, t := range templates {
		text, err := m.expand("new/" + kind + "/" + t.Name())
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(t.Name(), ".txt")
		if err := writeNew(filepath.Join(m.Dir, name), text); err != nil {
			return err
		}
		m.Files = append(m.Files, name)
	}
	return nil
}

func (m *newModule) expand(file string) ([]byte, error) {
	t, err := template.ParseFS(newFiles, file)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := t.Execute(&text, m); err != nil {
		return nil, err
	}
	return append(bytes.TrimRight(text.Bytes(), "\n"), '\n'), nil
}

// writeNew writes a file that must not exist: another program may write to the directory too.
func writeNew(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

func (p *program) showModule(m *newModule) {
	if p.flags.json {
		p.output.value(m)
		return
	}
	p.output.printf("Wrote %s to %s. Next:\n\n  cd %s\n  go mod tidy\n  go test ./...", strings.Join(m.Files, ", "),
		cleanLine(m.Dir), shellWord(cleanLine(m.Dir)))
}
