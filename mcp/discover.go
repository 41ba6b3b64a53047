package mcp

import (
	"context"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A DiscoverResult says what a server is and offers.
//
// Spec: server/discover (2026-07-28).
type DiscoverResult struct {
	// SupportedVersions are the revisions that the server speaks, the newest first. The older ones are
	// reached through initialize.
	SupportedVersions []string           `json:"supportedVersions"`
	Capabilities      ServerCapabilities `json:"capabilities"`
	Instructions      string             `json:"instructions,omitzero"`
	Cache
	Meta Meta `json:"-"`
}

// ResultType is "complete".
func (*DiscoverResult) ResultType() string { return ResultComplete }

// ResultMeta is r.Meta.
func (r *DiscoverResult) ResultMeta() Meta { return r.Meta }

func (s *Server) discover(context.Context) (Result, error) {
	revisions := wire.Revisions()
	versions := make([]string, 0, len(revisions))
	for i := len(revisions) - 1; i >= 0; i-- {
		versions = append(versions, revisions[i].String())
	}
	return &DiscoverResult{
		SupportedVersions: versions,
		Capabilities:      s.capabilities(),
		Instructions:      s.opts.Instructions,
		Cache:             s.opts.Cache.orPrivate(),
	}, nil
}
