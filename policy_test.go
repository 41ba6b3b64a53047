// Package patchbay_test holds the rules that the whole repository keeps. Each failure says why the rule is there.
package patchbay_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/patchbay-mcp/patchbay"

var update = flag.Bool("update", false, "rewrite the golden files under api/")

// A rule says what a package may import of this module, and why no more.
type rule struct {
	pkg   string // a path within the module, or a pattern with a final /...
	allow []string
	why   string
}

var importRules = []rule{
	{"internal/jsonscan", nil, "the scanner is the ground that everything stands on"},
	{"jsonrpc", []string{"internal/jsonscan"}, "messages know nothing of MCP"},
	{"internal/readbuf", nil, "a read buffer holds bytes, not messages"},
	{"internal/linestream", []string{"jsonrpc", "internal/peer", "internal/readbuf"}, "a line is one JSON-RPC message, whatever it says"},
	{"internal/childproc", []string{"jsonrpc", "internal/linestream", "internal/peer"}, "a child process has pipes and an end, whatever it serves"},
	{"internal/sse", nil, "an event stream knows nothing of MCP"},
	{"internal/wire", []string{"jsonrpc", "internal/jsonscan"}, "wire is data: it decides nothing"},
	{"internal/peer", []string{"jsonrpc", "internal/jsonscan"}, "correlation knows nothing of methods"},
	{"internal/schema", []string{"internal/jsonscan"}, "schemas know nothing of MCP"},
	{"internal/uritemplate", nil, "URI templates are RFC 6570, not MCP"},
	{"internal/legacy", []string{"jsonrpc", "internal/wire", "internal/peer", "internal/jsonscan"},
		"the translator sees JSON-RPC, never features: it must not import mcp"},
	{"internal/mcpint", []string{"jsonrpc", "internal/legacy"}, "it is imported by mcp"},
	{"mcp", []string{"jsonrpc", "internal/mcpint", "internal/childproc", "internal/linestream", "internal/wire", "internal/peer", "internal/legacy", "internal/schema", "internal/uritemplate", "internal/jsonscan"},
		"a stdio server must not link HTTP or OAuth"},
	{"mcphttp", []string{"mcp", "jsonrpc", "internal/mcpint", "internal/wire", "internal/legacy", "internal/readbuf", "internal/sse", "internal/jsonscan"},
		"a transport knows nothing of authorization"},
	{"mcptest", []string{"mcp", "mcphttp", "jsonrpc", "internal/sse"}, "tests see what users see"},
	{"internal/browser", nil, "a page is opened alike for everybody"},
	{"oauth", []string{"mcp", "internal/browser", "internal/jsonscan"}, "authorization is middleware and an http.RoundTripper: it knows no transport"},
	{"oauth/authserver", []string{"oauth", "mcp", "internal/jsonscan"}, "an authorization server knows who may, not what they do"},
	{"oauth/authserver/storetest", []string{"oauth/authserver"}, "the suite for stores sees what their implementers see"},
	{"internal/vault", []string{"oauth"}, "a vault keeps what clients give it"},
	{"host", []string{"internal/jsonscan"}, "a configuration is data: who reads it decides what to connect"},
	{"ext/tasks", []string{"mcp", "jsonrpc"}, "an extension is written on the public API, as anybody's would be"},
	{"ext/tasks/boltstore", []string{"ext/tasks"}, "a store sees what its implementers see"},
	{"ext/tasks/storetest", []string{"ext/tasks"}, "the suite for stores sees what their implementers see"},
	{"ext/apps", []string{"mcp"}, "an extension is written on the public API, as anybody's would be"},
	{"ext/skills", []string{"mcp"}, "an extension is written on the public API, as anybody's would be"},
	{"internal/demo", []string{"mcp", "ext/tasks", "ext/apps", "ext/skills"}, "the demo is a user of the SDK"},
	{"internal/cli", []string{"mcp", "mcphttp", "oauth", "oauth/authserver", "ext/tasks", "ext/tasks/boltstore", "ext/skills", "host", "jsonrpc", "internal/browser", "internal/demo", "internal/vault", "internal/wire", "internal/schema", "internal/jsonscan"},
		"the command is a user of the SDK, and the only one to read command lines"},
	{"examples/app", []string{"mcp", "ext/apps"}, "examples are what users write"},
	{"examples/apphost", []string{"mcp", "ext/apps"}, "examples are what users write"},
	{"examples/authserver", []string{"mcp", "mcphttp", "oauth", "oauth/authserver"}, "examples are what users write"},
	{"examples/calc", []string{"mcp"}, "examples are what users write"},
	{"examples/calcclient", []string{"mcp"}, "examples are what users write"},
	{"examples/calchttp", []string{"mcp", "mcphttp"}, "examples are what users write"},
	{"examples/login", []string{"mcp", "mcphttp", "oauth"}, "examples are what users write"},
	{"examples/press", []string{"mcp", "mcphttp", "ext/tasks", "ext/tasks/boltstore"}, "examples are what users write"},
	{"examples/pressclient", []string{"mcp", "mcphttp", "ext/tasks"}, "examples are what users write"},
	{"examples/protected", []string{"mcp", "mcphttp", "oauth"}, "examples are what users write"},
	{"cmd/patchbay", []string{"internal/cli"}, "commands wire, they do not work"},
}

// allowedOutside are the modules that a package may use besides our own; each has its decision in docs/adr. Those under
// the empty name are for every package.
var allowedOutside = map[string][]string{
	"":                    {"github.com/go-json-experiment/json"},
	"mcptest":             {"github.com/santhosh-tekuri/jsonschema/v6"},
	"oauth":               {"github.com/go-jose/go-jose/v4"},
	"oauth/authserver":    {"github.com/go-jose/go-jose/v4", "github.com/coreos/go-oidc/v3", "golang.org/x/oauth2", "go.etcd.io/bbolt"},
	"ext/tasks/boltstore": {"go.etcd.io/bbolt"},
	"ext/skills":          {"go.yaml.in/yaml/v4"},
	"internal/vault":      {"github.com/zalando/go-keyring", "golang.org/x/sys"},
	"internal/cli":        {"github.com/spf13/cobra", "golang.org/x/term"},
}

// A listed package, as `go list -json` prints it.
type listed struct {
	ImportPath string
	Dir        string
	Imports    []string
	Deps       []string
	Standard   bool
}

func list(t *testing.T, args ...string) []listed {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Imports,Deps,Standard"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p listed
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func TestImportRules(t *testing.T) {
	rules := map[string]rule{}
	for _, r := range importRules {
		rules[r.pkg] = r
	}
	for _, p := range list(t, "./...") {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if name == "" {
			continue // the tests in this folder
		}
		r, ok := rules[name]
		if !ok {
			t.Errorf("package %s has no import rule: decide what it may import and write it down in importRules", name)
			continue
		}
		for _, imported := range p.Imports {
			checkImport(t, name, imported, r)
		}
	}
}

func checkImport(t *testing.T, name, imported string, r rule) {
	t.Helper()
	if own, ok := strings.CutPrefix(imported, module+"/"); ok {
		if !slices.Contains(r.allow, own) {
			t.Errorf("%s imports %s, which its rule does not allow: %s", name, own, r.why)
		}
		return
	}
	first, _, _ := strings.Cut(imported, "/")
	allowed := slices.Concat(allowedOutside[""], allowedOutside[name])
	if strings.Contains(first, ".") && !slices.ContainsFunc(allowed, func(m string) bool { return imported == m || strings.HasPrefix(imported, m+"/") }) {
		t.Errorf("%s imports %s: a new dependency of the SDK needs an ADR and a place in allowedOutside", name, imported)
	}
}

func TestStdioServerDoesNotLinkHTTP(t *testing.T) {
	for _, p := range list(t, "./mcp") {
		for _, banned := range []string{"net/http", "crypto/tls", "net"} {
			if slices.Contains(p.Deps, banned) {
				t.Errorf("mcp links %s: a stdio server must stay small", banned)
			}
		}
	}
}

// sources returns every Go file of the main module, parsed, tests left out.
func sources(t *testing.T, visit func(name string, file *ast.File, set *token.FileSet, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(name, "go.mod")); name != "." && (err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		visit(filepath.ToSlash(name), file, set, text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFilesAndFunctionsStaySmall(t *testing.T) {
	const maxFile, maxFunc = 800, 100
	sources(t, func(name string, file *ast.File, set *token.FileSet, text []byte) {
		if n := bytes.Count(text, []byte("\n")); n > maxFile {
			t.Errorf("%s has %d lines, want at most %d: a file is one noun of the specification", name, n, maxFile)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := set.Position(f.End()).Line - set.Position(f.Pos()).Line; n > maxFunc {
				t.Errorf("%s: %s has %d lines, want at most %d: a function does one thing", name, f.Name.Name, n, maxFunc)
			}
		}
	})
}

func TestProtocolDatesLiveInWire(t *testing.T) {
	date := regexp.MustCompile(`"20\d\d-\d\d-\d\d"`)
	sources(t, func(name string, file *ast.File, set *token.FileSet, _ []byte) {
		if strings.HasPrefix(name, "internal/wire/") || strings.HasPrefix(name, "mcptest/") {
			return // mcptest is a test: it says which revisions it plays
		}
		if strings.HasPrefix(name, "ext/tasks/") && strings.HasSuffix(name, "2025.go") {
			return // an extension cannot see wire, and one revision has tasks of its own
		}
		if name == "ext/apps/apps.go" {
			return // an extension's own revision, which no revision of the protocol knows of
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && date.MatchString(lit.Value) {
				t.Errorf("%s: %s: code asks a revision for a feature, never for its date", set.Position(lit.Pos()), lit.Value)
			}
			return true
		})
	})
}

// eraFiles are where the words of the session era may stand: the edge, its contract with transports, the options that
// bound it, the trace that shows what travels, and the tests' client.
var eraFiles = regexp.MustCompile(`^(internal/(legacy|wire)/.*|mcphttp/([a-z_]*session[a-z_]*|[a-z_]*sse2024[a-z_]*|handler|doc|options)\.go|mcp/(serve|connect|transport|inmemory|doc)\.go|internal/cli/trace\.go|ext/tasks/[a-z_]*2025[a-z_]*\.go|mcptest/.*)$`)

func TestErasAreDecidedAtTheEdge(t *testing.T) {
	word := regexp.MustCompile(`(?i)legacy|session`)
	sources(t, func(name string, file *ast.File, set *token.FileSet, _ []byte) {
		if eraFiles.MatchString(name) {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if _, ok := n.(*ast.SelectorExpr); ok {
				return false // a name that another package chose
			}
			// A header is called by its name wherever headers are checked.
			if id, ok := n.(*ast.Ident); ok && id.Name != "headerSession" && word.MatchString(id.Name) {
				t.Errorf("%s: %s: feature code knows no era; only the edge does", set.Position(id.Pos()), id.Name)
			}
			return true
		})
	})
}

func TestOnePackageCommentPerPackage(t *testing.T) {
	comments := map[string][]string{}
	sources(t, func(name string, file *ast.File, _ *token.FileSet, _ []byte) {
		dir := path.Dir(name)
		if file.Doc != nil {
			comments[dir] = append(comments[dir], name)
		} else if comments[dir] == nil {
			comments[dir] = []string{}
		}
	})
	for dir, files := range comments {
		if len(files) != 1 {
			t.Errorf("package %s has %d package comments %v, want one", dir, len(files), files)
		}
	}
}

func TestExportedIdentifiersAreDocumented(t *testing.T) {
	sources(t, func(name string, file *ast.File, set *token.FileSet, _ []byte) {
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && receiverExported(d) && d.Doc == nil {
					t.Errorf("%s: %s has no doc comment", set.Position(d.Pos()), d.Name.Name)
				}
			case *ast.GenDecl:
				checkSpecs(t, set, d)
			}
		}
	})
}

func receiverExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	var b bytes.Buffer
	_ = printer.Fprint(&b, token.NewFileSet(), d.Recv.List[0].Type)
	return ast.IsExported(strings.TrimLeft(b.String(), "*"))
}

func checkSpecs(t *testing.T, set *token.FileSet, d *ast.GenDecl) {
	t.Helper()
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
				t.Errorf("%s: type %s has no doc comment", set.Position(s.Pos()), s.Name.Name)
			}
		case *ast.ValueSpec:
			for _, n := range s.Names {
				if n.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					t.Errorf("%s: %s has no doc comment", set.Position(n.Pos()), n.Name)
				}
			}
		}
	}
}

// TestAPIIsGolden shows every change of the exported surface in review. Run with -update after a wanted one.
func TestAPIIsGolden(t *testing.T) {
	total := 0
	for _, name := range []string{"jsonrpc", "mcp", "mcphttp", "mcptest", "host", "oauth", "oauth/authserver", "ext/tasks", "ext/tasks/boltstore", "ext/tasks/storetest", "ext/apps", "ext/skills"} {
		surface := exported(t, name)
		total += len(surface)
		got := strings.Join(surface, "\n") + "\n"
		golden := filepath.Join("api", strings.ReplaceAll(name, "/", "-")+".txt")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is not current: look at the change of the exported surface, then run `go test . -update`", golden)
		}
	}
	t.Logf("%d exported identifiers and methods", total)
}

// exported lists the exported surface of a package, one line each.
func exported(t *testing.T, dir string) []string {
	t.Helper()
	set := token.NewFileSet()
	var files []*ast.File
	sources(t, func(name string, _ *ast.File, _ *token.FileSet, text []byte) {
		if path.Dir(name) != dir {
			return
		}
		file, err := parser.ParseFile(set, name, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	})
	p, err := doc.NewFromFiles(set, files, module+"/"+dir)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	funcs := func(fs []*doc.Func) {
		for _, f := range fs {
			decl := *f.Decl
			decl.Body, decl.Doc = nil, nil
			add("%s", oneLine(set, &decl))
		}
	}
	values := func(vs []*doc.Value) {
		for _, v := range vs {
			for _, n := range v.Names {
				if ast.IsExported(n) {
					add("%s %s", v.Decl.Tok, n)
				}
			}
		}
	}
	values(p.Consts)
	values(p.Vars)
	funcs(p.Funcs)
	for _, typ := range p.Types {
		add("type %s", typ.Name)
		values(typ.Consts)
		values(typ.Vars)
		funcs(typ.Funcs)
		funcs(typ.Methods)
	}
	slices.Sort(lines)
	return lines
}

func oneLine(set *token.FileSet, node any) string {
	var b bytes.Buffer
	_ = printer.Fprint(&b, set, node)
	return strings.Join(strings.Fields(b.String()), " ")
}

// TestREADMECodeIsCompiled keeps the README true: its Go code stands in a program that compiles.
func TestREADMECodeIsCompiled(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)<!-- from (\\S+) -->\n```go\n(.*?)```").FindAllSubmatch(readme, -1)
	if fences := bytes.Count(readme, []byte("```go")); len(blocks) != fences || fences == 0 {
		t.Fatalf("%d of %d Go blocks say which program they are from", len(blocks), fences)
	}
	for _, b := range blocks {
		program, err := os.ReadFile(string(b[1]))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(program, b[2]) {
			t.Errorf("the block from %s is not in it", b[1])
		}
	}
}
