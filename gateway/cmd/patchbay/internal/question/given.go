package question

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Given is the answer on the command line of `patchbay task answer`.
type Given struct {
	Words  []string
	Action mcp.ElicitAction

	// The fields below are for tasks of 2025-11-25, which ask by requests to the client. The answer
	// is for a single question that contains About; other questions must stay open. Report is
	// called once, with the error of that answer, which the server does not see.
	About  string
	Report func(err error)
	used   bool
}

// Check returns an error for an answer that contradicts itself.
func (g *Given) Check() error {
	if err := checkAction(g.Action); err != nil {
		return fmt.Errorf("--action: %w", err)
	}
	if len(g.Words) > 0 && g.Action != "" && g.Action != mcp.ElicitAccept {
		return fmt.Errorf("--action %s does not allow fields", g.Action)
	}
	return nil
}

// ErrLeftOpen is returned for a question without an answer.
var ErrLeftOpen = errors.New("the question stays open")

// DescribeInput returns the question of a task, on a single line.
func DescribeInput(r mcp.InputRequest) string {
	const longest = 300
	q, err := ParseQuestion(r)
	if err != nil {
		return term.Shorten(term.CleanLine(r.Method), longest)
	}
	return term.Shorten(q.summary(), longest)
}

// selects reports whether the answer is meant for a question.
func (g *Given) selects(q question) bool {
	return g.Report == nil || strings.Contains(q.message(), g.About)
}

func (g *Given) answer(ctx context.Context, a *Asker, q question) (*answer, error) {
	if g.Action != "" && g.Action != mcp.ElicitAccept {
		return &answer{Action: g.Action}, nil
	}
	return q.parse(ctx, a, g)
}

// done reports how a question was answered. After an error, and for a second question, it must not
// return before the connection ends, because the client would send an answer.
func (g *Given) done(ctx context.Context, err error) error {
	if g.Report == nil {
		return err
	}
	first := !g.used
	if g.used = true; first {
		g.Report(err)
	}
	if err == nil && first {
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}
