package patchbay_test

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// notCode are the first lines of indented blocks in doc comments that are no Go code.
var notCode = map[string]bool{
	"official Go SDK mcp-go this package": true, // a table of names
}

// TestDocCommentCodeRuns checks that the code in the doc comments of the packages that users import
// is part of a test of the package: statements of a function that go test runs, other code of any
// file that it compiles.
func TestDocCommentCodeRuns(t *testing.T) {
	tests := map[string]*testCode{} // by folder
	total := 0
	sources(t, func(name string, file *ast.File, set *token.FileSet, _ []byte) {
		dir := path.Dir(name)
		if file.Name.Name == "main" || strings.Contains(name, "internal/") {
			return
		}
		for _, group := range file.Comments {
			for _, block := range codeBlocks(group.Text()) {
				total++
				if tests[dir] == nil {
					tests[dir] = readTests(t, dir)
				}
				code := tests[dir].compiled
				if isStatements(block) {
					code = tests[dir].run
				}
				for part := range strings.SplitSeq(block, "\n\n") {
					if !strings.Contains(code, "\n"+plainLines(part)) {
						t.Errorf("%s: this code is not part of a test in %s that go test runs:\n%s",
							set.Position(group.Pos()), dir, part)
					}
				}
			}
		}
	})
	if total < 30 {
		t.Errorf("found %d blocks of code, want at least 30", total)
	}
}

// codeBlocks returns the indented blocks of a doc comment that are code.
func codeBlocks(text string) (blocks []string) {
	var p comment.Parser
	for _, b := range p.Parse(text).Content {
		if code, ok := b.(*comment.Code); ok {
			if first, _, _ := strings.Cut(plainLines(code.Text), "\n"); !notCode[first] && !strings.HasPrefix(first, "go run ") {
				blocks = append(blocks, code.Text)
			}
		}
	}
	return blocks
}

// isStatements reports whether code can be the body of a function.
func isStatements(code string) bool {
	_, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc _() {\n"+code+"\n}", parser.SkipObjectResolution)
	return err == nil
}

// plainLines returns code without empty lines, indentation and alignment. Each line ends with \n.
func plainLines(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		if fields := strings.Fields(line); len(fields) > 0 {
			b.WriteString(strings.Join(fields, " ") + "\n")
		}
	}
	return b.String()
}

// testCode is the code of the tests in one folder, as plainLines returns it.
type testCode struct {
	compiled string // all of it
	run      string // the tests, and the examples that have output
}

func readTests(t *testing.T, dir string) *testCode {
	t.Helper()
	names, err := filepath.Glob(path.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names = append(names, "conformance/doc_test.go") // which uses the servers of other projects
	code := &testCode{"\n", "\n"}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		code.compiled += plainLines(string(text))
		withOutput := map[string]bool{}
		for _, e := range doc.Examples(file) {
			withOutput["Example"+e.Name] = e.Output != "" || e.EmptyOutput
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || withOutput[f.Name.Name]) {
				code.run += plainLines(string(text[set.Position(f.Pos()).Offset:set.Position(f.End()).Offset]))
			}
		}
	}
	return code
}
