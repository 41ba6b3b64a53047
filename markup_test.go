package patchbay_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"testing"
)

const markupPackage = module + "/internal/markup"

// A text that the program does not contain becomes HTML through markup.Text only. The compiler accepts the
// conversion of any string.
func TestHTMLIsLiteralOrEscaped(t *testing.T) {
	users := 0
	sources(t, func(name string, file *ast.File, set *token.FileSet, _ []byte) {
		if path.Dir(name) == "internal/markup" {
			return // defines the escape
		}
		if slices.ContainsFunc(file.Imports, importsMarkup) {
			users++
		}
		for _, at := range unescaped(file) {
			t.Errorf("%s: a value of markup.HTML must be a literal, or the result of markup.Text", set.Position(at))
		}
	})
	if users < 2 {
		t.Errorf("%d files import %s, want those of the pages of logins", users, markupPackage)
	}
}

func TestUnescapedHTMLIsFound(t *testing.T) {
	const usual = `import "` + markupPackage + `"; `
	for source, want := range map[string]int{
		usual + "var a = markup.HTML(`<p>`)":                           0,
		usual + "var a = markup.HTML(`<p>` + \"</p>\")":                0,
		usual + "var a markup.HTML = `<p>` + markup.Text(x)":           0,
		usual + "func f() markup.HTML { return g[markup.Table]() }":    0,
		usual + "var a = markup.HTML(x)":                               1,
		usual + "var a = `<p>` + (markup.HTML)(x.Name)":                1,
		usual + "var a = markup.HTML(`<p>` + x) + markup.HTML(f(`x`))": 2,
		usual + "type T = markup.HTML":                                 1,
		usual + "type T markup.HTML":                                   1,
		`import m "` + markupPackage + `"; var a = m.HTML(x)`:          1,
		`import . "` + markupPackage + `"; var a = HTML(x)`:            1,
		`import "example.com/markup"; var a = markup.HTML(x)`:          0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; "+source, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(unescaped(file)); got != want {
			t.Errorf("%s: got %d, want %d", source, got, want)
		}
	}
}

func importsMarkup(s *ast.ImportSpec) bool { return s.Path.Value == strconv.Quote(markupPackage) }

// unescaped returns the places of a file at which a text could become HTML without an escape: conversions of
// anything but literals, other names of the type, and the import that hides them.
func unescaped(file *ast.File) (found []token.Pos) {
	at := slices.IndexFunc(file.Imports, importsMarkup)
	if at < 0 {
		return nil
	}
	name := "markup"
	if n := file.Imports[at].Name; n != nil {
		if name = n.Name; name == "." {
			return []token.Pos{n.Pos()}
		}
	}
	isHTML := func(e ast.Expr) bool {
		s, ok := ast.Unparen(e).(*ast.SelectorExpr)
		if !ok || s.Sel.Name != "HTML" {
			return false
		}
		x, ok := s.X.(*ast.Ident)
		return ok && x.Name == name
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if isHTML(n.Fun) && !isLiteral(n.Args[0]) {
				found = append(found, n.Pos())
			}
		case *ast.TypeSpec:
			if isHTML(n.Type) {
				found = append(found, n.Pos())
			}
		}
		return true
	})
	return found
}

// isLiteral reports whether an expression consists of literals.
func isLiteral(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.BasicLit:
		return true
	case *ast.BinaryExpr:
		return isLiteral(e.X) && isLiteral(e.Y)
	}
	return false
}
