package patchbay_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// requirementsFile lists the requirements of the specification.
const requirementsFile = "docs/requirements.md"

var (
	requirementRow = regexp.MustCompile(`(?m)^\| ([A-Z]+-\d+) \| (.*) \|$`)
	// Above a test, or at the case of a table or a subtest: // Requirement: HDR-24, HDR-31
	requirementComment = regexp.MustCompile(`^// Requirement: ([A-Z]+-\d{2,}(?:, [A-Z]+-\d{2,})*)$`)
	// A requirement in the name of a test, where nobody looks for it: TestHDR24_Words.
	requirementInName = regexp.MustCompile(`^(?:Test|Fuzz)[A-Z]+\d{2,}(?:to\d+)?_`)
)

// TestRequirements fails for a requirement that no comment of a test names, unless the last table of
// the file contains the reason. Requirements of hosts and of the page about security must have a test.
func TestRequirements(t *testing.T) {
	lines, reasons := readRequirements(t)
	carried := carriedRequirements(t)
	var missing []string
	for id := range lines {
		switch {
		case carried[id] != "" && reasons[id] != "":
			t.Errorf("%s carries %s, which %s calls untestable: %s", carried[id], id, requirementsFile, reasons[id])
		case reasons[id] != "" && (strings.HasPrefix(id, "HOST-") || strings.HasPrefix(id, "SEC-")):
			t.Errorf("%s calls %s untestable: this project has hosts and gateways", requirementsFile, id)
		case carried[id] != "" || reasons[id] != "":
		default:
			missing = append(missing, id)
		}
	}
	for id, where := range carried {
		if _, known := lines[id]; !known {
			t.Errorf("%s carries %s, which is not in %s", where, id, requirementsFile)
		}
	}
	slices.Sort(missing)
	t.Logf("%d requirements: %d not testable, %d carried", len(lines), len(reasons),
		len(lines)-len(reasons)-len(missing))
	for _, id := range missing {
		t.Errorf("no test carries %s: %s", id, lines[id])
	}
}

// readRequirements returns the lines by id, and the reasons of those that no test can prove.
func readRequirements(t *testing.T) (lines, reasons map[string]string) {
	t.Helper()
	text, err := os.ReadFile(requirementsFile)
	if err != nil {
		t.Fatal(err)
	}
	table, untested, found := strings.Cut(string(text), "## Lines without a test")
	if !found {
		t.Fatalf("%s has no table of lines without a test", requirementsFile)
	}
	rows := func(text string) map[string]string {
		all := map[string]string{}
		for _, row := range requirementRow.FindAllStringSubmatch(text, -1) {
			if all[row[1]] != "" {
				t.Errorf("%s has two lines %s", requirementsFile, row[1])
			}
			all[row[1]] = row[2]
		}
		return all
	}
	lines, reasons = rows(table), rows(untested)
	for _, id := range slices.Sorted(maps.Keys(reasons)) {
		if lines[id] == "" {
			t.Errorf("%s gives a reason for an unknown line %s", requirementsFile, id)
		}
	}
	return lines, reasons
}

// carriedRequirements returns a test for each requirement that a comment of the test names.
func carriedRequirements(t *testing.T) map[string]string {
	t.Helper()
	carried := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || len(d.Name()) > 1 && d.Name()[0] == '.'):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		for _, group := range file.Comments {
			for _, comment := range group.List {
				if !strings.HasPrefix(comment.Text, "// Requirement:") {
					continue
				}
				where := files.Position(comment.Pos()).String()
				m := requirementComment.FindStringSubmatch(comment.Text)
				if m == nil || !belongsToTest(file, comment) {
					t.Errorf("%s: %q must name requirements such as HDR-24, above a test or in the code of tests",
						where, comment.Text)
					continue
				}
				for id := range strings.SplitSeq(m[1], ", ") {
					carried[id] = where
				}
			}
		}
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && requirementInName.MatchString(f.Name.Name) {
				t.Errorf("%s: the name %s contains a requirement: write a comment // Requirement: ID, and name what is tested",
					files.Position(f.Pos()), f.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return carried
}

// belongsToTest reports whether a comment documents a test, or lies within a declaration of a file of tests.
func belongsToTest(file *ast.File, comment *ast.Comment) bool {
	return slices.ContainsFunc(file.Decls, func(declaration ast.Decl) bool {
		start := declaration.Pos()
		if f, ok := declaration.(*ast.FuncDecl); ok && f.Doc != nil &&
			(strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
			start = f.Doc.Pos()
		}
		// A comment at the end of the last line of a declaration lies behind it.
		return start <= comment.Pos() && comment.Pos() <= declaration.End()
	})
}
