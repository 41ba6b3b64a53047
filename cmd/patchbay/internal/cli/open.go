package cli

import (
	"context"

	"github.com/patchbay-mcp/patchbay/internal/browser"
)

// openPage opens a page in the user's browser, if it is one that may be.
func openPage(ctx context.Context, page string) error {
	u, err := browser.Check(page)
	if err != nil {
		return err
	}
	return browser.Open(ctx, u)
}
