package mcp_test

import (
	"context"
	"fmt"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A gateway is a Handler without a Server. The client of ExampleBroadcaster hears from it what has changed.
type gateway struct{ changes *mcp.Broadcaster }

func (g *gateway) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	switch req.Method {
	case "server/discover":
		return &mcp.DiscoverResult{
			SupportedVersions: []string{"2026-07-28"},
			Capabilities:      mcp.ServerCapabilities{Tools: &mcp.ListCapability{ListChanged: true}},
		}, nil
	case "subscriptions/listen":
		return g.changes.ServeMCP(ctx, req)
	}
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "method %q not found", req.Method)
}

func (g *gateway) Listen(ctx context.Context, req *mcp.Request) (stop func(), err error) {
	return g.changes.Listen(ctx, req)
}

func (g *gateway) UsesBroadcaster() mcp.Handler { return g }

func ExampleBroadcaster() {
	ctx := context.Background()
	ended := make(chan bool)
	g := &gateway{mcp.NewBroadcaster(func(_ context.Context, _ *mcp.Request, f *mcp.SubscriptionFilter) (func(), error) {
		*f = mcp.SubscriptionFilter{ToolsListChanged: f.ToolsListChanged} // nothing else is supported
		return func() { close(ended) }, nil
	})}
	c, err := mcp.Connect(ctx, mcp.InMemory(g), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true, PromptsListChanged: true}) {
		fmt.Println(e.Kind, err)
		if e.Kind == mcp.EventToolsChanged {
			break
		}
		g.changes.Send(mcp.Event{Kind: mcp.EventToolsChanged})
	}
	fmt.Println("the subscription has ended:", !<-ended)
	// Output:
	// listening <nil>
	// tools changed <nil>
	// the subscription has ended: true
}
