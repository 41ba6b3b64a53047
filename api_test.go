package patchbay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// publicPackages returns the packages that others can import, in all modules of the workspace but the
// examples, without the path of the module. Each has a golden file under api/.
func publicPackages(t *testing.T) (names []string) {
	t.Helper()
	work, err := exec.Command("go", "work", "edit", "-json").Output()
	var use struct{ Use []struct{ DiskPath string } }
	if err != nil || json.Unmarshal(work, &use) != nil {
		t.Fatalf("go work edit -json: %s, %v", work, err)
	}
	args := []string{"list", "-f", `{{if ne .Name "main"}}{{.ImportPath}}{{end}}`}
	for _, m := range use.Use {
		if m.DiskPath != "./examples" {
			args = append(args, m.DiskPath+"/...")
		}
	}
	list, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatalf("go %v: %v", args, err)
	}
	for path := range strings.FieldsSeq(string(list)) {
		if name, ok := strings.CutPrefix(path, module+"/"); ok && !slices.Contains(strings.Split(name, "/"), "internal") {
			names = append(names, name)
		}
	}
	if len(names) < 10 {
		t.Fatalf("found only the packages %v", names)
	}
	return names
}

// TestAPIIsGolden fails on every change of the exported API: names, signatures, fields with their
// tags, interface methods and values of constants. Run it with -update after an intended change.
func TestAPIIsGolden(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	names := publicPackages(t)
	packages := loadExports(t, names, "")
	core := 0
	golden := map[string]bool{}
	for _, name := range names {
		lines := apiLines(packages[module+"/"+name])
		if slices.Contains([]string{"mcp", "mcphttp", "jsonrpc"}, name) {
			core += countNames(lines)
		}
		got := strings.Join(lines, "\n") + "\n"
		file := filepath.Join("api", strings.ReplaceAll(name, "/", "-")+".txt")
		golden[file] = true
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is out of date: review the change of the API, then run go test . -update", file)
		}
	}
	files, err := filepath.Glob("api/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !golden[file] {
			t.Errorf("%s describes no package of the workspace: remove it", file)
		}
	}
	if limit := readBudgets(t)["core-names"].limit; core > limit {
		t.Errorf("mcp, mcphttp and jsonrpc export %d names, want at most %d: see %s", core, limit, budgetsFile)
	}
	t.Logf("mcp, mcphttp and jsonrpc export %d names", core)
}

// TestAPIGoldenSeesChanges changes a copy of the source in ways that an earlier golden test did not
// notice.
func TestAPIGoldenSeesChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	tests := []struct{ name, file, old, new string }{
		{"field of a struct", "mcp/server.go", "type ServerOptions struct {\n",
			"type ServerOptions struct {\n\tAdded bool\n"},
		{"method of an interface", "mcp/state.go", "type StateStore interface {\n",
			"type StateStore interface {\n\tAdded()\n"},
		{"field of a struct in another module", "gateway/audit/audit.go", "type Options struct {\n",
			"type Options struct {\n\tAdded bool\n"},
		{"value of a constant", "mcp/elicit.go", `ElicitAccept `, `ElicitAccept ElicitAction = "changed"; _ `},
	}
	public := publicPackages(t)
	before := loadExports(t, public, "")
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			name := path.Dir(test.file)
			if !slices.Contains(public, name) {
				t.Fatalf("package %s has no golden file", name)
			}
			after := loadExports(t, []string{name}, overlay(t, test.file, test.old, test.new))
			if slices.Equal(apiLines(before[module+"/"+name]), apiLines(after[module+"/"+name])) {
				t.Errorf("the API lines are the same after the change of %s", test.file)
			}
		})
	}
}

// overlay writes a file for the go command's -overlay flag that replaces the first old in file by
// new.
func overlay(t *testing.T, file, old, new string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(old)) {
		t.Fatalf("%s does not contain %q", file, old)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, bytes.Replace(text, []byte(old), []byte(new), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// loadExports compiles the named packages of this module and returns their types by import path.
func loadExports(t *testing.T, names []string, overlay string) map[string]*types.Package {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export"}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	for _, name := range names {
		args = append(args, module+"/"+name)
	}
	cmd := exec.Command("go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -export: %v\n%s", err, &stderr)
	}
	files := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(files[path])
	})
	packages := map[string]*types.Package{}
	for _, name := range names {
		p, err := imports.Import(module + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		packages[module+"/"+name] = p
	}
	return packages
}

// apiLines returns the exported API of a package. A line that begins with const, func, type or var
// is a name; the indented lines behind a type are its exported fields or methods as an interface.
func apiLines(p *types.Package) []string {
	w := apiWriter{p}
	var lines []string
	for _, name := range p.Scope().Names() {
		object := p.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		switch object := object.(type) {
		case *types.Const:
			lines = append(lines, fmt.Sprintf("const %s %s = %s", name, w.typeText(object.Type()),
				object.Val().ExactString()))
		case *types.Var:
			lines = append(lines, fmt.Sprintf("var %s %s", name, w.typeText(object.Type())))
		case *types.Func:
			lines = append(lines, "func "+name+strings.TrimPrefix(w.typeText(object.Type()), "func"))
		case *types.TypeName:
			lines = append(lines, w.typeLines(object)...)
		}
	}
	return lines
}

// An apiWriter writes the types of one package's API. Names of that package have no qualifier.
type apiWriter struct{ own *types.Package }

func (w apiWriter) typeLines(object *types.TypeName) []string {
	if alias, ok := object.Type().(*types.Alias); ok {
		return []string{fmt.Sprintf("type %s = %s", object.Name(), w.typeText(alias.Rhs()))}
	}
	named := object.Type().(*types.Named)
	head := "type " + w.typeText(named) + " "
	var lines []string
	switch u := named.Underlying().(type) {
	case *types.Struct:
		lines = append([]string{head + "struct"}, w.fieldLines(u)...)
	case *types.Interface:
		lines = append([]string{head + "interface"}, w.interfaceLines(u)...)
	default:
		lines = []string{head + w.typeText(u)}
	}
	var methods []string
	for m := range named.Methods() {
		if m.Exported() {
			receiver := w.typeText(m.Signature().Recv().Type())
			methods = append(methods, fmt.Sprintf("func (%s) %s%s", receiver, m.Name(),
				strings.TrimPrefix(w.typeText(m.Type()), "func")))
		}
	}
	slices.Sort(methods)
	return append(lines, methods...)
}

func (w apiWriter) fieldLines(s *types.Struct) []string {
	var lines []string
	hidden := false
	for i := range s.NumFields() {
		f := s.Field(i)
		if !f.Exported() {
			hidden = true
			continue
		}
		line := "\t" + f.Name() + " " + w.typeText(f.Type())
		if f.Embedded() {
			line = "\t" + w.typeText(f.Type())
		}
		if tag := reflect.StructTag(s.Tag(i)); tag != "" {
			line += " " + "`" + string(tag) + "`"
		}
		lines = append(lines, line)
	}
	if hidden {
		lines = append(lines, "\t// unexported fields")
	}
	return lines
}

func (w apiWriter) interfaceLines(u *types.Interface) []string {
	var lines []string
	for e := range u.EmbeddedTypes() {
		lines = append(lines, "\t"+w.typeText(e))
	}
	hidden := false
	for m := range u.ExplicitMethods() {
		if !m.Exported() {
			hidden = true
			continue
		}
		lines = append(lines, "\t"+m.Name()+strings.TrimPrefix(w.typeText(m.Type()), "func"))
	}
	slices.Sort(lines)
	if hidden {
		lines = append(lines, "\t// unexported methods")
	}
	return lines
}

// typeText writes a type with packages as code names them. A package that is internal or not of the
// standard library keeps its whole path, so that it cannot enter the API unseen.
func (w apiWriter) typeText(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string {
		first, _, _ := strings.Cut(p.Path(), "/")
		if p.Path() == w.own.Path() {
			return ""
		}
		own := strings.HasPrefix(p.Path(), module+"/")
		switch {
		case own && strings.Contains(p.Path(), "/internal/"), !own && strings.Contains(first, "."):
			return p.Path()
		}
		return p.Name()
	})
}

func countNames(lines []string) int {
	n := 0
	for _, line := range lines {
		if !strings.HasPrefix(line, "\t") {
			n++
		}
	}
	return n
}
