package configs_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v4"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/internal/jsonc"
)

var gatewayCommand = []string{`C:\Program Files\patchbay.exe`, "gateway", "--stdio", "a \"b\" ${x} \x7f"}

// parsed returns a file of TOML or YAML without the servers within a member, and the servers apart
// from one.
func parsed(t *testing.T, app, text, within, name string) (all, servers map[string]any) {
	t.Helper()
	var err error
	if app == "codex" {
		err = toml.Unmarshal([]byte(text), &all)
	} else if strings.TrimSpace(text) != "" {
		err = yaml.Load([]byte(text), &all)
	}
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if all == nil {
		all = map[string]any{}
	}
	servers, _ = all[within].(map[string]any)
	delete(all, within)
	delete(servers, name)
	return all, servers
}

// comments returns the comments that the generators write, without what is around them.
func comments(text string) (all []string) {
	for line := range strings.Lines(text) {
		if i := strings.Index(line, "#c"); i >= 0 {
			all = append(all, strings.TrimSpace(line[i:]))
		}
	}
	return all
}

// checkEdit installs an entry, checks that all else is the same, and removes it again.
func checkEdit(t *testing.T, app, within, text string) {
	t.Helper()
	const name = "patchbay"
	wantAll, wantServers := parsed(t, app, text, within, name)
	without := text
	if removed, err := configs.Uninstall(app, []byte(text), name); err == nil {
		without = string(removed)
	} else if !errors.Is(err, jsonc.ErrAbsent) {
		t.Fatalf("remove from %s: %v", text, err)
	}
	added, err := configs.Install(app, []byte(text), name, gatewayCommand)
	if err != nil {
		t.Fatalf("install into %s: %v", text, err)
	}
	removed, err := configs.Uninstall(app, added, name)
	if err != nil {
		t.Fatalf("uninstall from %s: %v", added, err)
	}
	for _, got := range []string{without, string(added), string(removed)} {
		all, servers := parsed(t, app, got, within, name)
		if fmt.Sprintf("%#v", all) != fmt.Sprintf("%#v", wantAll) ||
			len(servers)+len(wantServers) > 0 && fmt.Sprintf("%#v", servers) != fmt.Sprintf("%#v", wantServers) {
			t.Fatalf("%s\nbecame\n%s", text, got)
		}
	}
	want := comments(without)
	if got := comments(string(added)); !slices.Equal(got, want) {
		t.Fatalf("comments %q, want %q in\n%s", got, want, added)
	}
	if got := comments(string(removed)); !slices.Equal(got, want) {
		t.Fatalf("comments %q, want %q in\n%s", got, want, removed)
	}
	if without == text && len(wantServers) > 0 && string(removed) != text {
		t.Fatalf("%q\nbecame\n%q\nafter undoing\n%q", text, removed, added)
	}
}

// A textGenerator writes random files with servers, comments and other values.
type textGenerator struct {
	*rand.Rand
	strings.Builder
	newline string
	counter int
}

func newTextGenerator(seed uint64) *textGenerator {
	g := &textGenerator{Rand: rand.New(rand.NewPCG(seed, 2)), newline: "\n"}
	if g.IntN(4) == 0 {
		g.newline = "\r\n"
	}
	return g
}

func (g *textGenerator) one(choices ...string) string { return choices[g.IntN(len(choices))] }

// line ends a line, sometimes with a comment and others after it.
func (g *textGenerator) line(indent string) {
	g.counter++
	if g.IntN(3) == 0 {
		fmt.Fprintf(g, "  #c%d [x] ' \" {", g.counter)
	}
	g.WriteString(g.newline)
	for g.IntN(5) == 0 {
		g.counter++
		g.WriteString(g.one("", indent+fmt.Sprintf("#c%d a: b = ]", g.counter)) + g.newline)
	}
}

func (g *textGenerator) finish() string {
	text := g.String()
	if g.IntN(4) == 0 {
		text = strings.TrimRight(text, "\r\n")
	}
	return text
}

// randomTOML writes a file in the form of Codex.
func randomTOML(seed uint64) string {
	g := newTextGenerator(seed)
	value := func() string {
		return g.one("1", "true", `"#x [mcp_servers.patchbay]"`, `'''`+g.newline+`[mcp_servers.patchbay]'''`, "1979-05-27T07:32:00Z",
			"nan", `["a", # not`+g.newline+`"]"]`, `{ a = "}" }`, `"""x\"""" `, "[[1], [2]]", "0x1F", `'\'`)
	}
	keys := func(indent string) {
		for range g.IntN(3) {
			g.counter++
			fmt.Fprintf(g, "%s%s = %s", indent, fmt.Sprintf(g.one("k%d", "\"k %d\"", "'k.%d'", "a%d . b"), g.counter), value())
			g.line(indent)
		}
	}
	keys("")
	entries := g.IntN(4)
	own := g.IntN(2 * (entries + 1))
	for i := range entries {
		name := fmt.Sprintf("s%d", i)
		if i == own {
			name = g.one("patchbay", `"patchbay"`, "'patchbay'")
		}
		g.WriteString(g.one("[mcp_servers.", "[ mcp_servers . ", `["mcp_servers".`) + name + "]")
		g.line("")
		g.WriteString(`command = "x"`)
		g.line("")
		keys("  ")
		if g.IntN(3) == 0 {
			g.WriteString("[mcp_servers." + name + ".env]")
			g.line("")
			keys("")
		}
		if g.IntN(3) == 0 {
			fmt.Fprintf(g, "[[other%d]]", i)
			g.line("")
			keys("")
		}
	}
	return g.finish()
}

// randomYAML writes a file in the form of Goose.
func randomYAML(seed uint64) string {
	g := newTextGenerator(seed)
	if g.IntN(5) == 0 {
		g.WriteString("---" + g.newline)
	}
	step := g.one("  ", "    ", " ")
	values := func(indent string, n int) {
		for range n {
			g.counter++
			fmt.Fprintf(g, "%sk%d:", indent, g.counter)
			switch g.IntN(6) {
			case 0:
				g.WriteString(g.one(" |", " >-") + g.newline + indent + step + "# not a comment" + g.newline + indent + step + "x: y" +
					g.newline)
			case 1:
				g.line(indent)
				g.WriteString(indent + g.one("", step) + "- a" + g.newline)
			case 2:
				g.WriteString(" \"a" + g.newline + indent + step + "patchbay: b\"" + g.newline)
			default:
				g.WriteString(" " + g.one("1", "yes", ".nan", "'x # y'", "ü", "[a, {b: c}]", "~", "", `"\u00e9"`, "2026-01-02"))
				g.line(indent)
			}
		}
	}
	values("", g.IntN(3))
	if n := g.IntN(4); n > 0 {
		g.WriteString("extensions:")
		own := g.IntN(2 * (n + 1))
		if g.IntN(6) == 0 {
			g.WriteString(" {")
			for i := range n {
				fmt.Fprintf(g, "s%d: {cmd: x, type: stdio}%s", i, g.one(", ", ","+g.newline+"  "))
			}
			if own < n {
				g.WriteString(`patchbay: {"cmd": "x", "type": "stdio"}`)
			}
			g.WriteString("}" + g.newline)
		} else {
			g.line(step)
			for i := range n {
				name := fmt.Sprintf("s%d", i)
				if i == own {
					name = g.one("patchbay", `"patchbay"`)
				}
				g.WriteString(step + name + ":")
				g.line(step)
				g.WriteString(step + step + "type: stdio")
				g.line(step)
				values(step+step, g.IntN(3))
			}
		}
	}
	values("", g.IntN(3))
	return g.finish()
}

func TestEditsOfRandomFiles(t *testing.T) {
	const rounds = 300 // FuzzEditOfFile runs more
	for seed := range uint64(rounds) {
		checkEdit(t, "codex", "mcp_servers", randomTOML(seed))
		checkEdit(t, "goose", "extensions", randomYAML(seed))
	}
}

func FuzzEditOfFile(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		checkEdit(t, "codex", "mcp_servers", randomTOML(seed))
		checkEdit(t, "goose", "extensions", randomYAML(seed))
	})
}
