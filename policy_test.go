// Package patchbay_test checks the rules of the whole repository. Each failure says why the rule
// exists.
package patchbay_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
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

// productModules are the folders of the modules that users build. The others are for development
// only.
var productModules = []string{".", "stores", "gateway", "otelmcp", "examples"}

var update = flag.Bool("update", false, "rewrite the golden files under api/")

// A goPackage is a package as go list -json prints it.
type goPackage struct {
	ImportPath string
	Dir        string
	Imports    []string
	Deps       []string
	Standard   bool
}

func list(t *testing.T, args ...string) []goPackage {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Imports,Deps,Standard"},
		args...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p goPackage
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func TestStdioServerDoesNotLinkHTTP(t *testing.T) {
	for _, p := range list(t, "./mcp") {
		for _, refused := range []string{"net/http", "crypto/tls", "net"} {
			if slices.Contains(p.Deps, refused) {
				t.Errorf("mcp links %s: a stdio server must stay small", refused)
			}
		}
	}
}

// Importing a package of OpenTelemetry that links gRPC would add 2 MB. See ADR 39.
func TestCommandDoesNotLinkGRPC(t *testing.T) {
	for _, p := range list(t, "./gateway/cmd/patchbay") {
		if i := slices.IndexFunc(p.Deps, func(dep string) bool {
			return isBelow(dep, []string{"google.golang.org/grpc", "github.com/grpc-ecosystem"})
		}); i >= 0 {
			t.Errorf("the command links %s", p.Deps[i])
		}
	}
}

// sources visits every Go file of the product modules, parsed, except tests and generated files.
func sources(t *testing.T, visit func(name string, file *ast.File, set *token.FileSet, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, err := os.Stat(filepath.Join(name, "go.mod"))
			otherModule := err == nil && !slices.Contains(productModules, filepath.ToSlash(name))
			if name != "." && (otherModule || strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") {
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
		if !ast.IsGenerated(file) {
			visit(filepath.ToSlash(name), file, set, text)
		}
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
				t.Errorf("%s: %s has %d lines, want at most %d: a function does one thing", name, f.Name.Name, n,
					maxFunc)
			}
		}
	})
}

func TestProtocolDatesLiveInWire(t *testing.T) {
	date := regexp.MustCompile(`"20\d\d-\d\d-\d\d"`)
	sources(t, func(name string, file *ast.File, set *token.FileSet, _ []byte) {
		if strings.HasPrefix(name, "internal/wire/") || strings.HasPrefix(name, "mcptest/") {
			return // mcptest is a test package: it names revisions
		}
		if strings.HasPrefix(name, "ext/tasks/") && strings.HasSuffix(name, "2025.go") {
			return // extensions do not import wire, and one revision has its own form of tasks
		}
		if name == "ext/apps/tool.go" {
			return // the extension has its own revisions
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && date.MatchString(lit.Value) {
				t.Errorf("%s: %s: ask a revision for a feature instead of comparing dates", set.Position(lit.Pos()),
					lit.Value)
			}
			return true
		})
	})
}

// eraFiles are the files whose identifiers may name an era: the edge, its contract with transports,
// the options that bound it or choose it, stores of the events of sessions, the trace of messages,
// the shell that reports lost sessions, the host, which shares connections by sessions, metrics of
// sessions, the records that replicas share, and the client of the tests.
var eraFiles = regexp.MustCompile(`^(internal/(legacy|wire)/.*` +
	`|mcphttp/([a-z_]*session[a-z_]*|[a-z_]*sse2024[a-z_]*|handler|doc|options|stats)\.go` +
	`|mcp/(serve|connect|connector|connector_session|transport|inmemory|observer|doc)\.go|gateway/cmd/patchbay/internal/(connect/trace|cmd/shell/transport)\.go` +
	`|mcp/driver/.*|ext/tasks/[a-z_]*2025[a-z_]*\.go|mcptest/.*|otelmcp/.*|gateway/(session|admin_servers|admin_stats)\.go` +
	`|examples/forwarder/host\.go|host/.*\.go|replica/.*\.go` +
	`|(stores/redis|storetest)/(events|sessions)\.go)$`)

func TestErasAreDecidedAtTheEdge(t *testing.T) {
	word := regexp.MustCompile(`(?i)legacy|session`)
	sources(t, func(name string, file *ast.File, set *token.FileSet, _ []byte) {
		if eraFiles.MatchString(name) {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if _, ok := n.(*ast.SelectorExpr); ok {
				return false // declared elsewhere
			}
			// headerSession is the name of a header.
			if id, ok := n.(*ast.Ident); ok && id.Name != "headerSession" && word.MatchString(id.Name) {
				t.Errorf("%s: %s: only the files at the edge may depend on an era", set.Position(id.Pos()), id.Name)
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

// documents returns the contents of the pages in the root, of the guides, of the pages of errors, and
// of the list of examples, by file name.
func documents(t *testing.T) map[string][]byte {
	t.Helper()
	texts := map[string][]byte{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/errors/*.md", "examples/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("no pages match %s: %v", pattern, err)
		}
		for _, name := range names {
			if texts[name], err = os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	return texts
}

// TestDocumentCodeIsCompiled checks that each block of Go code in the README and the guides is part
// of a file that compiles: a program, or a test whose output is checked.
func TestDocumentCodeIsCompiled(t *testing.T) {
	source := regexp.MustCompile("(?s)<!-- from (\\S+\\.go) -->\n```go\n(.*?)```")
	total := 0
	for name, text := range documents(t) {
		blocks := source.FindAllSubmatch(text, -1)
		if fences := bytes.Count(text, []byte("```go")); len(blocks) != fences {
			t.Errorf("%s: %d Go blocks name the file that they are from, want all %d", name, len(blocks), fences)
		}
		for _, b := range blocks {
			total++
			program, err := os.ReadFile(string(b[1]))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(program, b[2]) {
				t.Errorf("%s: the block from %s is not part of that file:\n%s", name, b[1], b[2])
			}
		}
	}
	if total == 0 {
		t.Error("no Go blocks found")
	}
}

// TestDocumentLinksExist checks the links between files of the repository.
func TestDocumentLinksExist(t *testing.T) {
	code := regexp.MustCompile("(?s)```.*?```")
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for name, text := range documents(t) {
		for _, l := range link.FindAllSubmatch(code.ReplaceAll(text, nil), -1) {
			target, _, _ := strings.Cut(string(l[1]), "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), target)); err != nil {
				t.Errorf("%s: link %s: no such file", name, l[1])
			}
		}
	}
}

// programErrors are the files whose errors may name fields, because they report mistakes of the program
// that uses the package: in the options of a constructor or the result of a function.
var programErrors = strings.Fields(`
	ext/apps/bridge.go ext/apps/page.go ext/skills/snapshot.go gateway/audit/audit.go host/internal/round/state.go
	internal/dpop/prover.go internal/dpop/verifier.go
	mcp/client.go mcp/client_call.go mcp/connect.go mcp/input.go mcphttp/session_post.go mcphttp/transport.go
	oauth/authserver/client.go oauth/authserver/keys.go oauth/authserver/metadata.go oauth/authserver/options.go
	oauth/authserver/server.go oauth/oauthclient/grant_enterprise.go`)

var fieldName = regexp.MustCompile(`\b([A-Z]\w*)?(Options|Transport)\.[A-Z]|\bInsecure[A-Z]`)

// TestMessagesDoNotNameFields finds names of Go fields in messages that operators of a program read.
func TestMessagesDoNotNameFields(t *testing.T) {
	found := map[string]bool{}
	sources(t, func(name string, file *ast.File, set *token.FileSet, _ []byte) {
		ast.Inspect(file, func(n ast.Node) bool {
			text, ok := n.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING || !fieldName.MatchString(text.Value) || strings.HasPrefix(name, "examples/") {
				return true
			}
			found[name] = true
			if !slices.Contains(programErrors, name) {
				t.Errorf("%s: %s: say what to configure, not the field", set.Position(text.Pos()), text.Value)
			}
			return true
		})
	})
	for _, name := range programErrors {
		if !found[name] {
			t.Errorf("%s names no field: remove it from programErrors", name)
		}
	}
}
