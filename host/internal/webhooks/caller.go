package webhooks

import (
	"context"
	"encoding/json"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"

	extevents "github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// details contains the stored properties of a caller that select its view or that a policy may read.
type details struct {
	Claims   map[string]any      `json:"claims,omitzero"`
	Profile  string              `json:"profile,omitzero"`
	Server   string              `json:"server,omitzero"`
	Single   bool                `json:"single,omitzero"`
	Servers  []string            `json:"servers"` // null for all
	Only     []policy.ActionKind `json:"only"`    // null for all
	ReadOnly bool                `json:"readOnly,omitzero"`
	Client   mcp.Implementation  `json:"client"` // as the client called itself
}

// encode returns the details of a caller as they are stored.
func encode(c *policy.Caller, client mcp.Implementation) (json.RawMessage, error) {
	d := &details{Profile: c.Profile, Server: c.Server, Single: c.Single, Servers: c.Servers, Only: c.Only,
		ReadOnly: c.ReadOnly, Client: client}
	if c.Principal != nil {
		d.Claims = c.Principal.Claims
	}
	raw, err := jsonv2.Marshal(d, jsonv2.Deterministic(true), jsonv2.FormatNilSliceAsNull(true))
	if err != nil {
		return nil, fmt.Errorf("store the caller of a webhook: %w", err)
	}
	return raw, nil
}

// memberURL contains the URL of a subscription in its details: a caller may subscribe with several URLs at once.
const memberURL = "url"

func withURL(details json.RawMessage, url string) json.RawMessage {
	return jsonscan.WithMember(details, memberURL, jsonscan.AppendQuote(nil, url))
}

func urlOf(s extevents.Subscription) string { return jsonscan.GetString(s.Details, memberURL) }

// decode returns the caller of a subscription, and its client.
func decode(s extevents.Subscription) (*policy.Caller, mcp.Implementation, error) {
	d := &details{}
	if err := jsonv2.Unmarshal(s.Details, d); err != nil {
		return nil, mcp.Implementation{}, fmt.Errorf("the stored caller of a webhook is damaged: %w", err)
	}
	p := *s.Principal
	p.Claims = d.Claims
	return &policy.Caller{Principal: &p, Profile: d.Profile, Server: d.Server, Single: d.Single, Servers: d.Servers,
		Only: d.Only, ReadOnly: d.ReadOnly}, d.Client, nil
}

// scope returns the scope of the subscriptions of a caller: the endpoint that it uses.
func scope(c *policy.Caller) string { return fmt.Sprintf("%q %q %t", c.Profile, c.Server, c.Single) }

// An identity is the caller of a subscription as it may act now.
type identity struct {
	caller  *policy.Caller
	client  mcp.Implementation
	encoded string // equal for equal callers
}

// A lookup returns a stored caller as it may act now.
type lookup func(ctx context.Context, c *policy.Caller) (*policy.Caller, error)

// identify returns the present identity of the caller of a subscription. An [*mcp.Error] ends the subscription.
func identify(ctx context.Context, s extevents.Subscription, current lookup) (*identity, error) {
	c, client, err := decode(s)
	if err != nil {
		return nil, err
	}
	if current != nil {
		if c, err = current(ctx, c); err != nil {
			return nil, err
		}
	}
	raw, err := encode(c, client)
	if err != nil {
		return nil, err
	}
	return &identity{c, client, fmt.Sprintf("%s %q %s", c.Key(), c.Principal.Scopes, raw)}, nil
}

// request returns a request that stands for the request of a subscription after the latter ended.
func (i *identity) request(s extevents.Subscription) (*mcp.Request, error) {
	params, err := jsonv2.Marshal(map[string]any{"name": s.Name, "arguments": s.Arguments, "_meta": map[string]any{
		wire.MetaProtocolVersion: wire.Latest().String(), wire.MetaClientInfo: i.client,
		wire.MetaClientCapabilities: struct{}{}}}, jsonv2.Deterministic(true))
	if err != nil {
		return nil, err
	}
	req, err := mcp.NewRequest(&jsonrpc.Message{Method: wire.MethodEventsSubscribe, Params: params})
	if err != nil {
		return nil, err
	}
	req.Principal = i.caller.Principal
	return req, nil
}
