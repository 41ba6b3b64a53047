package mcp

import (
	"crypto/sha256"
	stdjson "encoding/json"
	"errors"
)

// An InputRequired is the result of a request that cannot be finished before the client has answered something: it
// sends the request again, with the answers. Servers make it of what handlers [Ask]. Middleware may also give one by
// hand, for the methods tools/call, prompts/get and resources/read and for those of extensions that say so, and then reads inputResponses and requestState from
// the params of the next request itself.
//
// Spec: basic/patterns/mrtr (2026-07-28).
type InputRequired struct {
	// InputRequests are the questions, by keys that the answers will have.
	InputRequests map[string]InputRequest `json:"inputRequests,omitempty"`
	// RequestState comes back unchanged with the answers. It has been in the hands of a client: what depends on it
	// needs a seal.
	RequestState string `json:"requestState,omitzero"`
	Meta         Meta   `json:"-"`
}

// ResultType is "input_required".
func (*InputRequired) ResultType() string { return ResultInputRequired }

// ResultMeta is r.Meta.
func (r *InputRequired) ResultMeta() Meta { return r.Meta }

func (r *InputRequired) appendFields(dst []byte) ([]byte, error) {
	if len(r.InputRequests) == 0 && r.RequestState == "" {
		return nil, errors.New("neither inputRequests nor requestState is set")
	}
	return appendMembers(dst, r)
}

// An InputRequest is one question of a server: an elicitation, a sampling or a request for roots.
//
// Spec: schema InputRequest (2026-07-28).
type InputRequest struct {
	Method string             `json:"method"`          // such as "elicitation/create"
	Params stdjson.RawMessage `json:"params,omitzero"` // a JSON object, such as that of an [ElicitParams]
}

// A digest identifies a question.
type digest [16]byte

func digestOf(parts ...[]byte) (d digest) {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
		h.Write([]byte{0}) // stands in no JSON text
	}
	copy(d[:], h.Sum(nil))
	return d
}

func (r InputRequest) digest() digest { return digestOf([]byte(r.Method), r.Params) }
