package approve

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/forward"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// bind returns the digest of everything that an approval must cover: caller, server, item, policy,
// params, and the members of `_meta` that the server receives.
func (p *approving) bind(req *mcp.Request) (string, error) {
	h := sha256.New()
	add := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	a := p.c.Action
	for _, text := range []string{a.Caller.Key(), a.Caller.Profile, a.Server, p.c.Server.Program(), a.Method, a.Target,
		strconv.FormatUint(p.Epoch(), 10)} {
		add([]byte(text))
	}
	add(p.c.Action.Digest[:])
	p.meta = p.sentMeta(req)
	add(p.meta)
	params := req.Params
	for _, key := range []string{"_meta", "inputResponses", "requestState"} {
		if jsonscan.Has(params, key) {
			params = jsonscan.Without(params, key)
		}
	}
	params, err := canonical(params)
	if err != nil {
		return "", err
	}
	add(params)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// sentMeta returns the members of `_meta` that the server receives. It omits the trace context,
// whose IDs change with each round of a request.
func (p *approving) sentMeta(req *mcp.Request) json.RawMessage {
	meta, ok := req.Param("_meta")
	if !ok {
		return nil
	}
	sent := forward.Meta(meta, mustJSON(req.Capabilities()), p.c.Server.WithoutMeta())
	delete(sent, wire.MetaTraceParent)
	delete(sent, wire.MetaTraceState)
	if len(sent) == 0 {
		return nil
	}
	return mustJSON(sent)
}

// canonical returns a value in canonical form (RFC 8785), except that numbers are unchanged: large
// numbers would lose digits.
func canonical(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return raw, nil
	}
	value := jsontext.Value(raw).Clone()
	err := value.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "invalid params: %v", err)
	}
	return json.RawMessage(value), nil
}

// withCanonicalArguments returns the request with its arguments in the form that users see.
func withCanonicalArguments(req *mcp.Request) (*mcp.Request, error) {
	arguments, err := canonical(call.Arguments(req))
	if err != nil || arguments == nil {
		return req, err
	}
	inner := *req
	if req.Method == "tools/call" || req.Method == "prompts/get" {
		inner.Params = jsonscan.WithMember(req.Params, "arguments", arguments)
	} else if inner.Params, err = canonical(req.Params); err != nil {
		return nil, err
	}
	return &inner, nil
}

// sessionOf returns the digest of the session of a request. It is empty without a session.
func sessionOf(ctx context.Context, c *policy.Caller) string {
	if c.Session != "" {
		return sessionDigest(c.Session)
	}
	return sessionDigest(driver.SessionID(ctx))
}

// principalText identifies a caller to users. It is empty for the local user.
func principalText(c *policy.Caller) string {
	if c.Principal == nil {
		return ""
	}
	text := c.Principal.Subject
	if c.Principal.Issuer != "" {
		text += " (" + c.Principal.Issuer + ")"
	}
	return text
}
