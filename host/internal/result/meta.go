package result

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// ownMeta is the prefix of the members of `_meta` that only a host may set.
const ownMeta = "dev.patchbay/"

// WithoutOwnMeta returns a result of a server without the members of `_meta` that only a host may set: a
// server must not report a failure of another server.
func WithoutOwnMeta(raw mcp.RawResult) mcp.RawResult {
	if meta, changed := withoutOwn(raw); changed {
		return mcp.RawResult(jsonscan.WithMember(json.RawMessage(raw), "_meta", meta))
	}
	return raw
}

// withoutOwn returns the `_meta` of an object without the host's members. changed reports whether it
// contained such a member.
func withoutOwn(object []byte) (meta []byte, changed bool) {
	if bytes.IndexByte(object, '\\') < 0 && !bytes.Contains(object, []byte(ownMeta)) { // no escapes: no such name
		return nil, false
	}
	meta, ok := jsonscan.Get(object, "_meta")
	if !ok || jsonscan.Kind(meta) != '{' || !hasOwn(meta) {
		return nil, false
	}
	return jsonscan.Filter(meta, func(key string) bool { return !strings.HasPrefix(key, ownMeta) }), true
}

func hasOwn(meta []byte) bool {
	for key := range jsonscan.Members(meta) {
		if bytes.HasPrefix(key, []byte(ownMeta)) {
			return true
		}
	}
	return false
}

// PublicQuestions returns a result with its questions as callers see them: with the name of the server unless
// server is empty, and without the members of `_meta` that only a host may set.
func PublicQuestions(raw []byte, server string) []byte {
	requests, ok := jsonscan.Get(raw, "inputRequests")
	if !ok || jsonscan.Kind(requests) != '{' {
		return raw
	}
	public := jsonscan.Edit(requests, func(key, request []byte) ([]byte, []byte) {
		return key, publicQuestion(request, server)
	})
	return jsonscan.WithMember(raw, "inputRequests", public)
}

// publicQuestion removes hidden characters from the texts of a question, and puts the name of the
// server before the message of an elicitation. A sampling request does not name the server, because
// most revisions define no `_meta` for its params.
func publicQuestion(request []byte, server string) []byte {
	params, ok := jsonscan.Get(request, "params")
	if !ok || jsonscan.Kind(params) != '{' {
		return request
	}
	before := params
	if meta, changed := withoutOwn(params); changed {
		params = jsonscan.WithMember(params, "_meta", meta)
	}
	params = round.VisibleQuestion(params, false)
	if server != "" && jsonscan.GetString(request, "method") == wire.MethodElicitationCreate {
		message, _ := jsonscan.Get(params, "message")
		if text, err := jsonscan.Unquote(message); err == nil {
			params = jsonscan.WithMember(params, "message", jsonscan.AppendQuote(nil, "["+server+"] "+text))
		}
	}
	if len(params) == len(before) && string(params) == string(before) {
		return request
	}
	return jsonscan.WithMember(request, "params", params)
}
