package term

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/visible"
)

func TestProgressIsFormatted(t *testing.T) {
	four := 4.0
	for want, p := range map[string]mcp.ProgressUpdate{
		"3":         {Progress: 3},
		"3/4":       {Progress: 3, Total: &four},
		"3/4 steps": {Progress: 3, Total: &four, Message: "steps"},
		"drafting":  {Progress: 3, Message: "drafting"},
	} {
		if got := amount(p); got != want {
			t.Errorf("amount(%+v) = %q, want %q", p, got, want)
		}
	}
}

func TestScreenRedrawsTheStatusLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		s := &Screen{W: &b, Terminal: true, Width: func() int { return 40 }}
		check := func(want string) {
			t.Helper()
			if b.String() != want {
				t.Errorf("got %q, want %q", b.String(), want)
			}
			b.Reset()
		}
		total := 4.0
		s.Progress(mcp.ProgressUpdate{Progress: 1, Total: &total, Message: "a\x1bb " + strings.Repeat("long ", 20)})
		check("\r[######..................] 1/4 a\\x1bb …\x1b[K")
		s.Progress(mcp.ProgressUpdate{Progress: 2, Total: &total})
		check("") // too soon
		time.Sleep(redrawInterval)
		s.Progress(mcp.ProgressUpdate{Progress: 3, Total: &total})
		check("\r[##################......] 3/4\x1b[K")
		s.Printf("line %d", 1)
		check("\r\x1b[Kline 1\n\r[##################......] 3/4\x1b[K")
		_, _ = s.Write([]byte("\x1b[2J\n"))
		check("\r\x1b[K\\x1b[2J\n\r[##################......] 3/4\x1b[K")
		s.Progress(mcp.ProgressUpdate{Progress: 9, Total: &total, Message: "done"})
		check("\r[########################] 9/4 done\x1b[K")
		s.Prompt("name: ")
		check("\r\x1b[Kname: ")
		time.Sleep(redrawInterval)
		s.Progress(mcp.ProgressUpdate{Progress: 1e300})
		check("\r1e+300\x1b[K")
		s.Done()
		check("\r\x1b[K")
		s.Done()
		check("")
		s.Terminal = false
		time.Sleep(redrawInterval)
		s.Progress(mcp.ProgressUpdate{Progress: 5, Message: "x\ny"})
		check("progress: x y\n")
	})
}

func TestInputIsReadWithinLimits(t *testing.T) {
	k := NewInput(strings.NewReader("one\r\ntwo"))
	for _, want := range []string{"one", "two"} {
		if got, err := k.ReadLine(t.Context()); got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if _, err := k.ReadLine(t.Context()); err != io.EOF {
		t.Errorf("at the end: %v, want EOF", err)
	}
	long := NewInput(strings.NewReader(strings.Repeat("x", MaxLine+1)))
	if _, err := long.ReadLine(t.Context()); err == nil || err == io.EOF {
		t.Errorf("a line that is too long: %v, want an error other than EOF", err)
	}
	if _, err := NewInput(io.LimitReader(zeros{}, MaxInput+1)).ReadSource(t.Context(), "-"); err == nil {
		t.Error("an input that is too long: no error, want one")
	}
	if got, err := NewInput(io.LimitReader(zeros{}, MaxInput)).ReadSource(t.Context(), "-"); err != nil ||
		len(got) != MaxInput {
		t.Errorf("the longest input: %d bytes, %v, want %d", len(got), err, MaxInput)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func FuzzClean(f *testing.F) {
	f.Add(hostile)
	f.Add("\xff\U000E0041\uFFFD\u2028\U000F0000 e\u0301")
	f.Fuzz(func(t *testing.T, text string) {
		for _, clean := range []string{Clean(text), CleanLine(text)} {
			if !utf8.ValidString(clean) ||
				strings.ContainsFunc(clean, func(r rune) bool { return visible.Hidden(r) && r != '\n' && r != '\t' }) {
				t.Errorf("%q became %q, want valid UTF-8 without control characters", text, clean)
			}
		}
		if strings.ContainsAny(CleanLine(text), "\n\t") {
			t.Errorf("cleanLine(%q) = %q, want one line without tabs", text, CleanLine(text))
		}
		encoded, err := json.Marshal(text)
		if err != nil {
			return
		}
		var before, after string
		safe := CleanJSON(string(encoded))
		if err := json.Unmarshal([]byte(safe), &after); err != nil {
			t.Fatalf("invalid JSON %q: %v", safe, err)
		}
		if json.Unmarshal(encoded, &before) != nil || before != after || strings.ContainsFunc(safe, visible.Hidden) {
			t.Errorf("cleanJSON(%q) = %q, want an equal string without control characters", encoded, safe)
		}
	})
}
