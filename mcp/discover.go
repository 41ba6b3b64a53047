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

// appendDiscovery writes the members of a result. It is no method, since a result of somebody else's may embed this one.
func appendDiscovery(dst []byte, r *DiscoverResult) ([]byte, error) {
	o := object{dst: dst}
	o.texts("supportedVersions", r.SupportedVersions)
	o.part("capabilities", &r.Capabilities)
	o.textIfAny("instructions", r.Instructions)
	if o.err != nil {
		return nil, o.err
	}
	return appendCache(append(o.dst, ','), r.Cache)
}

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
