package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

func addTools(s *mcp.Server) {
	// The input and output schemas are derived from the Go types.
	mcp.AddTool(s, &mcp.Tool{
		Name: "add", Title: "Add", Description: "Add two integers.", Annotations: readOnly(),
	}, add)
	mcp.AddTool(s, &mcp.Tool{
		Name: "count", Title: "Count", Description: "Count slowly, with progress and log messages.",
		Annotations: readOnly(),
	}, count)
	mcp.AddTool(s, &mcp.Tool{
		Name: "who_am_i", Title: "Who am I", Annotations: readOnly(),
		Description: "Return the protocol revision and name of the client, and the user who has logged in.",
	}, whoAmI)
}

type addInput struct {
	A int `json:"a" jsonschema:"first addend"`
	B int `json:"b" jsonschema:"second addend"`
}

func add(_ context.Context, in addInput) (int, error) { return in.A + in.B, nil }

type countInput struct {
	Steps int `json:"steps,omitempty" jsonschema:"number of steps,minimum=1,maximum=50,default=5"`
}

// count reports progress and logs every tenth of a second.
func count(ctx context.Context, in countInput) (string, error) {
	for i := 1; i <= in.Steps; i++ {
		mcp.Logger(ctx).Info("counting", "step", i)
		mcp.Progress(ctx, float64(i), float64(in.Steps), fmt.Sprintf("step %d", i))
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("counted to %d", in.Steps), nil
}

// sleep returns early, with an error, if the call is cancelled.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type identity struct {
	Revision string   `json:"revision" jsonschema:"protocol revision of this call"`
	Client   string   `json:"client" jsonschema:"name that the client reports"`
	User     string   `json:"user,omitempty" jsonschema:"user who has logged in"`
	ClientID string   `json:"clientId,omitempty" jsonschema:"OAuth client id of the access token"`
	Scopes   []string `json:"scopes,omitempty" jsonschema:"scopes of the access token"`
}

func whoAmI(ctx context.Context, _ struct{}) (identity, error) {
	req := mcp.RequestFrom(ctx)
	out := identity{Revision: req.Revision(), Client: req.ClientInfo().Name}
	if p := req.Principal; p != nil { // set by package oauth
		out.User, out.ClientID, out.Scopes = p.Subject, p.ClientID, p.Scopes
	}
	return out, nil
}
