package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// RawQuestion returns a question with given params, such as the params of another server's
// question, for [AskAll]. The request is sent unchanged, and the client's result is stored
// unchanged in *answer, also if the user declined. The form of the result is checked, but not the
// content of an elicitation against its schema: the caller must check it. A method other than
// elicitation/create, sampling/createMessage and roots/list, and invalid params, are errors of
// AskAll.
func RawQuestion(key string, request InputRequest, answer *json.RawMessage) Question {
	q := Question{key: key, request: request}
	if q.err = q.setRaw(); q.err != nil {
		return q
	}
	check := q.accept
	q.accept = func(raw json.RawMessage) error {
		err := check(raw)
		if err == nil || errors.Is(err, ErrDeclined) || errors.Is(err, ErrDismissed) {
			*answer, err = bytes.Clone(raw), nil
		}
		return err
	}
	return q
}

// setRaw sets the check of the client's capabilities, and the check of its result.
func (q *Question) setRaw() (err error) {
	params := q.request.Params
	if len(params) == 0 {
		q.request.Params, params = nil, json.RawMessage(`{}`)
	}
	if err := jsonscan.Valid(params, jsonscan.Limits{}); err != nil || jsonscan.Kind(params) != '{' {
		return fmt.Errorf("invalid params %.64q: must be a JSON object", []byte(params))
	}
	switch q.request.Method {
	case wire.MethodElicitationCreate:
		var p ElicitRequestParams
		err = jsonv2.Unmarshal(params, &p)
		q.lacks = lacksForm
		if _, multiple := legacy.MultiSelect(params); multiple {
			q.lacks = lacksMultiSelect
		}
		if p.Mode == modeURL {
			q.lacks = lacksURL
		}
		q.accept = func(raw json.RawMessage) error { _, err := decodeElicitResult(raw); return err }
	case wire.MethodSamplingCreateMessage:
		var p CreateMessageParams
		err = jsonv2.Unmarshal(params, &p)
		q.lacks = p.lacks
		q.accept = func(raw json.RawMessage) error { _, err := decodeSampleResult(raw); return err }
	case wire.MethodRootsList:
		q.lacks = lacksRoots
		q.accept = func(raw json.RawMessage) error { _, err := decodeRoots(raw); return err }
	default:
		return fmt.Errorf("method %.64q is not that of an input request", q.request.Method)
	}
	if err != nil {
		return fmt.Errorf("invalid params of %s: %w", q.request.Method, err)
	}
	return nil
}
