package root

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// sampleEnv makes the test binary the command of --sample-with. Its value is what it does.
const sampleEnv = "PATCHBAY_TEST_SAMPLE"

// runSampleCommand is the command of --sample-with.
func runSampleCommand(what string) int {
	var params struct {
		SystemPrompt string
		MaxTokens    int
		Messages     []struct{ Content struct{ Text string } }
	}
	input, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = json.Unmarshal(input, &params)
	}
	if err != nil || len(params.Messages) != 1 || params.MaxTokens != 200 {
		fmt.Fprintf(os.Stderr, "invalid input %s: %v\n", input, err)
		return 1
	}
	switch what {
	case "text":
		fmt.Printf("%q shortened: %s\n", params.Messages[0].Content.Text, params.SystemPrompt)
	case "result":
		fmt.Println(`{"role":"assistant","model":"m1","content":{"type":"text","text":"from a result"}}`)
	case "invalid":
		fmt.Println(`{"role":"assistant","content":7}`)
	case "json":
		fmt.Println(`{"answer":42}`)
	case "fail":
		fmt.Fprintln(os.Stderr, "no \x1b[2J key")
		fmt.Println("partly")
		return 3
	case "endless":
		for {
			if _, err := os.Stdout.Write(make([]byte, 1<<16)); err != nil {
				return 0
			}
		}
	case "hang":
		time.Sleep(time.Hour)
	}
	return 0
}

func TestSamplingIsAnsweredByACommand(t *testing.T) {
	mcptest.NoLeaks(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	url := listenHTTP(t, newServer("demo"))
	for _, test := range []struct {
		what, stdout, stderr string
		status               int
	}{
		{"text", "\"a story\" shortened: Summarize in one sentence.\n", "answered by ", exit.OK},
		{"result", "from a result\n", "answered by ", exit.OK},
		{"json", "{\"answer\":42}\n", "answered by ", exit.OK},
		{"invalid", "", "invalid CreateMessageResult", exit.Failure},
		{"empty", "", "no output", exit.Failure},
		{"fail", "", "exit status 3\nstandard error of the command:\n  no \\x1b[2J key\n", exit.Failure},
		{"endless", "", "more than 4.2 MB of output", exit.Failure},
	} {
		t.Setenv(sampleEnv, test.what)
		for _, revision := range mcptest.Revisions() {
			o := patchbay(t, "", "call", "--revision", revision, "--sample-with", "'"+self+"'", url, "summarize", "text=a story")
			failed := o.status == exit.Failure || o.status == exit.Tool
			if o.stdout != test.stdout || !strings.Contains(o.stderr, test.stderr) || failed != (test.status != exit.OK) {
				t.Errorf("%s in %s: exit code %d, %q, %s", test.what, revision, o.status, o.stdout, o.stderr)
			}
		}
	}
}

// On a terminal the user sees the request and the answer, and can refuse both.
func TestSamplingCommandNeedsApproval(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(sampleEnv, "text")
	url := listenHTTP(t, newServer("demo"))
	for typed, want := range map[string]struct{ isOK, isShown bool }{
		"y\ny\n": {true, true}, "\n\n": {true, true}, "y\nn\n": {false, true}, "n\n": {false, false}, "": {false, false},
		":decline\n": {false, false},
	} {
		o := atTerminal(t, typed, nil, "call", "--sample-with", self, url, "summarize", "text=a story")
		if (o.status == exit.OK) != want.isOK || strings.Contains(o.stderr, "shortened") != want.isShown ||
			!strings.Contains(o.stderr, "user: a story") || strings.Contains(o.stdout, "shortened") != want.isOK {
			t.Errorf("%q: exit code %d, %q, %s", typed, o.status, o.stdout, o.stderr)
		}
	}
	o := atTerminal(t, "", nil, "call", "--no-input", "--sample-with", self, url, "summarize", "text=a story")
	if o.status != exit.OK {
		t.Errorf("--no-input: exit code %d, %s", o.status, o.stderr)
	}
	file := t.TempDir() + "/answers.json"
	writeFile(t, file, `{"sampling": [{"text": "from the file"}]}`)
	o = patchbay(t, "", "call", "--answers", file, "--sample-with", self, url, "summarize", "text=a story")
	if o.stdout != "from the file\n" {
		t.Errorf("with an answers file: %q, %s, want its answer", o.stdout, o.stderr)
	}
}

func TestSamplingCommandIsBoundedInTime(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(sampleEnv, "hang")
	params := &mcp.CreateMessageParams{MaxTokens: 200,
		Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("x")}}}}
	s := &question.Sampler{Argv: []string{self}, Limit: 200 * time.Millisecond}
	if _, err := s.Run(t.Context(), params); err == nil || !strings.Contains(err.Error(), "no answer within 200ms") {
		t.Errorf("a command that hangs: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Run(ctx, params); err == nil {
		t.Error("a cancelled request has a result")
	}
}

func TestSampleCommandLinesAreSplit(t *testing.T) {
	for line, want := range map[string][]string{
		"llm -m x": {"llm", "-m", "x"}, "  a\t'b c'  \"d 'e\"f '' ": {"a", "b c", "d 'ef", ""},
		`'C:\bin\llm.exe' $HOME *`: {`C:\bin\llm.exe`, "$HOME", "*"}, "": nil,
	} {
		if got, err := term.SplitWords(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("splitWords(%q) = %q, %v, want %q", line, got, err, want)
		}
	}
	url := listenHTTP(t, newServer("demo"))
	for _, command := range []string{"'llm", "  ", "no-such-command-anywhere -x"} {
		if o := patchbay(t, "", "ping", "--sample-with", command, url); o.status != exit.Usage ||
			!strings.Contains(o.stderr, "--sample-with") {
			t.Errorf("%q: exit code %d, %s, want %d", command, o.status, o.stderr, exit.Usage)
		}
	}
}
