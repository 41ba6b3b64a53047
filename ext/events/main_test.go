package events_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

// object is a JSON object.
type object = map[string]any

type filter struct {
	Branch string `json:"branch,omitzero"`
	Terse  bool   `json:"terse,omitzero"`
}

type build struct {
	Number int    `json:"number" jsonschema:"minimum=1"`
	Branch string `json:"branch,omitzero"`
}

var onBranch = events.Source[filter, build]{
	Match: func(_ context.Context, f filter, b build) bool { return f.Branch == "" || f.Branch == b.Branch },
	Transform: func(_ context.Context, f filter, b build) (build, error) {
		if f.Terse {
			b.Branch = ""
		}
		return b, nil
	},
}

func newServer(t testing.TB, opts *events.Options) (*mcp.Server, *events.Server) {
	s := mcp.NewServer("ci", "1", &mcp.ServerOptions{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	o := events.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if opts != nil {
		logger := o.Logger
		o = *opts
		o.Logger = logger
	}
	return s, events.NewServer(s, &o)
}

func emit(t testing.TB, typ *events.Type[build], number int, branch string) {
	t.Helper()
	o := events.Occurrence[build]{ID: fmt.Sprint("b", number), Data: build{Number: number, Branch: branch}}
	if err := typ.Emit(o); err != nil {
		t.Error(err)
	}
}

// extension describes the notifications of the extension to [mcptest].
var extension = mcptest.Extension{Topics: map[string]string{
	"notifications/events/list_changed": "eventsListChanged",
	"notifications/events/active":       "", "notifications/events/event": "", "notifications/events/heartbeat": "",
	"notifications/events/error": "", "notifications/events/terminated": "",
}}

// run runs a test over all transports of the revisions with the extension.
func run(t *testing.T, s mcp.Handler, body func(t *testing.T, c *mcptest.Client)) {
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), &mcptest.Options{Extension: extension}, body)
}

// dial returns a client of a server in memory.
func dial(t testing.TB, s mcp.Handler) *mcp.Client {
	t.Helper()
	return mcptest.Dial(t, s, mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}, nil)
}

func decode[T any](t testing.TB, raw []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return v
}

// A poll is the result of events/poll.
type poll struct {
	Events []struct {
		EventID, Name string
		Timestamp     time.Time
		Data          json.RawMessage
	}
	Cursor             *string
	Truncated, HasMore *bool
	NextPollMs         int
	ResultType         string
}

// String returns the ids of the occurrences, and "truncated" and "more" as they apply.
func (p *poll) String() string {
	var all []string
	for _, e := range p.Events {
		all = append(all, e.EventID)
	}
	if *p.Truncated {
		all = append(all, "truncated")
	}
	if *p.HasMore {
		all = append(all, "more")
	}
	return strings.Join(all, " ")
}

func pollOnce(t testing.TB, c *mcptest.Client, params object) *poll {
	t.Helper()
	p := decode[poll](t, c.Call("events/poll", params))
	if p.Events == nil || p.Truncated == nil || p.HasMore == nil {
		t.Fatal("the result lacks events, truncated or hasMore")
	}
	return &p
}

func wantError(t testing.TB, c *mcptest.Client, method string, params object, code int, data string) {
	t.Helper()
	_, err := c.Try(method, params)
	if err == nil || err.Code != code || data != "" && string(err.Data) != data {
		t.Errorf("%s %v: got %v, data %s, want code %d, data %s", method, params, err, dataOf(err), code, data)
	}
}

func dataOf(err *mcp.Error) json.RawMessage {
	if err == nil {
		return nil
	}
	return err.Data
}

// frames returns the notifications of a stream: their methods, ids, cursors and errors.
func frames(t testing.TB, c *mcptest.Client) (all []string) {
	t.Helper()
	for _, m := range c.Notifications() {
		f := decode[struct {
			EventID   string
			Truncated bool
			Data      json.RawMessage
			Error     *mcp.Error
		}](t, m.Params)
		line := strings.TrimPrefix(m.Method, "notifications/events/")
		if f.EventID != "" {
			line += " " + f.EventID + " " + string(f.Data)
		}
		if f.Truncated {
			line += " truncated"
		}
		if f.Error != nil {
			line += fmt.Sprintf(" %d %s", f.Error.Code, f.Error.Data)
		}
		all = append(all, line)
	}
	return all
}

func wantFrames(t testing.TB, c *mcptest.Client, want ...string) {
	t.Helper()
	if got := frames(t, c); !slices.Equal(got, want) {
		t.Errorf("got frames\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
