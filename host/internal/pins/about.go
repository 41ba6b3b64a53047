package pins

import (
	"context"
	"encoding/hex"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/pinrecord"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// Names of the pins of kind pin.Server.
const (
	instructionsName = "instructions"
	serverInfoName   = "serverInfo"
)

// About is the description that a server sends of itself, as definitions.
type About []pinrecord.Found

// NewAbout returns the description of a server.
func NewAbout(instructions string, info any) About {
	var a About
	if instructions != "" {
		a.add(instructionsName, instructions)
	}
	a.add(serverInfoName, info)
	return a
}

func (a *About) add(name string, value any) {
	raw, err := json.Marshal(value)
	if err != nil {
		return
	}
	digest := catalogue.DigestOf(raw)
	*a = append(*a, pinrecord.Found{Name: name, Digest: hex.EncodeToString(digest[:]), JSON: raw})
}

// Approved contains the texts of a server that callers may see.
type Approved struct {
	Instructions string
	ServerInfo   json.RawMessage
}

// A Start is what a server declares at the start of a connection.
type Start struct {
	About        About
	Capabilities json.RawMessage
	Revision     string
	Lacks        []catalogue.Kind // kinds that the capabilities exclude: their lists are empty
}

// ReviewAbout returns the approved texts of a server: the last approved texts if the server's own are
// quarantined. It adds the start of a connection to the record, but no capabilities that may be for the caller only.
func (s *Server) ReviewAbout(ctx context.Context, c Caller, start *Start) Approved {
	v := &pinrecord.Review{Kind: string(pin.Server), Found: start.About, Caller: c.Key}
	return approvedTexts(s.review(ctx, v, func(r *pinrecord.Record) {
		if !c.IsPrivate() && (c.Key == "" || r.Capabilities == nil) {
			r.Capabilities, r.Revision, r.Common = start.Capabilities, start.Revision, !c.Varies
		}
		for _, kind := range start.Lacks {
			(&pinrecord.Review{Kind: pinrecord.Kinds[kind], Caller: c.Key, Lists: !c.IsPrivate()}).Apply(r)
		}
	}), start.About)
}

// Approved returns the approved texts of a server before its first connection.
func (s *Server) Approved(ctx context.Context) Approved { return approvedTexts(s.load(ctx), nil) }

// approvedTexts returns the texts of a server that are approved. about is nil before the first connection.
func approvedTexts(r *pinrecord.Record, about About) (a Approved) {
	text := func(name string) json.RawMessage {
		item := r.Of(string(pin.Server)).Items[name]
		found := about == nil
		for _, d := range about {
			if d.Name == name {
				found = true
				if item != nil && item.IsApproved(d.Digest) {
					return d.JSON
				}
			}
		}
		if item == nil || len(item.Approved) == 0 || item.Approved[0].JSON == "" || !found {
			return nil
		}
		return json.RawMessage(item.Approved[0].JSON)
	}
	a.Instructions, _ = jsonscan.Unquote(text(instructionsName))
	a.ServerInfo = text(serverInfoName)
	return a
}

// A Restored contains the definitions that the last connection of a server offered to the local
// user.
type Restored struct {
	Approved
	Capabilities json.RawMessage
	Revision     string
	Lists        [catalogue.Kinds]*catalogue.List
}

// Restore returns the capabilities and lists of the last connection, unless they may depend on the caller or
// are not recorded. keep returns a list as it may be retained, or nil.
func (s *Server) Restore(
	ctx context.Context, c Caller, keep func(catalogue.Kind, *catalogue.List) *catalogue.List,
) (found Restored, ok bool) {
	r, err := s.read(ctx)
	if err == nil {
		defer s.keep(r)
	}
	if r.Capabilities == nil || c.Key != "" && !r.Common {
		return found, false
	}
	found = Restored{Approved: approvedTexts(r, nil), Capabilities: r.Capabilities, Revision: r.Revision}
	for k := range found.Lists {
		kind := catalogue.Kind(k)
		l := r.List(kind)
		if l != nil {
			l = keep(kind, l)
		}
		if l == nil {
			return found, false
		}
		held := r.Held(pinrecord.Kinds[kind], pinrecord.FindAll(kind, l))
		if found.Lists[k] = l.Hide(held); len(held) > 0 {
			s.waiting.Store(true)
		}
	}
	return found, true
}
