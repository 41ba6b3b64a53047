package mcp_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A bridge shares one server among clients, each of which initializes and uses the same ids.
func TestSecondInitializeReplacesTheSession(t *testing.T) {
	for _, revision := range sessionRevisions {
		for name, transport := range byteTransports {
			t.Run(revision+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { replaceSession(t, revision, transport) })
			})
		}
	}
}

func replaceSession(t *testing.T, revision string, transport byteTransport) {
	s := newTarget(nil)
	ended := make(chan error, 3)
	addTool(s.Server, "hang", func(ctx context.Context) (string, error) {
		<-ctx.Done()
		ended <- context.Cause(ctx)
		mcp.Logger(ctx).Error("after the end of the session")
		return "late", nil
	})
	c := dialBytes(t, s, transport, nil, nil)
	c.open(revision)
	c.write(bareCall(`1`, "hang", ""), bareCall(`"open"`, "hang", ""), envelopedCall(`"modern"`, "hang", ""))
	c.silent()

	initialize := sessionRequest(`"open"`, "initialize", `{"protocolVersion":"`+revision+`","capabilities":{},`+
		`"clientInfo":{"name":"other","version":"2"}}`)
	c.write(initialize, bareCall(`1`, "echo", `"text":"second"`))
	c.wantCode(c.next(), `1`, mcp.CodeInvalidRequest) // before all responses of the new session
	synctest.Wait()
	responses := map[string]string{}
	for len(c.lines) > 0 {
		line := c.next()
		responses[string(line.ID)] += line.text
	}
	if got := responses[`"open"`]; !strings.Contains(got, `"serverInfo"`) {
		t.Errorf("second initialize: got %q, want a result", got)
	}
	if got := responses[`1`]; !strings.Contains(got, `"text":"second"`) {
		t.Errorf("first call of the new session: got %q, want its result", got)
	}
	if len(responses) != 2 {
		t.Errorf("got responses %q, want no other: the modern request is still in progress", responses)
	}
	if len(ended) != 2 {
		t.Errorf("%d requests have ended, want the 2 of the first session", len(ended))
	}
	c.good()
	addTool(s.Server, "added", func(context.Context) (string, error) { return "", nil })
	time.Sleep(time.Minute)
	c.silent() // the subscription of the first session has ended, and the second is not initialized yet
	c.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	synctest.Wait()
	addTool(s.Server, "added2", func(context.Context) (string, error) { return "", nil })
	if got := c.next(); got.Method != "notifications/tools/list_changed" {
		t.Errorf("got %q, want one change of the list", got.text)
	}
	time.Sleep(time.Minute)
	c.silent()
}
