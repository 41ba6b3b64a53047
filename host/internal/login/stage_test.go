package login_test

import (
	"context"
	"errors"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A pool is a server with credentials.
type pool struct {
	call.Pool
	missing error
}

func (p *pool) CheckLogin(context.Context) error { return p.missing }

func TestCallsWithoutALoginAreNotSent(t *testing.T) {
	for _, missing := range []error{nil, errors.New("a login is required")} {
		sent := false
		_, err := login.Stage{}.Check(func(context.Context, *call.Call) (mcp.Result, error) {
			sent = true
			return nil, nil
		})(t.Context(), &call.Call{Pool: &pool{missing: missing}})
		if !errors.Is(err, missing) || sent != (missing == nil) {
			t.Errorf("got %v, sent %t; want %v", err, sent, missing)
		}
	}
}
