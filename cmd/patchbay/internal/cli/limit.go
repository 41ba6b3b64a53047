package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// errTimeLimit is the cause of a context that --timeout has ended.
var errTimeLimit = errors.New("the time limit of --timeout has passed")

// within calls f with a context that ends after a time, not counting the time of logins. It returns
// late for an error of f after that time.
func within(ctx context.Context, most time.Duration, f func(ctx context.Context) error, late error) error {
	var limit peer.Timeout
	limit.Start(ctx, peer.TimeLimits{Total: most}, errTimeLimit)
	defer limit.Stop()
	err := f(&limit)
	var explained *coded // by a limit within this one
	if err == nil || !errors.Is(context.Cause(&limit), errTimeLimit) || errors.As(err, &explained) {
		return err
	}
	return &coded{exitTimeout, late}
}

// explainNoAnswer returns the error of noAnswer in place of err if the server has not responded in
// time. err is the error of connecting.
func (p *program) explainNoAnswer(ctx context.Context, err error) error {
	if exitCode(ctx, err) != exitTimeout || errors.Is(err, oauthclient.ErrLoginTimeout) {
		return err
	}
	return &coded{exitTimeout, p.noAnswer()}
}

func (p *program) noAnswer() error {
	return fmt.Errorf("no answer of an MCP server within %v (--timeout)", p.flags.timeout)
}
