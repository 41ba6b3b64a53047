package recording_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/recording"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// text returns the text of a tool result, or the error.
func text(res *mcp.CallToolResult, err error) string {
	if err != nil {
		return err.Error()
	}
	b, _ := json.Marshal(res.Content)
	return string(b)
}

// replayed records use in one revision, and runs test with a client of the replay in every revision
// since another.
func replayed(t *testing.T, recorded, since string, use func(t *testing.T, tr mcp.Transport),
	test func(t *testing.T, rec *recording.Recording, on mcptest.Combination)) {
	t.Helper()
	var rec *recording.Recording
	synctest.Test(t, func(t *testing.T) { rec = read(t, record(t, use, newServer(), mcptest.Stdio)) })
	for _, on := range mcptest.Since(since) {
		t.Run(recorded+" to "+on.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, rec, on) })
		})
	}
}

func TestAnswersOfTheUserSelectTheRecordedCall(t *testing.T) {
	for _, revision := range []string{"2025-06-18", mcptest.Modern} {
		replayed(t, revision, "2025-06-18", func(t *testing.T, tr mcp.Transport) {
			names := []string{"Ann", "", "Eve"}
			c, err := mcp.Connect(t.Context(), tr, &mcp.ClientOptions{Revision: revision, Elicit: answering(&names)})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for range 3 {
				_, _ = c.CallTool(t.Context(), "greet", nil)
			}
		}, func(t *testing.T, rec *recording.Recording, on mcptest.Combination) {
			for name, want := range map[string]string{"Ann": "Hello, Anntrue", "": "no name", "Eve": "Hello, Evetrue",
				"Zoe": "Hello, Anntrue"} {
				names := []string{name}
				c, err := mcp.Connect(t.Context(), mcptest.Transport(t, rec.Handler(false), on.Transport),
					&mcp.ClientOptions{Revision: on.Revision, Elicit: answering(&names)})
				if err != nil {
					t.Fatal(err)
				}
				if got := text(c.CallTool(t.Context(), "greet", nil)); !strings.Contains(got, want) {
					t.Errorf("%q: got %s, want %s", name, got, want)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// answering returns a function that answers the questions of greet: for each call the next name, and
// for an empty one it declines.
func answering(names *[]string) func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	return func(_ context.Context, q *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		if q.Message == "Sure?" {
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":true}`)}, nil
		}
		name := (*names)[0]
		*names = (*names)[1:]
		if name == "" {
			return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
		}
		return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":"` + name + `"}`)}, nil
	}
}

// calls returns a use of a transport that calls tools.
func calls(revision string, names ...string) func(t *testing.T, tr mcp.Transport) {
	return func(t *testing.T, tr mcp.Transport) {
		c, err := mcp.Connect(t.Context(), tr, &mcp.ClientOptions{Revision: revision})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, name := range names {
			var args any
			if name == "add" {
				args = object{"a": 1, "b": 2}
			}
			if _, err := c.CallTool(t.Context(), name, args); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestUnrecordedRequestsFailWithWhatWasRecorded(t *testing.T) {
	replayed(t, mcptest.Modern, "2024-11-05", calls(mcptest.Modern, "add", "next"),
		func(t *testing.T, rec *recording.Recording, on mcptest.Combination) {
			c := mcptest.Dial(t, rec.Handler(false), on, nil)
			got := text(c.CallTool(t.Context(), "add", json.RawMessage(`{ "b":2.0, "a":1 }`)))
			if !strings.Contains(got, `"3"`) {
				t.Errorf("another order of arguments: got %s, want 3", got)
			}
			_, err := c.CallTool(t.Context(), "add", object{"a": 2})
			var e *mcp.Error
			const want = `tools/call add {"a":2} was not recorded with these params; recorded: add {"a":1,"b":2}, next`
			if !errors.As(err, &e) || e.Message != want || e.Code != mcp.CodeInvalidParams {
				t.Errorf("got %v, want %s", err, want)
			}
			_, err = c.ReadResource(t.Context(), "x://text")
			if err == nil || !strings.Contains(err.Error(), "resources/read was not recorded; recorded: tools/call") {
				t.Errorf("got %v, want the recorded methods", err)
			}
		})
}

func TestLastAnswerIsRepeated(t *testing.T) {
	replayed(t, "2024-11-05", "2024-11-05", calls("2024-11-05", "next", "next"),
		func(t *testing.T, rec *recording.Recording, on mcptest.Combination) {
			c := mcptest.Dial(t, rec.Handler(false), on, nil)
			for _, want := range []string{"call 1", "call 2", "call 2"} {
				if got := text(c.CallTool(t.Context(), "next", nil)); !strings.Contains(got, want) {
					t.Errorf("got %s, want %s", got, want)
				}
			}
		})
}

func TestDelayRepeatsTheRecordedTime(t *testing.T) {
	replayed(t, "2025-11-25", "2024-11-05", calls("2025-11-25", "work"),
		func(t *testing.T, rec *recording.Recording, on mcptest.Combination) {
			for delay, want := range map[bool]time.Duration{false: 0, true: 3 * time.Second} {
				c := mcptest.Dial(t, rec.Handler(delay), on, nil)
				began := time.Now()
				if got := text(c.CallTool(t.Context(), "work", nil)); !strings.Contains(got, "done") {
					t.Errorf("got %s, want done", got)
				}
				if took := time.Since(began).Round(time.Second); took != want {
					t.Errorf("delay %t: took %v, want %v", delay, took, want)
				}
			}
		})
}

func TestQuestionRequiresCapability(t *testing.T) {
	names := []string{"Ann"}
	replayed(t, mcptest.Modern, "2024-11-05", func(t *testing.T, tr mcp.Transport) {
		c, err := mcp.Connect(t.Context(), tr, &mcp.ClientOptions{Elicit: answering(&names)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.CallTool(t.Context(), "greet", nil)
	}, func(t *testing.T, rec *recording.Recording, on mcptest.Combination) {
		_, err := mcptest.Dial(t, rec.Handler(false), on, nil).CallTool(t.Context(), "greet", nil)
		if err == nil || !strings.Contains(err.Error(), "elicitation") {
			t.Errorf("got %v, want the missing capability", err)
		}
	})
}

func TestReplayAcceptsSubscriptions(t *testing.T) {
	replayed(t, mcptest.Modern, "2024-11-05", calls(mcptest.Modern, "next"),
		func(t *testing.T, rec *recording.Recording, on mcptest.Combination) {
			c := mcptest.Dial(t, rec.Handler(false), on, nil)
			filter := mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"x://text"}}
			for e, err := range c.Listen(t.Context(), filter) {
				if err != nil || e.Kind != mcp.EventListening {
					t.Errorf("got %+v, %v, want a subscription", e, err)
				}
				break
			}
		})
}
