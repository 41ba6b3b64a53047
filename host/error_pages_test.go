package host_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// errorPages is the folder with a page for each code.
const errorPages = "../docs/errors"

// errorCodes returns the values of all constants of type hosterr.Code.
func errorCodes(t *testing.T) (codes []string) {
	t.Helper()
	files, err := filepath.Glob("hosterr/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			typ, isIdent := spec.Type.(*ast.Ident)
			if value, isLiteral := spec.Values[0].(*ast.BasicLit); isIdent && isLiteral && typ.Name == "Code" {
				code, err := strconv.Unquote(value.Value)
				if err != nil {
					t.Fatal(err)
				}
				codes = append(codes, code)
			}
			return true
		})
	}
	return codes
}

// Each code of an Error has a page, and each page a code; the index has all of them.
//
// Requirement: HOST-41
func TestErrorCodesHavePages(t *testing.T) {
	codes := errorCodes(t)
	files, err := filepath.Glob(errorPages + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var pages []string
	for _, name := range files {
		if name := strings.TrimSuffix(filepath.Base(name), ".md"); name != "README" {
			pages = append(pages, name)
		}
	}
	slices.Sort(codes)
	if diff := cmp.Diff(codes, pages); diff != "" || len(codes) < 15 {
		t.Errorf("codes of hosterr.Error (-) and pages in docs/errors (+) differ:\n%s", diff)
	}
	index, err := os.ReadFile(errorPages + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| \\[`(\\w+)`\\]\\((\\w+)\\.md\\) \\|").FindAllSubmatch(index, -1) {
		if string(row[1]) != string(row[2]) {
			t.Errorf("the index links %s to %s", row[1], row[2])
		}
		listed[string(row[1])] = true
	}
	if diff := cmp.Diff(codes, slices.Sorted(maps.Keys(listed))); diff != "" {
		t.Errorf("codes of hosterr.Error (-) and rows of docs/errors/README.md (+) differ:\n%s", diff)
	}
}

var (
	jsonBlock = regexp.MustCompile("(?s)```json\n(.*?)```")
	// errorText is the form of a text: server, reason, whether the request may have run, code.
	errorText = regexp.MustCompile(`^server "([^"]+)": (.*); the request (may have run|did not run) \(code (\w+)\)$`)
)

// The examples of the pages are what a client receives, byte for byte but for spaces.
func TestErrorPagesHaveTheWireForm(t *testing.T) {
	view := openFile(t, map[string]any{}, `{}`, &host.Options{}).For(&policy.Caller{})
	for _, code := range errorCodes(t) {
		t.Run(code, func(t *testing.T) {
			page, err := os.ReadFile(filepath.Join(errorPages, code+".md"))
			if err != nil {
				t.Fatal(err)
			}
			for _, heading := range []string{"# " + code + "\n", "## Why\n", "## What to do\n", "## On the wire\n"} {
				if !strings.Contains(string(page), heading) {
					t.Errorf("the page has no line %q", heading)
				}
			}
			blocks := jsonBlock.FindAllSubmatch(page, -1)
			if len(blocks) != 2 {
				t.Fatalf("the page has %d blocks of JSON, want the result and the error", len(blocks))
			}
			e := documentedError(t, blocks[1][1])
			if string(e.Code) != code {
				t.Errorf("the example has the code %s", e.Code)
			}
			result, err := host.ResponseOf(view, "tools/call", e)
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, result.(mcp.RawResult), blocks[0][1])
			_, err = host.ResponseOf(view, "resources/read", e)
			fault, ok := errors.AsType[*mcp.Error](err)
			if !ok {
				t.Fatalf("got %v, want an *mcp.Error", err)
			}
			wire, err := json.Marshal(map[string]any{"code": fault.Code, "message": fault.Message, "data": fault.Data})
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, wire, blocks[1][1])
		})
	}
}

// documentedError returns the Error of an example.
func documentedError(t *testing.T, example []byte) *hosterr.Error {
	t.Helper()
	var wire struct {
		Message string
		Data    struct {
			Code, Server string
			MayHaveRun   bool
			RetryAfterMs int64
		}
	}
	if err := json.Unmarshal(example, &wire); err != nil {
		t.Fatal(err)
	}
	m := errorText.FindStringSubmatch(wire.Message)
	if m == nil {
		t.Fatalf("the text does not have the form of an error: %s", wire.Message)
	}
	return &hosterr.Error{Code: hosterr.Code(wire.Data.Code), Server: m[1], MayHaveRun: wire.Data.MayHaveRun,
		RetryAfter: time.Duration(wire.Data.RetryAfterMs) * time.Millisecond, Err: errors.New(m[2])}
}

func sameJSON(t *testing.T, got, want []byte) {
	t.Helper()
	var g, w any
	if err := errors.Join(json.Unmarshal(got, &g), json.Unmarshal(want, &w)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("the page (-) and what a client receives (+) differ:\n%s", diff)
	}
}
