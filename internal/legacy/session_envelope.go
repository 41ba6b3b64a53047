package legacy

import (
	"context"
	"encoding/json"
	"unique"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A sessionEnvelope is the envelope of every request of a session, as initialize and logging/setLevel have set it.
type sessionEnvelope struct {
	revision                 wire.Revision
	clientInfo, capabilities string // JSON objects
	logLevel                 string
}

// A sharedEnvelope is a sessionEnvelope that equal sessions share: many clients are the same program.
type sharedEnvelope = unique.Handle[sessionEnvelope]

// size returns about how many bytes appendMembers appends.
func (e *sessionEnvelope) size() int {
	const keys = len(wire.MetaProtocolVersion + wire.MetaClientInfo + wire.MetaClientCapabilities + wire.MetaLogLevel)
	return keys + len(e.clientInfo) + len(e.capabilities) + 64
}

// appendMembers appends the members of `_meta` that a modern request has, without braces.
//
// Spec: basic/index#meta (2026-07-28)
func (e *sessionEnvelope) appendMembers(dst []byte) []byte {
	dst = append(append(dst, `"`+wire.MetaProtocolVersion+`":"`...), e.revision.String()...)
	dst = append(append(dst, `","`+wire.MetaClientInfo+`":`...), e.clientInfo...)
	dst = append(append(dst, `,"`+wire.MetaClientCapabilities+`":`...), e.capabilities...)
	dst = append(append(dst, `,"`+wire.MetaLogLevel+`":"`...), e.logLevel...)
	return append(dst, '"')
}

// serve has the core answer a request of the client, in the modern form. retry holds the members that a retried request
// has in addition, each with a comma behind it; nil for none.
func (s *Session) serve(ctx context.Context, dst []byte, m *jsonrpc.Message, retry []byte, notify Notify) ([]byte, *jsonrpc.Error) {
	params, err := s.modernParams(m.Params, retry)
	if err != nil {
		return nil, err
	}
	return s.cfg.Core.Serve(ctx, dst, jsonrpc.NewRequest(m.ID, m.Method, params), notify)
}

// modernParams returns the params of a client's request with the envelope of the session. Members that belong to the
// modern era are replaced by those of retry: a client of a session cannot mean them.
func (s *Session) modernParams(params, retry []byte) (json.RawMessage, *jsonrpc.Error) {
	if params != nil && jsonscan.Kind(params) != '{' {
		return nil, invalidParams("params: want an object")
	}
	meta, has := jsonscan.Get(params, "_meta")
	if has && jsonscan.Kind(meta) != '{' {
		return nil, invalidParams("params._meta: want an object")
	}
	s.mu.Lock()
	envelope := s.envelope.Value()
	s.mu.Unlock()
	dst := make([]byte, 0, len(`{"_meta":{},`)+envelope.size()+len(params)+len(retry))
	dst = append(envelope.appendMembers(append(dst, `{"_meta":{`...)), ',')
	for key, value := range jsonscan.Members(meta) {
		switch string(key) {
		case wire.MetaProtocolVersion, wire.MetaClientInfo, wire.MetaClientCapabilities, wire.MetaLogLevel:
		default:
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	dst = append(closeWith(dst, '}'), ',')
	for key, value := range jsonscan.Members(params) {
		switch string(key) {
		case "_meta", "inputResponses", "requestState":
		default:
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	return closeWith(append(dst, retry...), '}'), nil
}
