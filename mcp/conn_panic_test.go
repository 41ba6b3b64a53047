package mcp_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A panickingConn is a Conn whose Read panics.
type panickingConn struct{}

func (panickingConn) Read(context.Context) (*jsonrpc.Message, error) { panic("on purpose") }
func (panickingConn) Write(context.Context, *jsonrpc.Message) error  { return nil }
func (panickingConn) Close() error                                   { return nil }

func TestConn_PanicOfReadEndsItsStreamOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := mcp.Serve(t.Context(), newTarget(nil), panickingConn{}, &mcp.ServeOptions{Logger: discardLogger()})
		if !errors.Is(err, mcp.ErrDisconnected) {
			t.Errorf("Serve returned %v, want %v", err, mcp.ErrDisconnected)
		}
		for _, revision := range append(sessionRevisions, "2026-07-28") {
			transport := mcp.NewConnTransport(panickingConn{})
			c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Revision: revision, Logger: discardLogger()})
			if err == nil {
				c.Close()
				t.Errorf("%s: Connect returned no error", revision)
			}
		}
	})
}
