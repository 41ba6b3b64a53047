package recording_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/recording"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

type object = map[string]any

// newServer returns a server whose answers depend on its calls before.
func newServer() *mcp.Server {
	s := mcp.NewServer("recorded", "1.2", &mcp.ServerOptions{Instructions: "Call add.",
		Logger: slog.New(slog.DiscardHandler)})
	type sum struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "add"}, func(_ context.Context, in sum) (int, error) { return in.A + in.B, nil })
	calls := 0
	mcp.AddTool(s, &mcp.Tool{Name: "next"}, func(context.Context, struct{}) (string, error) {
		calls++
		return fmt.Sprint("call ", calls), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "work"}, func(ctx context.Context, _ struct{}) (string, error) {
		for i := range 3 {
			time.Sleep(time.Second)
			mcp.Progress(ctx, float64(i), 3, fmt.Sprint("step ", i))
		}
		mcp.Logger(ctx).Warn("worked", "n", 1)
		return "done", nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "greet"}, func(ctx context.Context, _ struct{}) (string, error) {
		name, err := mcp.Ask[string](ctx, "name", "Your name?", nil)
		if err != nil {
			return "", errors.New("no name")
		}
		sure, err := mcp.Ask[bool](ctx, "sure", "Sure?", nil)
		return fmt.Sprint("Hello, ", name, sure), err
	})
	mcp.AddTool(s, &mcp.Tool{Name: "refuse"}, func(context.Context, struct{}) (string, error) {
		return "", &mcp.Error{Code: 4001, Message: "refused", Data: []byte(`{"why":1}`)}
	})
	mcp.AddResource(s, &mcp.Resource{URI: "x://text", Name: "text"},
		func(context.Context, string) (string, error) { return "content", nil })
	mcp.AddPrompt(s, &mcp.Prompt{Name: "hello"}, func(context.Context, struct{}) (string, error) { return "Say hello.", nil })
	return s
}

// dial connects a client that gives the answers. It writes the questions and log messages.
func dial(t *testing.T, transport mcp.Transport, revision, name string, seen, logs *strings.Builder) *mcp.Client {
	t.Helper()
	c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Revision: revision, LogLevel: "info",
		Logger: slog.New(slog.DiscardHandler),
		Log:    func(_ context.Context, m *mcp.LoggingMessage) { fmt.Fprintf(logs, "log %s %s\n", m.Level, m.Text()) },
		Elicit: func(_ context.Context, q *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			fmt.Fprintf(seen, "question %s %s\n", q.Message, q.RequestedSchema)
			if name == "" {
				return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
			}
			answer := `{"value":true}`
			if q.Message == "Your name?" {
				answer = fmt.Sprintf(`{"value":%q}`, name)
			}
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(answer)}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// session uses all features of the server and returns what its client sees.
func session(t *testing.T, transport mcp.Transport, revision string) string {
	t.Helper()
	var seen, logs strings.Builder
	c := dial(t, transport, revision, "Ann", &seen, &logs)
	defer c.Close()
	show := func(what string, v any, err error) {
		b, _ := json.Marshal(v)
		fmt.Fprintf(&seen, "%s: %s", what, b)
		var e *mcp.Error
		if errors.As(err, &e) {
			fmt.Fprintf(&seen, " %d %s %s", e.Code, e.Message, e.Data)
		} else if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		seen.WriteByte('\n')
	}
	show("server", []any{c.ServerInfo(), c.Instructions(), c.Capabilities()}, nil)
	for tool, err := range c.Tools(t.Context()) {
		show("tool", tool, err)
	}
	for r, err := range c.Resources(t.Context()) {
		show("resource", r, err)
	}
	for p, err := range c.Prompts(t.Context()) {
		show("prompt", p, err)
	}
	ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(u mcp.ProgressUpdate) {
		fmt.Fprintf(&seen, "progress %v %s\n", u.Progress, u.Message)
	}})
	for _, name := range []string{"next", "next", "work", "greet", "refuse"} {
		if name == "greet" && revision < "2025-06-18" {
			continue
		}
		res, err := c.CallTool(ctx, name, nil)
		show(name, res, err)
	}
	res, err := c.CallTool(ctx, "add", object{"a": 1, "b": 2})
	show("add", res, err)
	read, err := c.ReadResource(ctx, "x://text")
	show("read", read, err)
	_, err = c.ReadResource(ctx, "x://absent")
	show("absent", nil, err)
	prompt, err := c.GetPrompt(ctx, "hello", nil)
	show("prompt", prompt, err)
	synctest.Wait() // for log messages
	return seen.String() + logs.String()
}

// record records a session with a server and returns the file.
func record(t *testing.T, use func(t *testing.T, tr mcp.Transport), h mcp.Handler, kind string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a.jsonl")
	w, err := recording.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	use(t, mcp.Trace(mcptest.Transport(t, h, kind), w.Trace("test", "x")))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

func read(t *testing.T, file string) *recording.Recording {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := recording.Read(strings.NewReader(string(text)))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return rec
}

// Clients of every revision see a recording of the same or a newer revision as they see the server.
func TestReplayedAnswersEqualRecordedOnes(t *testing.T) {
	for _, from := range mcptest.Combinations() {
		for _, on := range mcptest.Combinations() {
			if on.Transport != from.Transport {
				continue
			}
			t.Run(from.String()+" to "+on.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					file := record(t, func(t *testing.T, tr mcp.Transport) { session(t, tr, from.Revision) }, newServer(), from.Transport)
					got := session(t, mcptest.Transport(t, read(t, file).Handler(false), on.Transport), on.Revision)
					want := session(t, mcptest.Transport(t, newServer(), on.Transport), on.Revision)
					if from.Revision >= on.Revision && got != want {
						t.Error(cmp.Diff(want, got))
					}
					if !strings.Contains(got, `"text":"call 2"`) || !strings.Contains(got, `"text":"3"`) {
						t.Errorf("got %s, want the recorded answers", got)
					}
				})
			})
		}
	}
}
