package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A loaded is a package with its syntax and types.
type loaded struct {
	name      string // import path, without the module
	path      string
	set       *token.FileSet
	syntax    []*ast.File
	types     *types.Package
	info      *types.Info
	fileCount int // including files for other systems
}

// A listed is a package as go list prints it.
type listed struct {
	ImportPath string
	Dir        string
	Export     string
	GoFiles    []string
	CgoFiles   []string
	DepOnly    bool
	Module     *struct{ Path string }
	ImportMap  map[string]string
}

// load loads the package in dir and the packages below it in the same module. Imported packages
// come from the export data that go list -export builds.
func load(ctx context.Context, dir string) ([]*loaded, error) {
	all, err := goList(ctx, dir)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{} // by import path
	for _, l := range all {
		exports[l.ImportPath] = l.Export
	}
	set := token.NewFileSet()
	lookup := func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data for %s", path)
		}
		return os.Open(exports[path])
	}
	imports := importer.ForCompiler(set, "gc", lookup)
	var packages []*loaded
	for _, l := range all {
		if l.DepOnly || len(l.GoFiles) == 0 {
			continue
		}
		p, err := check(set, l, imports)
		if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
	if len(packages) == 0 {
		return nil, fmt.Errorf("%s contains no package with product files", dir)
	}
	return packages, nil
}

func goList(ctx context.Context, dir string) ([]listed, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-export", "-deps",
		"-json=ImportPath,Dir,Export,GoFiles,CgoFiles,DepOnly,Module,ImportMap", "./...")
	cmd.Dir = dir
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w\n%s", dir, err, failure.Bytes())
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var l listed
		if err := d.Decode(&l); err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

func check(set *token.FileSet, l listed, imports types.Importer) (*loaded, error) {
	p := &loaded{path: l.ImportPath, name: l.ImportPath, set: set, info: &types.Info{
		Defs:       map[*ast.Ident]types.Object{},
		Uses:       map[*ast.Ident]types.Object{},
		Types:      map[ast.Expr]types.TypeAndValue{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}}
	if l.Module != nil {
		// The modules of a repository share the first three elements of their paths.
		elements := strings.SplitN(l.ImportPath, "/", 4)
		p.name = elements[len(elements)-1]
	}
	for _, name := range l.GoFiles {
		file, err := parser.ParseFile(set, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.syntax = append(p.syntax, file)
	}
	sources, err := filepath.Glob(filepath.Join(l.Dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range sources {
		if !strings.HasSuffix(name, "_test.go") {
			p.fileCount++
		}
	}
	config := types.Config{Importer: imports}
	p.types, err = config.Check(l.ImportPath, set, p.syntax, p.info)
	return p, err
}

// file returns the base name of the file that contains pos.
func (p *loaded) file(pos token.Pos) string {
	return filepath.Base(p.set.Position(pos).Filename)
}

func (p *loaded) files() []string {
	var names []string
	for _, f := range p.syntax {
		names = append(names, p.file(f.Pos()))
	}
	return names
}

// exportedNames counts as the golden files under api/ do: exported package-level names, and
// exported methods of exported types.
func (p *loaded) exportedNames() int {
	count := 0
	for _, name := range p.types.Scope().Names() {
		if !token.IsExported(name) {
			continue
		}
		count++
		declared, ok := p.types.Scope().Lookup(name).(*types.TypeName)
		if !ok || declared.IsAlias() {
			continue
		}
		named := declared.Type().(*types.Named)
		for i := range named.NumMethods() {
			if named.Method(i).Exported() {
				count++
			}
		}
	}
	return count
}

// methods counts the declared methods of each type.
func (p *loaded) methods() map[string]int {
	counts := map[string]int{}
	for _, name := range p.types.Scope().Names() {
		if named, ok := p.types.Scope().Lookup(name).Type().(*types.Named); ok && named.NumMethods() > 0 &&
			named.Obj().Name() == name && named.Obj().Pkg() == p.types {
			counts[name] = named.NumMethods()
		}
	}
	return counts
}

// fields counts the fields of each struct that a package-level type declares.
func (p *loaded) fields() map[string]int {
	counts := map[string]int{}
	for _, name := range p.types.Scope().Names() {
		declared, ok := p.types.Scope().Lookup(name).(*types.TypeName)
		if !ok || declared.IsAlias() {
			continue
		}
		if s, ok := declared.Type().Underlying().(*types.Struct); ok {
			counts[name] = s.NumFields()
		}
	}
	return counts
}

// mutexes counts the mentions of sync.Mutex and sync.RWMutex.
func (p *loaded) mutexes() int {
	count := 0
	for _, used := range p.info.Uses {
		if t, ok := used.(*types.TypeName); ok && t.Pkg() != nil && t.Pkg().Path() == "sync" &&
			(t.Name() == "Mutex" || t.Name() == "RWMutex") {
			count++
		}
	}
	return count
}
