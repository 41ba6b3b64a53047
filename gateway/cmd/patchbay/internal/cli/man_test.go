package cli

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestManualHasEveryCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "man")
	if o := patchbay(t, "", "man", dir); o.status != exitOK || o.stdout != "" || !strings.Contains(o.stderr, "man -M "+dir+" patchbay\n") {
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
	for _, cmd := range append(documented(root), root) {
		file := filepath.Join(dir, "man"+manSection(cmd), manName(cmd)+"."+manSection(cmd))
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
		for _, sub := range documented(cmd) {
			if !strings.Contains(string(text), ".BR "+roff(manName(sub))+" (") {
				t.Errorf("%s does not list %s", file, sub.CommandPath())
			}
		}
	}
	for _, args := range [][]string{{"man"}, {"man", "a", "b"}} {
		if o := patchbay(t, "", args...); o.status != exitUsage {
			t.Errorf("%q: got %+v", args, o)
		}
	}
	occupied := filepath.Join(t.TempDir(), "file")
	writeFile(t, occupied, "")
	if o := patchbay(t, "", "man", occupied); o.status != exitFailure || !strings.Contains(o.stderr, occupied) {
		t.Errorf("a file: got %+v", o)
	}
}

func TestTextMeansItselfToTroff(t *testing.T) {
	for text, want := range map[string]string{
		".so /etc/passwd": `\&.so /etc/passwd`, "'x": `\&\(aqx`, `a\fBb`: `a\efBb`, "--x": `\-\-x`, "…": `\[u2026]`,
		"~`^": `\(ti\(ga\(ha`, "": "",
	} {
		if got := roff(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	const text = "One\ntwo.\n\n  a  b\n\n  c\nThree\n"
	if got, want := roffText(text), "One\ntwo.\n.PP\n.nf\n  a  b\n\n  c\n.fi\n.PP\nThree\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
