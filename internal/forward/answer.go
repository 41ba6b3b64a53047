package forward

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// readAnswers returns the answers of a client by question, without answers to other questions. It
// fails if an answer does not take the form that the question requires.
func readAnswers(open []*question, raw json.RawMessage) (map[*question]json.RawMessage, error) {
	if raw != nil && jsonscan.Kind(raw) != '{' {
		return nil, invalid("invalid inputResponses: must be an object")
	}
	answers := map[*question]json.RawMessage{}
	for _, q := range open {
		value, ok := jsonscan.Get(raw, q.key)
		if !ok {
			continue
		}
		if err := q.check(value); err != nil {
			return nil, invalid("invalid inputResponses: %s: %v", q.key, err)
		}
		answers[q] = bytes.Clone(value)
	}
	return answers, nil
}

// check returns an error if an answer does not take the form of the method's result. Spec: schema
// ElicitResult, CreateMessageResult, ListRootsResult.
func (q *question) check(answer []byte) error {
	if jsonscan.Kind(answer) != '{' {
		return errors.New("must be an object")
	}
	switch q.method {
	case wire.MethodElicitationCreate:
		return q.checkElicited(answer)
	case wire.MethodRootsList:
		roots, _ := jsonscan.Get(answer, "roots")
		if jsonscan.Kind(roots) != '[' {
			return errors.New("roots must be an array")
		}
		for root := range jsonscan.Elements(roots) {
			if uri, _ := jsonscan.Get(root, "uri"); jsonscan.Kind(root) != '{' || jsonscan.Kind(uri) != '"' {
				return errors.New("each of the roots must be an object with a uri")
			}
		}
	case wire.MethodSamplingCreateMessage:
		content, _ := jsonscan.Get(answer, "content")
		if kind := jsonscan.Kind(content); kind != '{' && kind != '[' {
			return errors.New("content must be an object or an array")
		}
		for _, key := range []string{"role", "model"} {
			if value, _ := jsonscan.Get(answer, key); jsonscan.Kind(value) != '"' {
				return fmt.Errorf("%s must be a string", key)
			}
		}
	}
	return nil
}

func (q *question) checkElicited(answer []byte) error {
	raw, _ := jsonscan.Get(answer, "action")
	switch action, _ := jsonscan.Unquote(raw); action {
	case "decline", "cancel":
		return nil
	case "accept":
	default:
		return errors.New("action must be accept, decline or cancel")
	}
	if mode, _ := jsonscan.Get(q.params, "mode"); string(mode) == `"url"` {
		return nil
	}
	content, ok := jsonscan.Get(answer, "content")
	if !ok {
		content = []byte("{}")
	}
	if jsonscan.Kind(content) != '{' {
		return errors.New("content must be an object")
	}
	raw, _ = jsonscan.Get(q.params, "requestedSchema")
	form, err := schema.Compile(raw)
	if err != nil {
		return nil //nolint:nilerr // the server's own mistake, which it may not notice
	}
	return form.Validate(form.ApplyDefaults(content)) // the server or the client adds them
}
