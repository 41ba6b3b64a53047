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

// addTasks adds tools that run as tasks for clients that support tasks, else as ordinary calls.
func addTasks(m *tasks.Server) {
	tasks.AddTool(m, &mcp.Tool{
		Name: "crunch", Title: "Crunch numbers",
		Description: "Pretend to compute for some seconds, as a task. It starts again after a restart of the server.",
		Annotations: readOnly(),
	}, &tasks.ToolOptions{Restartable: true}, crunch)
	tasks.AddTool(m, &mcp.Tool{
		Name: "publish", Title: "Publish",
		Description: "Pretend to write a draft, as a task, and publish it when the user confirms, now or tomorrow.",
		Annotations: additive(),
	}, nil, publish)
}

type crunchInput struct {
	Seconds int `json:"seconds,omitempty" jsonschema:"duration,minimum=1,maximum=3600,default=10"`
}

type crunchOutput struct {
	Seconds int    `json:"seconds"`
	Answer  int    `json:"answer"`
	Began   string `json:"began" jsonschema:"start of the run that computed the answer"`
}

func crunch(ctx context.Context, in crunchInput) (crunchOutput, error) {
	out := crunchOutput{Seconds: in.Seconds, Answer: 42, Began: time.Now().UTC().Format(time.RFC3339)}
	return out, work(ctx, time.Duration(in.Seconds)*time.Second, "crunching")
}

type publishInput struct {
	Title string `json:"title" jsonschema:"what to publish,minLength=1,maxLength=100"`
}

type approval struct {
	Publish bool   `json:"publish" jsonschema:"whether to publish it"`
	Note    string `json:"note,omitempty" jsonschema:"a note for the readers,maxLength=200"`
}

type publishOutput struct {
	Draft string `json:"draft"`
	Title string `json:"title"`
	Note  string `json:"note,omitempty"`
}

// publish asks in the middle. The task must then wait with the status input_required, and is
// stored: the answer may come after a restart of the server.
func publish(ctx context.Context, in publishInput) (publishOutput, error) {
	draft, err := mcp.Once(ctx, "draft", func(ctx context.Context) (string, error) {
		return fmt.Sprintf("d%04d", rand.IntN(10_000)), work(ctx, time.Second, "writing the draft")
	})
	if err != nil {
		return publishOutput{}, err
	}
	question := fmt.Sprintf("The draft %s of %q is ready. Publish it?", draft, in.Title)
	a, err := mcp.Ask[approval](ctx, "approval", question, nil)
	if err != nil {
		return publishOutput{}, err
	}
	if !a.Publish {
		return publishOutput{}, errors.New("the user did not confirm")
	}
	return publishOutput{Draft: draft, Title: in.Title, Note: a.Note}, work(ctx, time.Second, "publishing")
}

// work sleeps and reports progress.
func work(ctx context.Context, d time.Duration, what string) error {
	const steps = 10
	for i := range steps {
		mcp.Progress(ctx, float64(i), steps, fmt.Sprintf("%s, %d of %d", what, i, steps))
		if err := sleep(ctx, d/steps); err != nil {
			return err
		}
	}
	mcp.Progress(ctx, steps, steps, fmt.Sprintf("%s, %[2]d of %[2]d", what, steps))
	return nil
}
