package host_test

import (
	"context"
	"testing"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A grant is for the server that it was given for, not for another one with the same name and definitions: such as
// that of another project, whose gateway has the same state.
func TestGrantsAreForOneServer(t *testing.T) {
	state := &state.Memory{}
	open := func(command string) (*host.Host, *bank) {
		b := &bank{}
		return openFile(t, map[string]any{"bank": map[string]string{"command": command}}, "{}", &host.Options{Policy: askPolicy,
			State: state, StateKeys: [][]byte{make([]byte, 32)},
			Dial: func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(b.server()), nil }}), b
	}
	test, _ := open("test-bank")
	if f, text := failureOf(t, clientWith(t, test, &policy.Caller{}, deciding("always", nil)), "bank__pay"); f != nil {
		t.Fatalf("%+v, %s", f, text)
	}
	again, b := open("test-bank")
	if f, text := failureOf(t, client(t, again, &policy.Caller{}), "bank__pay"); f != nil || b.runs.Load() != 1 {
		t.Errorf("the same server: %+v, %s", f, text)
	}
	other, b := open("real-bank")
	if f, text := failureOf(t, client(t, other, &policy.Caller{}), "bank__pay"); f == nil || b.runs.Load() != 0 {
		t.Errorf("another server: %+v, %s, %d runs, want a request for approval", f, text, b.runs.Load())
	}
}
