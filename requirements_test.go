package patchbay_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// requirementsFile lists the requirements of the specification.
const requirementsFile = "docs/requirements.md"

var (
	requirementRow = regexp.MustCompile(`(?m)^\| ([A-Z]+-\d+) \| (.*) \|$`)
	// In the name of a test, requirements come first: TestHDR24_HDR31_Words, TestMHTTP13to17_Words.
	requirementInName = regexp.MustCompile(`^([A-Z]+)(\d{2,})(?:to(\d{2,}))?$`)
	// In the name of a subtest: "HDR-24 words", "HDR24, HDR31: words".
	requirementInText = regexp.MustCompile(`^([A-Z]+)-?(\d{2,})(?:[ ,:]+|$)`)
)

// TestRequirements fails for a requirement that no test carries, unless its reason is in the last
// table of the file. Those of hosts and of the page about security have no such reasons.
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
		if _, known := lines[id]; !known && isRequirementPrefix(lines, id) {
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

// carriedRequirements returns a test for each requirement that the name of a test or subtest carries.
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
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if name, ok := strings.CutPrefix(n.Name.Name, "Test"); ok {
					addNameRequirements(carried, name, path)
				} else if name, ok := strings.CutPrefix(n.Name.Name, "Fuzz"); ok {
					addNameRequirements(carried, name, path)
				}
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil {
					addTextRequirements(carried, text, path)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return carried
}

func addNameRequirements(carried map[string]string, name, path string) {
	for part := range strings.SplitSeq(name, "_") {
		m := requirementInName.FindStringSubmatch(part)
		if m == nil {
			return
		}
		first, _ := strconv.Atoi(m[2]) // digits
		last := first
		if m[3] != "" {
			last, _ = strconv.Atoi(m[3])
		}
		for n := first; n <= last; n++ {
			carried[fmt.Sprintf("%s-%02d", m[1], n)] = path + ": Test" + name
		}
	}
}

func addTextRequirements(carried map[string]string, text, path string) {
	for m := requirementInText.FindStringSubmatch(text); m != nil; m = requirementInText.FindStringSubmatch(text) {
		carried[m[1]+"-"+m[2]] = fmt.Sprintf("%s: %.40q", path, text)
		text = text[len(m[0]):]
	}
}

// isRequirementPrefix reports whether there are requirements with the letters of id: others, such as
// RFC 7591 or SHA-256, are not requirements.
func isRequirementPrefix(lines map[string]string, id string) bool {
	prefix, _, _ := strings.Cut(id, "-")
	_, first := lines[prefix+"-01"]
	return first
}
