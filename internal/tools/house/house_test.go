package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, (*testing.M).Run)) }

// writeModule writes a module of files by path and returns its folder.
func writeModule(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("GOWORK", "off")
	files["go.mod"] = "module example.com/me/house\n\ngo 1.26.0\n"
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func runHouse(t *testing.T, args ...string) (status int, stdout string) {
	t.Helper()
	var out, failure bytes.Buffer
	status = run(t.Context(), args, &out, &failure)
	if failure.Len() > 0 {
		t.Logf("standard error: %s", failure.Bytes())
	}
	return status, out.String()
}

func TestTableCountsFilesNamesMethodsFieldsAndMutexes(t *testing.T) {
	dir := writeModule(t, map[string]string{
		"door.go": `package house

import "sync"

type Door struct {
	mu   sync.Mutex // guards open
	open bool
}

func (d *Door) Open()  { d.mu.Lock(); d.open = true; d.mu.Unlock() }
func (d *Door) close() { d.open = false }
`,
		"door_windows.go": "package house\n",
		"door_plan9.go":   "package house\n",
		"door_test.go":    "package house\n\nvar InTest int\n",
	})
	status, out := runHouse(t, dir)
	if status != 0 {
		t.Fatalf("status %d", status)
	}
	lines := strings.Split(out, "\n")
	got := strings.Join(strings.Fields(lines[1]), " ")
	if want := "house 3 2 1 0 0 0% Door 2 Door 2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUpwardImportsAreTheFewestInACircle(t *testing.T) {
	dir := writeModule(t, map[string]string{
		// main uses both others, and logic uses data. data uses logic through a method and a field:
		// one import, and the only upward one.
		"main.go": `package house

func Main() { _ = Logic{}.Size + count() }
`,
		"logic.go": `package house

type Logic struct{ Size int }

func (Logic) Step() int { return count() + limit }
`,
		"data.go": `package house

const limit = 3

func count() int { var l Logic; return l.Size + l.Step() }
`,
	})
	_, out := runHouse(t, "-v", dir)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 {
		t.Fatalf("got %q, want a table of one package and one upward import", out)
	}
	if got := strings.Join(strings.Fields(lines[1])[4:7], " "); got != "4 1 25%" {
		t.Errorf("got imports, upward and share %q, want 4 1 25%%", got)
	}
	// The surplus of both files is 0, and data.go needs more names, so data.go is the higher file.
	if want := ": logic.go uses data.go: count, limit"; !strings.HasSuffix(lines[2], want) {
		t.Errorf("got %q, want the suffix %q", lines[2], want)
	}
}

func TestWritesFindsFieldsOfTwoPackages(t *testing.T) {
	files := map[string]string{
		"call/call.go": `package call

type Served struct{ ID string }

func (s *Served) Reset() { s.ID = "" }

type Call struct {
	Set, Incremented, Pointed, Nested, Read, Literal, One int
	Served, Called                                        Served
	Pointer                                               *Served
}

func New() *Call { return &Call{Literal: 1, One: 2} }

func (c *Call) write() { c.Set, c.Incremented, c.Nested, c.Served = 1, 2, 3, Served{}; _ = &c.Pointed; c.Pointer = nil; c.Called = Served{} }
`,
		"stage/stage.go": `package stage

import "example.com/me/house/call"

type round struct{ *call.Call }

func Stage(c *call.Call) int {
	c.Set = 1
	c.Incremented++
	_ = &c.Pointed
	c.Served.ID = "x"
	c.Called.Reset()
	c.Pointer.Reset()
	c.Pointer.ID = "x" // writes the value that Pointer refers to, not Pointer
	round{c}.Nested = 3
	_ = []*call.Call{{Literal: 3}}
	return c.Read
}
`,
	}
	dir := writeModule(t, files)
	status, out := runHouse(t, "-writes", "Call", dir)
	if status != 1 {
		t.Errorf("status %d, want 1: fields have two writing packages", status)
	}
	var fields []string
	for line := range strings.Lines(out) {
		field, packages, _ := strings.Cut(strings.TrimSpace(line), ": ")
		fields = append(fields, field[strings.LastIndexByte(field, '.')+1:])
		if !strings.Contains(packages, "call, ") || !strings.HasSuffix(packages, "stage") {
			t.Errorf("got the packages %q, want call and stage", packages)
		}
	}
	if got, want := strings.Join(fields, " "), "Called Incremented Literal Nested Pointed Served Set"; got != want {
		t.Errorf("got the fields %s, want %s", got, want)
	}
	if status, out := runHouse(t, "-writes", "round", dir); status != 0 || out != "" {
		t.Errorf("got status %d and %q for a type whose field one package writes", status, out)
	}
	if status, _ := runHouse(t, "-writes", "Missing", dir); status != 2 {
		t.Errorf("got status %d for a type that does not exist, want 2", status)
	}
}
