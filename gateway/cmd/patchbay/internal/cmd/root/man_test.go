package root

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/man"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
)

func TestManualHasEveryCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "man")
	if o := patchbay(t, "", "man", dir); o.status != exit.OK || o.stdout != "" || !strings.Contains(o.stderr, "man -M "+dir+" patchbay\n") {
		t.Errorf("got %+v", o)
	}
	o := patchbay(t, "", "man", dir, "--json")
	var got struct{ Pages []string }
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil {
		t.Fatalf("%q: %v", o.stdout, err)
	}
	for _, want := range []string{"man1/patchbay.1", "man1/patchbay-call.1", "man1/patchbay-auth-login.1", "man7/patchbay-json.7"} {
		if !slices.Contains(got.Pages, filepath.FromSlash(want)) {
			t.Errorf("no page %s among %q", want, got.Pages)
		}
	}
	root := rootCommand(newRun(strings.NewReader(""), io.Discard, io.Discard))
	for _, cmd := range append(man.Documented(root), root) {
		file := filepath.Join(dir, "man"+man.ManSection(cmd), man.ManName(cmd)+"."+man.ManSection(cmd))
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		for line := range strings.Lines(string(text)) {
			request, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			known := []string{".TH", ".SH", ".PP", ".TP", ".B", ".BR", ".nf", ".fi"}
			if strings.HasPrefix(line, ".") && !slices.Contains(known, request) || strings.HasPrefix(line, "'") {
				t.Errorf("%s: unknown request %q", file, line)
			}
		}
		for _, sub := range man.Documented(cmd) {
			if !strings.Contains(string(text), ".BR "+man.Roff(man.ManName(sub))+" (") {
				t.Errorf("%s does not list %s", file, sub.CommandPath())
			}
		}
	}
	for _, args := range [][]string{{"man"}, {"man", "a", "b"}} {
		if o := patchbay(t, "", args...); o.status != exit.Usage {
			t.Errorf("%q: got %+v", args, o)
		}
	}
	occupied := filepath.Join(t.TempDir(), "file")
	writeFile(t, occupied, "")
	if o := patchbay(t, "", "man", occupied); o.status != exit.Failure || !strings.Contains(o.stderr, occupied) {
		t.Errorf("a file: got %+v", o)
	}
}
