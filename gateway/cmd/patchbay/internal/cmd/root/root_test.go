package root

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zalando/go-keyring"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/demo"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/secrets"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

// update reports whether to rewrite the transcripts. Package mcptest defines the flag.
func update() bool { return flag.Lookup("update").Value.String() == "true" }

// serveEnv makes the test binary the demo server on stdio.
const serveEnv = "PATCHBAY_TEST_SERVE"

// failEnv makes the test binary a server whose tool fails after it has explained itself.
const failEnv = "PATCHBAY_TEST_FAIL"

func newFailingServer() *mcp.Server {
	s := mcp.NewServer("failing", "1", nil)
	explain := func() {
		for i := range 40 {
			fmt.Fprintf(os.Stderr, "line %d \x1b[2J\n", i)
		}
	}
	mcp.AddTool(s, &mcp.Tool{Name: "internal"}, func(context.Context, struct{}) (string, error) {
		explain()
		return "", &mcp.Error{Code: mcp.CodeInternalError, Message: "it broke"}
	})
	mcp.AddTool(s, &mcp.Tool{Name: "fine"}, func(context.Context, struct{}) (string, error) {
		explain()
		return "fine", nil
	})
	return s
}

// mainEnv makes the test binary the command patchbay.
const mainEnv = "PATCHBAY_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		os.Exit(Run(cmdutil.NotifyContext(context.Background()), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	if file := os.Getenv(taskStoreEnv); file != "" {
		if err := runTaskServer(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(exitEnv) != "" {
		if err := mcp.Serve(context.Background(), newExitingServer(), mcp.Stdio(), nil); err != nil {
			os.Exit(1)
		}
		return
	}
	if what := os.Getenv(sampleEnv); what != "" {
		os.Exit(runSampleCommand(what))
	}
	if os.Getenv(failEnv) != "" {
		if err := newFailingServer().Run(context.Background(), mcp.Stdio()); err != nil {
			os.Exit(1)
		}
		return
	}
	if spec := os.Getenv(attackEnv); spec != "" {
		if err := runAttackServer(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(serveEnv) != "" {
		if err := newServer("demo").Run(context.Background(), mcp.Stdio()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// Tests must not use the real tokens or keyring.
	keyring.MockInitWithError(errors.New("no keyring here"))
	dir, err := os.MkdirTemp("", "patchbay-test-")
	if err != nil {
		panic(err)
	}
	for name, value := range map[string]string{"DBUS_SESSION_BUS_ADDRESS": "none",
		secrets.EnvDir: filepath.Join(dir, "vault"), secrets.EnvPassphrase: "", login.EnvClientID: "",
		userdir.EnvState: filepath.Join(dir, "state"), "NO_COLOR": "1"} {
		os.Setenv(name, value)
	}
	status := testhome.Main(m, mcptest.Main)
	os.RemoveAll(dir)
	os.Exit(status)
}

// newServer returns the demo server, or for any other name one with hostile and unusual results.
func newServer(name string) *mcp.Server {
	if name == "demo" {
		return demo.New("1.0", nil).Server
	}
	return newOddServer()
}

// hostile is text that acts on a terminal or misleads its reader.
const hostile = "red \x1b[31malert\x1b]0;title\x07\u202Egnp.exe\u200b\u009b2J\r!"

type oddIn struct {
	Text   string            `json:"text,omitempty"`
	Number float64           `json:"number,omitempty"`
	Yes    *bool             `json:"yes,omitempty"`
	List   []int             `json:"list,omitempty"`
	Object map[string]string `json:"object,omitempty"`
	Size   string            `json:"size,omitempty" jsonschema:"how large,enum=small|large"`
}

func newOddServer() *mcp.Server {
	s := mcp.NewServer("odd "+hostile, "1.0", &mcp.ServerOptions{Instructions: hostile})
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: hostile},
		func(_ context.Context, in oddIn) (oddIn, error) { return in, nil })
	mcp.AddTool(s, &mcp.Tool{Name: "fail"},
		func(context.Context, struct{}) (string, error) { return "", errors.New("it broke: " + hostile) })
	mcp.AddTool(s, &mcp.Tool{Name: "refuse"}, func(context.Context, struct{}) (string, error) {
		return "", &mcp.Error{Code: 4001, Message: "not today: " + hostile, Data: []byte(`{"why":1}`)}
	})
	mcp.AddTool(s, &mcp.Tool{Name: "say"}, func(context.Context, struct{}) (string, error) { return hostile, nil })
	mcp.AddTool(s, &mcp.Tool{Name: "media"}, func(context.Context, struct{}) ([]mcp.ContentBlock, error) {
		size := int64(7)
		return []mcp.ContentBlock{
			mcp.Text("look"), &mcp.ImageContent{Data: []byte("PNG"), MIMEType: "image/png"},
			&mcp.AudioContent{Data: []byte("WAVE!"), MIMEType: "audio/wav"},
			&mcp.ResourceLink{URI: "file:///a.txt", Name: "a", Size: &size},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "x://../../b", Blob: []byte{0},
				MIMEType: "application/x-odd"}},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "x://c", Text: "inner"}},
		}, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	mcp.AddResource(s, &mcp.Resource{URI: "x://blob", Name: "blob"},
		func(context.Context, string) ([]byte, error) { return []byte("\x00\x01"), nil })
	mcp.AddResource(s, &mcp.Resource{URI: "x://text", Name: "text"},
		func(context.Context, string) (string, error) { return hostile, nil })
	addForms(s)
	return s
}

var listenHTTP = cmdtest.ListenHTTP

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// factoryFor returns a factory without input for a configuration file.
func factoryFor(config string) *cmdutil.Factory {
	f := newRun(strings.NewReader(""), io.Discard, io.Discard)
	f.Flags.Config = config
	return f
}

// An outcome is the result of a command.
type outcome struct {
	status         int
	stdout, stderr string
}

// patchbay runs a command without a terminal.
func patchbay(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	var stdout bytes.Buffer
	var stderr cmdtest.Buffer
	status := Run(t.Context(), args, strings.NewReader(stdin), &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

// atTerminal runs a command on a terminal, with the input of a user. prepare may change the program
// before it runs.
func atTerminal(t *testing.T, typed string, prepare func(p *cmdutil.Factory), args ...string) outcome {
	t.Helper()
	var stdout bytes.Buffer
	var stderr cmdtest.Buffer
	p := newRun(strings.NewReader(typed), &stdout, &stderr)
	p.IO.Interactive, p.IO.Out.Terminal, p.IO.Err.Terminal, p.Login.Headless = true, true, true, false
	p.Ask.Open = func(_ context.Context, page string) error { t.Errorf("opened page %s, want none", page); return nil }
	if prepare != nil {
		prepare(p)
	}
	status := runCommandLine(t.Context(), p, args)
	return outcome{status, stdout.String(), stderr.String()}
}

// TestTranscripts runs the commands of testdata/*.txt and compares what they print. In these files,
// "$ " begins a command, "< " is a line on its standard input, "! " one on its standard error, and
// "? " its exit code unless that is 0.
func TestTranscripts(t *testing.T) {
	for _, name := range []string{"demo", "odd"} {
		t.Run(name, func(t *testing.T) {
			mcptest.NoLeaks(t)
			url := listenHTTP(t, newServer(name))
			work := t.TempDir()
			file := filepath.Join("testdata", name+".txt")
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			dir, err := filepath.Abs("testdata")
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(work)
			t.Setenv("PATCHBAY_CONFIG", filepath.Join(dir, "mcp.json"))
			t.Setenv("URL", url)
			t.Setenv("SELF", self)
			names := strings.NewReplacer("$URL", url, "$SELF", self, "$DATA", dir)
			var got strings.Builder
			for _, block := range blocks(string(script)) {
				got.WriteString(block.replay(t, names))
			}
			text := volatile.ReplaceAllString(got.String(), "${1}N")
			text = strings.NewReplacer(url, "$URL", self, "$SELF", dir, "$DATA",
				strings.TrimPrefix(url, "http://"), "$ADDRESS").Replace(text)
			if update() {
				if err := os.WriteFile(filepath.Join(dir, name+".txt"), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(script), text); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

// volatile matches output that differs between runs.
var volatile = regexp.MustCompile(
	`("(?:ms|connectMs|pingMs)":|connect     |ping        |answered in |supported +|Deploy r)[0-9.]+`)

// A block is one command of a transcript.
type block struct {
	comments, command string
	stdin             []string
}

func blocks(script string) (all []block) {
	comments := ""
	for line := range strings.Lines(script) {
		switch {
		case strings.HasPrefix(line, "#") || line == "\n":
			comments += line
		case strings.HasPrefix(line, "$ "):
			all = append(all, block{comments: comments, command: strings.TrimSpace(line[2:])})
			comments = ""
		case strings.HasPrefix(line, "< "):
			all[len(all)-1].stdin = append(all[len(all)-1].stdin, line[2:])
		}
	}
	return all
}

// replay runs the command and returns the block with its actual output.
func (b block) replay(t *testing.T, names *strings.Replacer) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s$ %s\n", b.comments, b.command)
	for _, line := range b.stdin {
		text.WriteString("< " + line)
	}
	args := splitCommand(names.Replace(b.command))
	o := patchbay(t, strings.Join(b.stdin, ""), args[1:]...)
	text.WriteString(strings.ReplaceAll(o.stdout, "\n\n", "\n.\n"))
	if o.stdout != "" && !strings.HasSuffix(o.stdout, "\n") {
		text.WriteString("(no newline)\n")
	}
	for line := range strings.Lines(o.stderr) {
		text.WriteString("! " + strings.TrimSuffix(line, "\n") + "\n")
	}
	if o.status != 0 {
		fmt.Fprintf(&text, "? %d\n", o.status)
	}
	return text.String()
}

// splitCommand splits a command line with single quotes.
func splitCommand(line string) (all []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			all[len(all)-1] += part
			continue
		}
		fields := strings.Fields(part)
		if i > 0 && len(fields) > 0 && !strings.HasPrefix(part, " ") {
			all[len(all)-1] += fields[0]
			fields = fields[1:]
		}
		all = append(all, fields...)
		if strings.HasSuffix(part, " ") {
			all = append(all, "")
		}
	}
	if all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	return all
}
