package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

type crunchIn struct {
	Seconds int `json:"seconds,omitempty" jsonschema:"how long it takes,minimum=1,maximum=3600,default=10"`
}

type crunchOut struct {
	Seconds int    `json:"seconds"`
	Answer  int    `json:"answer"`
	Began   string `json:"began" jsonschema:"when the run began that gave this answer"`
}

type publishIn struct {
	Title string `json:"title" jsonschema:"what to publish,minLength=1,maxLength=100"`
}

type approval struct {
	Publish bool   `json:"publish" jsonschema:"whether to publish it"`
	Note    string `json:"note,omitempty" jsonschema:"a remark for the readers,maxLength=200"`
}

type publishOut struct {
	Draft string `json:"draft"`
	Title string `json:"title"`
	Note  string `json:"note,omitempty"`
}

// addLong adds the tools that take their time.
func addLong(m *tasks.Server) {
	tasks.AddTool(m, &mcp.Tool{Name: "crunch", Title: "Crunch numbers",
		Description: "Pretend to compute for some seconds. It runs as a task if the client wants it; a restart of the server begins it anew."},
		&tasks.ToolOptions{Restartable: true}, crunch)
	tasks.AddTool(m, &mcp.Tool{Name: "publish", Title: "Publish",
		Description: "Pretend to write a draft, and to publish it once the user agrees, be it tomorrow."}, nil, publish)
}

func crunch(ctx context.Context, in crunchIn) (crunchOut, error) {
	out := crunchOut{Seconds: in.Seconds, Answer: 42, Began: time.Now().UTC().Format(time.RFC3339)}
	return out, work(ctx, time.Duration(in.Seconds)*time.Second, "crunching")
}

// publish asks in the middle: what comes before the question is done once, what comes after it when the answer is there.
func publish(ctx context.Context, in publishIn) (publishOut, error) {
	draft, err := mcp.Once(ctx, "draft", func(ctx context.Context) (string, error) {
		return fmt.Sprintf("d%04d", rand.IntN(10_000)), work(ctx, time.Second, "writing the draft")
	})
	if err != nil {
		return publishOut{}, err
	}
	said, err := mcp.Ask[approval](ctx, "approval", fmt.Sprintf("The draft %s of %q is ready. Publish it?", draft, in.Title), nil)
	switch {
	case err != nil:
		return publishOut{}, err
	case !said.Publish:
		return publishOut{}, errors.New("the user does not want it published")
	}
	return publishOut{Draft: draft, Title: in.Title, Note: said.Note}, work(ctx, time.Second, "publishing")
}

// work takes a time, and says how far it is.
func work(ctx context.Context, length time.Duration, what string) error {
	const steps = 10
	for i := range steps {
		mcp.Progress(ctx, float64(i), steps, fmt.Sprintf("%s, %d of %d", what, i, steps))
		select {
		case <-time.After(length / steps):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	mcp.Progress(ctx, steps, steps, fmt.Sprintf("%s, %[2]d of %[2]d", what, steps))
	return nil
}
