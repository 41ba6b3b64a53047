package cli

import "context"

// A finder finds servers by their names in configuration files.
type finder struct {
	IO    *streams
	Flags *flags
	Ask   *asker
	Net   *network
	Vault *vaults

	// hostNamed returns the target of @host or @.
	hostNamed func(ctx context.Context, name string) (*target, error)
}
