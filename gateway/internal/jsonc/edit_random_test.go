package jsonc_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/internal/jsonc"
)

// A generator writes random JSON with comments, as people format it and in other ways.
type generator struct {
	*rand.Rand
	text    strings.Builder
	newline string
	counter int
}

// space writes white space and comments. Each comment is unique.
func (g *generator) space() {
	for g.IntN(3) == 0 {
		g.counter++
		switch g.IntN(6) {
		case 0:
			fmt.Fprintf(&g.text, "// c%d \"}{, /*%s", g.counter, g.newline)
		case 1:
			fmt.Fprintf(&g.text, "/* c%d%s], // */", g.counter, g.newline)
		case 2:
			g.text.WriteString(g.newline + strings.Repeat(" ", g.IntN(4)))
		case 3:
			g.text.WriteString("\t")
		default:
			g.text.WriteString(" ")
		}
	}
}

func (g *generator) value(depth int) {
	switch n := g.IntN(7); {
	case depth > 0 && n < 3:
		g.object(depth, nil)
	case depth > 0 && n == 3:
		g.list(depth)
	default:
		g.text.WriteString([]string{`1`, `"// {"`, `null`, `-1.5e3`, `"\"\\"`, `"/*"`, `{}`, `[]`}[g.IntN(8)])
	}
}

func (g *generator) list(depth int) {
	g.text.WriteString("[")
	n := g.IntN(3)
	for i := range n {
		g.space()
		g.value(depth - 1)
		g.space()
		if i < n-1 || g.IntN(3) == 0 {
			g.text.WriteString(",")
		}
	}
	g.space()
	g.text.WriteString("]")
}

// object writes an object that has members of the given names, whose values are objects, and others.
func (g *generator) object(depth int, names []string) {
	members := map[int]string{}
	n := g.IntN(4)
	for i := range n {
		members[i] = ""
	}
	if len(names) > 0 && g.IntN(4) > 0 {
		n = max(n, 1)
		members[g.IntN(n)] = names[0]
	}
	g.text.WriteString("{")
	for i := range n {
		g.space()
		g.counter++
		name := fmt.Sprintf("m%d", g.counter)
		if members[i] != "" {
			name = members[i]
		}
		fmt.Fprintf(&g.text, "%q", name)
		g.space()
		g.text.WriteString(":")
		g.space()
		if members[i] != "" && len(names) > 1 {
			g.object(depth-1, names[1:])
		} else {
			g.value(depth - 1)
		}
		g.space()
		if i < n-1 || g.IntN(3) == 0 {
			g.text.WriteString(",")
		}
	}
	g.space()
	g.text.WriteString("}")
}

// randomText returns a text that may have the member servers.p.
func randomText(seed uint64) string {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), newline: "\n"}
	if g.IntN(3) == 0 {
		g.newline = "\r\n"
	}
	g.space()
	g.object(4, []string{"servers", "p"})
	g.space()
	return g.text.String()
}

// Every valid text can be edited and the edit undone: no other value changes, and no comment outside
// the entry is lost.
func TestEditsOfRandomTexts(t *testing.T) {
	const rounds = 3_000 // FuzzEditOfRandomText runs more
	exact, all := 0, 0
	for seed := range uint64(rounds) {
		switch checkRandomEdit(t, seed) {
		case undoneExactly:
			exact++
			fallthrough
		case undone:
			all++
		}
	}
	if exact*100 < all*95 || all < rounds/10 {
		t.Errorf("%d of %d edits were undone to the byte, want nearly all", exact, all)
	}
}

func FuzzEditOfRandomText(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { checkRandomEdit(t, seed) })
}

// Results of checkRandomEdit.
const (
	replaced      = iota // the text had the entry, or no other
	undone               // the comments and values are those of the text
	undoneExactly        // all bytes are those of the text
)

func checkRandomEdit(t *testing.T, seed uint64) int {
	path := []string{"servers", "p"}
	text := []byte(randomText(seed))
	plain := decoded(t, text, "p")
	without, err := jsonc.Remove(text, path)
	had := err == nil
	if !had {
		without = text
	}
	added, err := jsonc.Set(text, path, []byte(entry))
	if err != nil {
		t.Fatalf("seed %d: %v\n%s", seed, err, text)
	}
	removed, err := jsonc.Remove(added, path)
	if err != nil {
		t.Fatalf("seed %d: remove: %v\n%s", seed, err, added)
	}
	for _, got := range [][]byte{without, added, removed} {
		if !reflect.DeepEqual(decoded(t, got, "p"), plain) {
			t.Fatalf("seed %d: %s\nbecame %s", seed, text, got)
		}
	}
	if want, got := fmt.Sprint(comments(without)), fmt.Sprint(comments(removed)); got != want {
		t.Fatalf("seed %d: comments %s, want %s", seed, got, want)
	}
	switch {
	case had || !hasOthers(t, text):
		return replaced
	case bytes.Equal(removed, text):
		return undoneExactly
	}
	return undone
}

// hasOthers reports whether servers has members, so that removing one leaves an object as it was.
func hasOthers(t *testing.T, text []byte) bool {
	servers, _ := decoded(t, text, "p").(map[string]any)["servers"].(map[string]any)
	return len(servers) > 0
}
