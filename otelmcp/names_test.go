package otelmcp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// The reference lists all names that semconv.go defines.
func TestReferenceListsNames(t *testing.T) {
	reference, err := os.ReadFile("../docs/telemetry-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "semconv.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		value, ok := spec.Values[0].(*ast.BasicLit)
		if name := spec.Names[0].Name; ok && (strings.HasPrefix(name, "attr") || strings.HasPrefix(name, "metric")) {
			found++
			if !strings.Contains(string(reference), "`"+strings.Trim(value.Value, `"`)+"`") {
				t.Errorf("telemetry-reference.md does not contain %s", value.Value)
			}
		}
		return true
	})
	if found < 35 {
		t.Errorf("found %d names, want at least 35", found)
	}
}
