package root

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// completions returns the completions of the last word, and the directive.
func completions(t *testing.T, words ...string) (found []string, directive string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(patchbay(t, "", append([]string{"__complete"}, words...)...).stdout), "\n")
	return lines[:len(lines)-1], lines[len(lines)-1]
}

// After --, the first word completes to programs in $PATH and further words to files, whatever servers are configured.
func TestCommandsAreCompletedAfterDashes(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+"."+string(filepath.ListSeparator)+dir)
	t.Chdir(dir)
	writeFile(t, "mcp.json", `{"servers": {"npx-server": {"command": "true"}}}`)
	for name, mode := range map[string]os.FileMode{"npx-demo": 0o755, "npx$(id)": 0o755, "npx-data": 0o644, "other": 0o755} {
		if err := os.WriteFile(name, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"tools -- npx": "npx-demo", "call add a=1 -- npx": "npx-demo", "gateway add x -- npx": "npx-demo", "dev -- o": "other",
		"tools -- ./npx": "", "tools -- npx-demo npx": "", "tools -- npx-demo --": "", "tools -- npx-demo -- npx": "",
	} {
		if found, directive := completions(t, strings.Split(line, " ")...); strings.Join(found, " ") != want || directive != ":0" {
			t.Errorf("%q: got %q, %s, want %q and files", line, found, directive, want)
		}
	}
	if found, _ := completions(t, "tools", "npx"); !slices.Contains(found, "npx-server") {
		t.Errorf("without dashes: got %q, want the server", found)
	}
}

const hostileSchema = `{"type": "object", "properties": {
	"mode": {"enum": ["fast", "@/etc/passwd", "$(touch x)", "a b", "~", "~root", "*", "{a,b}", "-x", "\u001b[2J", "slow", 7, null]},
	"flag": {"type": ["boolean", "null"]}, "each": {"type": "array", "items": {"enum": ["one", "two"]}},
	"either": {"type": ["boolean", "string"]},
	"@/etc/passwd": {"type": "string"}, "key:": {"type": "string"}, "a=b": {"type": "string"}, "-v": {"type": "string"},
	"{\"x\"": {"type": "string"}, "": {"type": "string"}, "$(id)": {"type": "string"}, "~": {"type": "string"}}}`

// Only words that mean themselves, to the shells and to patchbay, are completed.
func TestArgumentsAreCompletedSafely(t *testing.T) {
	mcptest.NoLeaks(t)
	s := mcp.NewServer("hostile", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "go", InputSchema: []byte(hostileSchema)},
		func(context.Context, map[string]any) (string, error) { return "", nil })
	url := listenHTTP(t, s)
	for _, revision := range mcptest.Revisions() {
		for typed, want := range map[string]string{
			"": "mode= flag= each= either=", "mo": "mode=", "mode=": "mode=fast mode=-x mode=slow mode=7 mode=null",
			"mode=s": "mode=slow", "mode=@": "", "flag=": "flag=true flag=false", "flag=t": "flag=true",
			"each=": "each=one each=two", "either=": "", "@": "", "nope=": "", "mode:=": "",
		} {
			found, directive := completions(t, "call", "--revision", revision, url, "go", typed)
			wantDirective := ":4"
			if strings.HasSuffix(want, "=") {
				wantDirective = ":6" // no space: the value follows
			}
			if got := strings.Join(found, " "); got != want || directive != wantDirective {
				t.Errorf("%s, %q: got %q %s, want %q %s", revision, typed, got, directive, want, wantDirective)
			}
		}
	}
	if found, _ := completions(t, "call", url, "go", "mode=fast", "each=one", ""); !slices.Equal(found, []string{"flag=", "each=", "either="}) {
		t.Errorf("after other arguments: got %q, want those that were not given", found)
	}
}

// A server that does not answer does not keep the shell waiting.
func TestCompletionOfArgumentsIsBounded(t *testing.T) {
	url := listenHTTP(t, mcp.HandlerFunc(func(ctx context.Context, _ *mcp.Request) (mcp.Result, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}))
	began := time.Now()
	found, _ := completions(t, "call", url, "go", "")
	if took := time.Since(began); len(found) > 0 || took > cmdutil.CompletionTimeout+3*time.Second {
		t.Errorf("got %q after %v, want nothing within %v", found, took, cmdutil.CompletionTimeout)
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if o := patchbay(t, "", "completion", shell); o.status != exit.OK || !strings.Contains(o.stdout, "__complete") || o.stderr != "" {
			t.Errorf("%s: got %+v", shell, o)
		}
	}
	for _, args := range [][]string{{"completion"}, {"completion", "csh"}, {"completion", "bash", "zsh"}} {
		if o := patchbay(t, "", args...); o.status != exit.Usage || !strings.Contains(o.stderr, "zsh") {
			t.Errorf("%q: got %+v, want the names of shells", args, o)
		}
	}
}
