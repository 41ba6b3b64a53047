package target

import (
	"context"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/network"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/secrets"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// A Finder finds servers by their names in configuration files.
type Finder struct {
	IO    *term.Streams
	Flags *flags.Flags
	Ask   *question.Asker
	Net   *network.Client
	Vault *secrets.Store

	// HostNamed returns the target of @host or @, HostNames completes these names.
	HostNamed func(ctx context.Context, name string) (*Target, error)
	HostNames func(typed string) []string
}
