package explore

import (
	"context"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/question"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// RunPinned lists the tools of a server as a run in a revision does.
func RunPinned(
	ctx context.Context, site *page.Site, server, revision string,
	dial func(context.Context, string, *mcp.Principal) (mcp.Transport, error),
) error {
	r := &run{Server: server, Item: methodItem("tools/list"), Input: []byte("{}"), Timeout: time.Minute,
		Pinned: revision, Trace: newTrace(), site: site, opts: &Options{Dial: dial, Desk: &question.Desk{}}}
	_, err := r.send(ctx)
	return err
}
