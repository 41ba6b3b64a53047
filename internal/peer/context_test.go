package peer_test

import (
	"context"
	"errors"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

type contextKey struct{}

// contextEnds are the ways in which the context of a call ends, and its cause.
var contextEnds = map[string]struct {
	end   func(table *peer.Table, call *peer.Call, carrier context.CancelCauseFunc)
	cause error
}{
	"cancelled": {func(table *peer.Table, _ *peer.Call, _ context.CancelCauseFunc) {
		table.Cancel(jsonrpc.IntID(1), errStop)
	}, errStop},
	"table closed": {func(table *peer.Table, _ *peer.Call, _ context.CancelCauseFunc) { table.Close(errStop) },
		errStop},
	"call ended":    {func(_ *peer.Table, call *peer.Call, _ context.CancelCauseFunc) { call.End() }, context.Canceled},
	"carrier ended": {func(_ *peer.Table, _ *peer.Call, carrier context.CancelCauseFunc) { carrier(errStop) }, errStop},
	"cancelled, then ended": {func(table *peer.Table, call *peer.Call, _ context.CancelCauseFunc) {
		table.Cancel(jsonrpc.IntID(1), errStop)
		call.End()
	}, errStop},
}

func TestContextOfACallEndsWithItsCause(t *testing.T) {
	for name, test := range contextEnds {
		for _, waited := range []bool{false, true} {
			carrier, stop := context.WithCancelCause(context.WithValue(t.Context(), contextKey{}, "carried"))
			var table peer.Table
			call, err := table.Begin(carrier, jsonrpc.IntID(1))
			if err != nil {
				t.Fatal(err)
			}
			ctx := call.Context()
			var child context.Context
			if waited {
				var cancel context.CancelFunc
				child, cancel = context.WithCancel(ctx)
				defer cancel()
			}
			if ctx.Err() != nil || context.Cause(ctx) != nil || ctx.Value(contextKey{}) != "carried" {
				t.Errorf("%s: before the end: error %v, cause %v, value %v, want nil, nil, carried", name, ctx.Err(),
					context.Cause(ctx), ctx.Value(contextKey{}))
			}
			test.end(&table, call, stop)
			if got := context.Cause(ctx); !errors.Is(got, test.cause) {
				t.Errorf("%s, waited %t: cause %v, want %v", name, waited, got, test.cause)
			}
			if !errors.Is(ctx.Err(), context.Canceled) || ctx.Value(contextKey{}) != "carried" {
				t.Errorf("%s, waited %t: after the end: error %v, value %v, want %v, carried", name, waited, ctx.Err(),
					ctx.Value(contextKey{}), context.Canceled)
			}
			<-ctx.Done()
			if child != nil {
				<-child.Done()
				if got := context.Cause(child); !errors.Is(got, test.cause) {
					t.Errorf("%s: cause of a derived context %v, want %v", name, got, test.cause)
				}
			}
			stop(nil)
		}
	}
}

// Such a call does not register at its parent context, whose other calls may be many.
func TestContextWithoutAWaiterIsNotAllocated(t *testing.T) {
	carrier, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	var table peer.Table
	run := func() {
		call, err := table.Begin(carrier, jsonrpc.IntID(1))
		if err != nil {
			t.Fatal(err)
		}
		if call.Context().Err() != nil {
			t.Error("the context of the call has ended, want it active")
		}
		call.End()
	}
	run() // allocates the map of the table
	if got := testing.AllocsPerRun(100, run); got > 1 {
		t.Errorf("%v allocations for a call, want 1", got)
	}
}
