package events

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// hostile is text that acts on a terminal or misleads its reader.
const hostile = "red \x1b[31malert\x1b]0;title\x07\u202Egnp.exe\u200b\u009b2J\r!"

// An outcome is the end of a command.
type outcome struct {
	status         int
	stdout, stderr string
}

// patchbay runs a command line.
func patchbay(t *testing.T, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // "listen" waits for missing events otherwise
	defer cancel()
	var stdout, stderr bytes.Buffer
	status := run(ctx, &stdout, &stderr, args...)
	return outcome{status, stdout.String(), stderr.String()}
}

func run(ctx context.Context, stdout, stderr io.Writer, args ...string) int {
	f := cmdutil.New(term.NewStreams(strings.NewReader(""), stdout, stderr), &flags.Flags{})
	root := &cobra.Command{Use: "patchbay", SilenceErrors: true, SilenceUsage: true}
	cmdutil.AddFlags(f, root)
	root.AddCommand(NewCmdEvents(f))
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	defer f.Exit.Run()
	return cmdutil.Execute(ctx, f, root)
}

var listenHTTP = cmdtest.ListenHTTP

// A canceller calls cancel when a line was written. It has no other methods by which it could be written.
type canceller struct {
	text   bytes.Buffer
	cancel func()
}

func (c *canceller) Write(p []byte) (int, error) {
	if bytes.HasSuffix(p, []byte("\n")) {
		defer c.cancel()
	}
	return c.text.Write(p)
}

type buildFilter struct {
	Branch string `json:"branch" jsonschema:"the branch,enum=main|dev"`
}

type buildDone struct {
	Number int    `json:"number"`
	Text   string `json:"text"`
}

func newEventServer(t *testing.T) (s *mcp.Server, emit func(number int, text string)) {
	s, _, emit = newEvents(t)
	return s, emit
}

// newEvents serves the event types build.finished, whose emit returns, and old, which is polled.
func newEvents(t *testing.T) (s *mcp.Server, srv *events.Server, emit func(number int, text string)) {
	s = mcp.NewServer("builds", "1", nil)
	srv = events.NewServer(s, nil)
	source := events.Source[buildFilter, buildDone]{Match: func(_ context.Context, f buildFilter, _ buildDone) bool {
		return f.Branch == "main"
	}}
	finished := events.Add(srv, &events.Event{Name: "build.finished", Description: "A build ended. " + hostile}, source)
	events.Add(srv, &events.Event{Name: "old", Delivery: []events.Mode{events.ModePoll}}, source)
	return s, srv, func(number int, text string) {
		// Events with the same ID are duplicates, which a client drops.
		o := events.Occurrence[buildDone]{ID: fmt.Sprint(text, number), Data: buildDone{number, text}}
		if err := finished.Emit(o); err != nil {
			t.Error(err)
		}
	}
}

// pollEvents runs "events poll --json" for build.finished.
func pollEvents(t *testing.T, url string, flags ...string) (got struct {
	Events []struct {
		EventID string
		Name    string
		Data    buildDone
	}
	Cursor  string
	HasMore bool
}) {
	t.Helper()
	args := append([]string{"events", "poll", url, "build.finished", "branch=main", "--json"}, flags...)
	o := patchbay(t, args...)
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || o.status != exit.OK || o.stderr != "" {
		t.Fatalf("got %+v, %v", o, err)
	}
	return got
}

func TestEventsArePolledAndFollowed(t *testing.T) {
	mcptest.NoLeaks(t)
	s, emit := newEventServer(t)
	url := listenHTTP(t, s)
	begin := pollEvents(t, url)
	if len(begin.Events) > 0 || begin.Cursor == "" {
		t.Fatalf("without a cursor: got %+v, want a cursor and no event", begin)
	}
	const many = 250 // more than a result contains
	for i := range many {
		emit(i, hostile)
	}
	all := pollEvents(t, url, "--cursor", begin.Cursor)
	if len(all.Events) != many || all.HasMore || all.Events[many-1].Data != (buildDone{many - 1, hostile}) {
		t.Errorf("got %d events, more: %t, want all %d", len(all.Events), all.HasMore, many)
	}
	for _, args := range [][]string{{"poll"}, {"listen", "--count", "250"}} {
		args = append([]string{"events", args[0], url, "build.finished", "branch=main", "--cursor", begin.Cursor}, args[1:]...)
		o := patchbay(t, args...)
		if o.status != exit.OK || strings.Count(o.stdout, "\n") != many || strings.ContainsAny(o.stdout, "\x1b\u202e\u009b") ||
			!strings.Contains(o.stdout, `"number":249`) || !strings.Contains(o.stderr, "To continue: --cursor ") {
			t.Errorf("%s: got %d, %d lines, %.300q, %q", args[1], o.status, strings.Count(o.stdout, "\n"), o.stdout, o.stderr)
		}
	}
}

// An interrupt is the usual end, with the exit code 0.
func TestEventsAreFollowedUntilAnInterrupt(t *testing.T) {
	mcptest.NoLeaks(t)
	s, emit := newEventServer(t)
	url := listenHTTP(t, s)
	begin := pollEvents(t, url)
	emit(7, "x")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stdout, stderr := &canceller{cancel: cancel}, &bytes.Buffer{}
	status := run(ctx, stdout, stderr, "events", "listen", url, "build.finished", "branch=main", "--json",
		"--cursor", begin.Cursor)
	var got map[string]any
	if err := json.Unmarshal(stdout.text.Bytes(), &got); err != nil || status != exit.OK {
		t.Fatalf("got %d, %q, %v, %s", status, stdout.text.String(), err, stderr)
	}
	for _, member := range []string{"eventId", "name", "timestamp", "data", "cursor"} {
		if got[member] == nil {
			t.Errorf("no %s in %v", member, got)
		}
	}
}

func TestEventCommandsExplainFailures(t *testing.T) {
	s, _ := newEventServer(t)
	url, without := listenHTTP(t, s), listenHTTP(t, mcp.NewServer("other", "1", nil))
	for args, want := range map[string]struct {
		status         int
		stdout, stderr string // parts of them
	}{
		"events list " + url:                                 {exit.OK, "build.finished branch=main|dev\n    A build ended. red", ""},
		"events list " + url + " old":                        {exit.OK, "  delivery: poll\n  branch: ", ""},
		"events list " + url + " build.finished":             {exit.OK, "  payload: a JSON object\n    number: an integer", ""},
		"events list --json " + url:                          {exit.OK, `{"events":[{"name":"build.finished",`, ""},
		"events list " + without:                             {exit.NotFound, "", "does not offer events"},
		"events poll " + without + " old":                    {exit.NotFound, "", "does not offer events"},
		"events list --revision 2025-11-25 " + url:           {exit.NotFound, "", "does not offer events"},
		"events poll " + url + " build.finish":               {exit.NotFound, "", `did you mean "build.finished"`},
		"events listen " + url + " old":                      {exit.Usage, "", "usage: patchbay events listen TARGET old branch="},
		"events poll " + url + " old branch=main --cursor -": {exit.OK, "", "were skipped"},
		"events listen " + url + " old --max-age 1s":         {exit.Usage, "", "--max-age requires --cursor"},
		"events": {exit.Usage, "", "follow events"},
	} {
		o := patchbay(t, strings.Fields(args)...)
		if o.status != want.status || !strings.Contains(o.stdout, want.stdout) || !strings.Contains(o.stderr, want.stderr) {
			t.Errorf("%s: got %d\n%s\n%s\nwant %d\n%s\n%s", args, o.status, o.stdout, o.stderr, want.status, want.stdout, want.stderr)
		}
		if strings.ContainsRune(o.stdout+o.stderr, '\x1b') {
			t.Errorf("%s: a control character in %q", args, o.stdout)
		}
	}
	for words, want := range map[string]string{"": "build.finished old", "old ": "branch=", "old branch=": "branch=main branch=dev"} {
		o := patchbay(t, append([]string{"__complete", "events", "listen", url}, strings.Split(words, " ")...)...)
		lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
		if found := lines[:len(lines)-1]; !slices.Equal(found, strings.Fields(want)) {
			t.Errorf("completion of %q: got %q, want %s", words, found, want)
		}
	}
}

// brokenEvents answers events/poll with a result that the rules forbid.
type brokenEvents struct {
	mcp.EmptyResult `json:"-"`
	Events          json.RawMessage `json:"events"`
	Cursor          string          `json:"cursor"`
	HasMore         bool            `json:"hasMore"`
}

// A server that always has more does not keep the command, and a result without occurrences is an error.
func TestPollsOfHostileServersEnd(t *testing.T) {
	one := json.RawMessage(`[{"eventId": "1", "name": "e", "timestamp": "2026-12-01T00:00:00Z", "data": {"a":` + "\n" + `1}}]`)
	for result, want := range map[*brokenEvents]int{
		{Events: one, Cursor: "same", HasMore: true}:                                exit.OK,
		{Events: json.RawMessage("[]"), Cursor: "1", HasMore: true}:                 exit.OK,
		{Events: json.RawMessage("[null]")}:                                         exit.Protocol,
		{Events: json.RawMessage(`[{"eventId": 1, "timestamp": "yesterday"}]`)}:     exit.Protocol,
		{Events: json.RawMessage(`[{"eventId": "1", "timestamp": "", "data": 1}]`)}: exit.Protocol,
	} {
		s, _ := newEventServer(t)
		broken := func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if req.Method == "events/poll" {
				return result, nil
			}
			return s.ServeMCP(ctx, req)
		}
		o := patchbay(t, "events", "poll", listenHTTP(t, mcp.HandlerFunc(broken)), "old", "branch=main")
		if o.status != want {
			t.Errorf("%s: got %+v, want %d", result.Events, o, want)
		}
	}
}
