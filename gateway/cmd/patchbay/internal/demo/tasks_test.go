package demo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/demo"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// withDemo connects a client to a demo, in a synctest bubble.
func withDemo(t *testing.T, opts *mcp.ClientOptions, test func(t *testing.T, c *mcp.Client)) {
	synctest.Test(t, func(t *testing.T) {
		d := demo.New("1", nil)
		c, err := mcp.Connect(t.Context(), mcp.InMemory(d.Server), opts)
		if err != nil {
			t.Fatal(err)
		}
		test(t, c)
		if err := errors.Join(c.Close(), d.Tasks.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
}

type crunchResult struct {
	Seconds int `json:"seconds"`
	Answer  int `json:"answer"`
}

type publishResult struct {
	Draft string `json:"draft"`
	Title string `json:"title"`
	Note  string `json:"note"`
}

func TestCrunchRunsAsTaskOrCall(t *testing.T) {
	for name, opts := range map[string]*mcp.ClientOptions{"as a task": tasks.Declare(nil, nil),
		"as a call": {Timeout: 3 * time.Hour}} {
		t.Run(name, func(t *testing.T) {
			withDemo(t, opts, func(t *testing.T, c *mcp.Client) {
				began := time.Now()
				got, err := mcp.CallTool[crunchResult](t.Context(), c, "crunch", object{"seconds": 3600})
				if took := time.Since(began); err != nil || got.Answer != 42 || got.Seconds != 3600 ||
					took < time.Hour || took > time.Hour+2*time.Second {
					t.Errorf("after %v: got %+v, %v, want 42 after an hour", took, got, err)
				}
			})
		})
	}
}

func TestPublishWaitsForTheUser(t *testing.T) {
	content, question := "", ""
	opts := tasks.Declare(&mcp.ClientOptions{Elicit: func(_ context.Context,
		q *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		question = q.Message
		return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(content)}, nil
	}}, nil)
	withDemo(t, opts, func(t *testing.T, c *mcp.Client) {
		h, err := tasks.Start(t.Context(), c, "publish", object{"title": "News"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(12 * time.Hour)
		now, err := h.Get(t.Context())
		if err != nil || now.Status != tasks.StatusInputRequired {
			t.Fatalf("after 12 hours: got %+v, %v, want %s", now, err, tasks.StatusInputRequired)
		}
		content = `{"publish": true, "note": "hot"}`
		r, err := h.Wait(t.Context())
		if err != nil || r.IsError || !strings.Contains(question, `"News"`) {
			t.Fatalf("got question %q, result %+v, %v, want a question with the title and a result", question, r, err)
		}
		more, err := mcp.CallTool[publishResult](t.Context(), c, "publish", object{"title": "More"})
		if err != nil || more.Title != "More" || more.Note != "hot" || !strings.Contains(question, more.Draft) {
			t.Errorf("call: got %+v, %v, want the title, the note and the draft of the question", more, err)
		}
		content = `{"publish": false}`
		if _, err := mcp.CallTool[struct{}](t.Context(), c, "publish", object{"title": "Less"}); err == nil ||
			!strings.Contains(err.Error(), "did not confirm") {
			t.Errorf("without confirmation: got %v, want an error", err)
		}
	})
}
