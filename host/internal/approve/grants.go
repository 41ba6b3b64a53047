package approve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/state"
)

const (
	// sessionGrantTime limits the life of grants for a session, because no process may see its end.
	sessionGrantTime = 24 * time.Hour
	// maxGrants limits the grants of each principal, and maxGranted the name or URI of a grant, in bytes:
	// a client may approve every URI that it invents, and grants do not expire.
	maxGrants  = 1000
	maxGranted = 2 << 10
)

// findGrant returns the grant that approves the request, or nil without such a grant.
func (p *approving) findGrant(ctx context.Context) (*approval.Grant, error) {
	for _, scope := range []approval.Answer{approval.Always, approval.Session} {
		if scope == approval.Session && p.session == "" {
			continue
		}
		key := p.grantKey(scope)
		value, version, err := p.State.Get(ctx, approval.KindGrant, key)
		if err != nil {
			return nil, err
		}
		var g approval.Grant
		if version == 0 || json.Unmarshal(value, &g) != nil || !g.Expires.IsZero() && time.Now().After(g.Expires) {
			continue
		}
		if g.Definition != hex.EncodeToString(p.c.Action.Digest[:]) { // void, even if the old definition returns
			err := p.State.CompareAndSet(ctx, approval.KindGrant, key, version, nil)
			if err != nil && !errors.Is(err, state.ErrConflict) {
				return nil, err
			}
			continue
		}
		if p.c.Decision.Channel == "" || p.c.Decision.Channel == g.Channel {
			if scope == approval.Session {
				p.granted.Store(p.session, true) // perhaps by another process
			}
			return &g, nil
		}
	}
	return nil, nil
}

// grant stores an answer for further requests, with the channel and the approver of the decision.
func (p *approving) grant(ctx context.Context, scope approval.Answer) error {
	if scope != approval.Always && scope != approval.Session {
		return nil
	}
	key := p.grantKey(scope)
	g := &approval.Grant{ID: key[:12], Created: time.Now().UTC(), Principal: principalText(p.c.Action.Caller),
		Server: p.c.Action.Server, Method: p.c.Action.Method, Target: p.c.Action.Target, Rule: p.c.Decision.Rule,
		Scope: scope, Channel: p.c.Decision.Channel, Approver: p.c.Decision.Approver,
		Definition: hex.EncodeToString(p.c.Action.Digest[:])}
	if scope == approval.Session {
		g.Expires, g.Session = g.Created.Add(sessionGrantTime), p.session
	}
	for {
		_, version, err := p.State.Get(ctx, approval.KindGrant, key)
		if err == nil && version == 0 {
			err = p.makeRoom(ctx, g.Principal)
		}
		if err == nil {
			err = p.State.CompareAndSet(ctx, approval.KindGrant, key, version, mustJSON(g))
		}
		if !errors.Is(err, state.ErrConflict) {
			if scope == approval.Session {
				p.granted.Store(p.session, true)
			}
			return err
		}
	}
}

// makeRoom removes the oldest grant for a session of a principal that holds maxGrants grants, since the
// session may have ended. It returns an error if all grants are permanent.
func (p *approving) makeRoom(ctx context.Context, principal string) error {
	grants := approval.New(p.State, nil)
	all, err := grants.Grants(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(g approval.Grant) bool { return g.Principal != principal })
	if len(all) < maxGrants {
		return nil
	}
	oldest := slices.IndexFunc(all, func(g approval.Grant) bool { return g.Scope == approval.Session })
	if oldest < 0 {
		return hosterr.Public{Err: fmt.Errorf(
			"the caller has %d grants, which is the most: approve the request once", len(all))}
	}
	_, err = grants.RevokeFunc(ctx, func(g *approval.Grant) bool { return g.ID == all[oldest].ID })
	return err
}

// grantKey returns the key of a grant for this request and for later requests for the same item.
func (p *approving) grantKey(scope approval.Answer) string {
	session := ""
	if scope == approval.Session {
		session = p.session
	}
	rule := cmp.Or(p.c.Decision.RuleID, p.c.Decision.Rule)
	sum := sha256.Sum256([]byte(server.JoinKey(p.c.Action.Caller.Key(), p.c.Action.Caller.Profile, p.c.Action.Server,
		p.c.Server.Program(), p.c.Action.Method, p.c.Action.Target, rule, session)))
	return hex.EncodeToString(sum[:])
}
