package legacy

import (
	"context"
	"encoding/json"
	"unique"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A sessionEnvelope is the envelope of every request of a session. initialize sets it, and
// logging/setLevel its log level.
type sessionEnvelope struct {
	revision                 wire.Revision
	clientInfo, capabilities string // JSON objects
	logLevel                 string
}

// A sharedEnvelope is an envelope that equal sessions share, since many clients are the same
// program.
type sharedEnvelope = unique.Handle[sessionEnvelope]

// size returns an estimate of how many bytes appendMembers appends.
func (e *sessionEnvelope) size() int {
	const keys = len(wire.MetaProtocolVersion + wire.MetaClientInfo + wire.MetaClientCapabilities + wire.MetaLogLevel)
	return keys + len(e.clientInfo) + len(e.capabilities) + 64
}

// appendMembers appends the members of a modern request's `_meta`, without braces.
//
// Spec: basic/index#meta (2026-07-28)
func (e *sessionEnvelope) appendMembers(dst []byte) []byte {
	dst = append(append(dst, `"`+wire.MetaProtocolVersion+`":"`...), e.revision.String()...)
	dst = append(append(dst, `","`+wire.MetaClientInfo+`":`...), e.clientInfo...)
	dst = append(append(dst, `,"`+wire.MetaClientCapabilities+`":`...), e.capabilities...)
	dst = append(append(dst, `,"`+wire.MetaLogLevel+`":"`...), e.logLevel...)
	return append(dst, '"')
}

// serve has the core serve a request of the client in the modern form. retry holds the additional
// members of a retried request, each followed by a comma; nil for none.
func (s *Session) serve(ctx context.Context, dst []byte, m *jsonrpc.Message,
	retry []byte, notify Notify) ([]byte, *jsonrpc.Error) {
	params, err := s.modernParams(m.Params, retry)
	if err != nil {
		return nil, err
	}
	return s.cfg.Core.Serve(ctx, dst, jsonrpc.NewRequest(m.ID, m.Method, params), notify)
}

// modernParams returns the params of a client's request with the members of retry and the envelope of
// the session. It drops members that only the modern era has: a client of a session cannot mean
// them.
func (s *Session) modernParams(params, retry []byte) (json.RawMessage, *jsonrpc.Error) {
	if params != nil && jsonscan.Kind(params) != '{' {
		return nil, invalidParams("params: want an object")
	}
	s.mu.Lock()
	envelope := s.envelope.Value()
	s.mu.Unlock()
	dst := make([]byte, 0, len(`{,"_meta":{}}`)+envelope.size()+len(params)+len(retry))
	dst = append(dst, '{')
	var meta []byte
	for key, value := range jsonscan.Members(params) {
		switch string(key) {
		case "_meta":
			if jsonscan.Kind(value) != '{' {
				return nil, invalidParams("params._meta: want an object")
			}
			meta = value
		case "inputResponses", "requestState":
		default:
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	dst = append(append(dst, retry...), `"_meta":{`...)
	dst = envelope.appendMembers(dst)
	for key, value := range jsonscan.Members(meta) {
		switch string(key) {
		case wire.MetaProtocolVersion, wire.MetaClientInfo, wire.MetaClientCapabilities, wire.MetaLogLevel:
		default:
			dst = appendMember(append(dst, ','), key, value)
		}
	}
	return append(dst, "}}"...), nil
}
