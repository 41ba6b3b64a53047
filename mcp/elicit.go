package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/browser"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// ElicitRequestParams are the parameters of elicitation/create, a question to the user of a client.
//
// Spec: client/elicitation; schema ElicitRequestParams.
type ElicitRequestParams struct {
	Mode    string `json:"mode,omitzero"` // "form", the default, or "url"
	Message string `json:"message"`       // the question, and its reason, for the user
	// RequestedSchema describes the form: a JSON Schema of a flat object.
	RequestedSchema json.RawMessage `json:"requestedSchema,omitzero"`
	URL             string          `json:"url,omitzero"`           // the page that the user is asked to visit
	ElicitationID   string          `json:"elicitationId,omitzero"` // identifies the visit; 2025-11-25 only
	Meta            Meta            `json:"_meta,omitzero"`
}

const modeForm, modeURL = "form", "url"

// An ElicitResult is the user's response to a question.
//
// Spec: client/elicitation, Response Actions; schema ElicitResult.
type ElicitResult struct {
	Action ElicitAction `json:"action"`
	// Content is the completed form, a JSON object; only if the action is accept.
	Content json.RawMessage `json:"content,omitzero"`
}

// An ElicitAction is the user's choice.
type ElicitAction string

// Actions of a user.
const (
	ElicitAccept  ElicitAction = "accept"  // completed the form, or agreed to visit the page
	ElicitDecline ElicitAction = "decline" // refused
	ElicitCancel  ElicitAction = "cancel"  // dismissed the question
)

// decodeElicitResult decodes a client's answer. The error is a protocol error if it is malformed,
// and [ErrDeclined] or [ErrDismissed] if the user did not accept.
func decodeElicitResult(raw json.RawMessage) (*ElicitResult, error) {
	var r ElicitResult
	if err := jsonv2.Unmarshal(raw, &r); err != nil {
		return nil, malformed("an elicitation result is an object with an action")
	}
	switch r.Action {
	case ElicitAccept:
	case ElicitDecline:
		return nil, ErrDeclined
	case ElicitCancel:
		return nil, ErrDismissed
	default:
		return nil, malformed("the action of an elicitation result is accept, decline or cancel")
	}
	switch jsonscan.Kind(r.Content) {
	case '{':
	case 0, 'n':
		r.Content = json.RawMessage("{}")
	default:
		return nil, malformed("the content of an elicitation result is an object")
	}
	return &r, nil
}

func elicitation(p *ElicitRequestParams) (InputRequest, error) {
	if p.Message == "" {
		return InputRequest{}, errors.New("the message is empty")
	}
	raw, err := schema.Encode(p)
	return InputRequest{Method: wire.MethodElicitationCreate, Params: raw}, err
}

// URLQuestion returns the question of [AskURL], for [AskAll].
func URLQuestion(key, url, message string) Question {
	q := Question{key: key, lacks: lacksURL, accept: func(raw json.RawMessage) error {
		_, err := decodeElicitResult(raw)
		return err
	}}
	if _, q.err = checkPage(url); q.err == nil {
		q.request, q.err = elicitation(&ElicitRequestParams{Mode: modeURL, Message: message, URL: url})
	}
	return q
}

// AskURL asks the user to visit a page, for information that must not pass through the client:
// passwords, payment, or signing in elsewhere. It behaves as [Ask] does. A nil error means that the
// user agreed to visit the page, not that the visit succeeded; the server must check the outcome
// itself. Clients of 2025-11-25 are notified that the visit is complete when the handler succeeds;
// a handler must return an error while the visit is incomplete.
//
// The URL must be https, or http on the loopback interface. It must not contain secrets or grant
// access by itself, because it can be passed on: the page must verify that its visitor is the user
// who was asked.
//
// Spec: client/elicitation (2025-11-25, 2026-07-28), URL Mode; Safe URL Handling.
func AskURL(ctx context.Context, key, url, message string) error {
	return AskAll(ctx, URLQuestion(key, url, message))
}

// checkPage returns a URL of an elicitation as it may be shown and opened.
func checkPage(page string) (string, error) {
	if len(page) > maxURI {
		return "", fmt.Errorf("the URL is %d bytes long, want at most %d", len(page), maxURI)
	}
	u, err := browser.Check(page)
	if err != nil {
		return "", err
	}
	return u.String(), nil
}

// HostWarning returns a warning if the host of p.URL may look like another host: a label is in
// Punycode, which browsers may show as the characters that it encodes. Otherwise it returns "". A
// client should show the warning to the user, next to the URL.
//
// Spec: client/elicitation (2025-11-25, 2026-07-28), Safe URL Handling.
func (p *ElicitRequestParams) HostWarning() string {
	u, err := browser.Check(p.URL)
	if err != nil {
		return ""
	}
	return browser.HostWarning(u.Hostname())
}

func lacksForm(r *Request) error {
	caps := r.Capabilities()
	switch {
	case caps.Elicitation == nil || !r.has(wire.Elicitation):
		return lacking("elicitation", `{"elicitation":{}}`)
	case !caps.asksForm():
		return lacking("elicitation with forms", `{"elicitation":{"form":{}}}`)
	}
	return nil
}

func lacksMultiSelect(r *Request) error {
	if err := lacksForm(r); err != nil {
		return err
	}
	if !r.has(wire.ElicitationMultiSelect) {
		return inexpressible(r, "forms with multiple choice")
	}
	return nil
}

func lacksURL(r *Request) error {
	if !r.Capabilities().asksURL() || !r.has(wire.ElicitationURL) {
		return lacking("elicitation with URLs", `{"elicitation":{"url":{}}}`)
	}
	return nil
}
