package webhook

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	methodSubscribe   = "events/subscribe"
	methodUnsubscribe = "events/unsubscribe"
)

// Serve offers webhooks for the event types of a server: it adds [events.ModeWebhook] to the event
// types without [events.Event].Delivery, serves events/subscribe and events/unsubscribe, and calls
// [Sender.Start]. It must be called once, after all event types were added: the subscriptions in the
// store to an unknown event type end.
//
// Spec: SEP-3415, Subscribing; Unsubscribing.
func (s *Sender) Serve(ctx context.Context, e *events.Server) error {
	answer := func(ctx context.Context, req *mcp.Request) (mcp.Result, error) { return s.Answer(ctx, req, nil) }
	e.Handle(methodSubscribe, answer)
	e.Handle(methodUnsubscribe, answer)
	e.Offer(events.ModeWebhook) // otherwise the stored subscriptions end: their mode is not supported
	return s.Start(ctx, served{e})
}

type deliveryParams struct {
	Mode   *string `json:"mode"`
	URL    string  `json:"url"`
	Secret string  `json:"secret"`
}

type serverParams struct {
	Delivery *deliveryParams `json:"delivery"`
	TTL      json.RawMessage `json:"ttlMs"`
}

// parseParams returns the subscription in the params of a request, and its delivery.
func parseParams(req *mcp.Request) (r Request, err error) {
	if r.Subscription, r.Start, err = events.ParseSubscription(req); err != nil {
		return r, err
	}
	var p serverParams
	if jsonv2.Unmarshal(req.Params, &p) != nil || p.Delivery == nil {
		return r, mcp.Errorf(mcp.CodeInvalidParams, "params.delivery: want an object with strings as url and secret")
	}
	if m := p.Delivery.Mode; m != nil && *m != string(events.ModeWebhook) {
		return r, events.Unsupported("deliveryMode", *m)
	}
	r.URL, r.Secret = p.Delivery.URL, p.Delivery.Secret
	r.TTL, r.NoExpiry, err = parseTTL(p.TTL)
	return r, err
}

// parseTTL reads a suggested lifetime. Every integer is valid, since the server decides.
//
// Spec: SEP-3415, Subscription TTL.
func parseTTL(raw json.RawMessage) (ttl time.Duration, isEndless bool, err error) {
	const longest = math.MaxInt64 / int64(time.Millisecond)
	switch text := string(raw); text {
	case "":
		return 0, false, nil
	case "null":
		return 0, true, nil
	default:
		ms, err := strconv.ParseFloat(text, 64)
		if err != nil || ms != math.Trunc(ms) {
			return 0, false, mcp.Errorf(mcp.CodeInvalidParams, "params.ttlMs: want an integer or null")
		}
		if ms >= float64(longest) {
			return time.Duration(longest) * time.Millisecond, false, nil
		}
		return max(time.Duration(ms)*time.Millisecond, 1), false, nil // zero means the default
	}
}

type subscribeResult struct {
	mcp.EmptyResult `json:"-"`
	ID              string      `json:"id"`
	RefreshBefore   *time.Time  `json:"refreshBefore"`
	Cursor          *string     `json:"cursor"`
	Truncated       bool        `json:"truncated"`
	Status          *sentStatus `json:"deliveryStatus,omitzero"`
}

// A sentStatus is a [Status] as it is sent.
type sentStatus struct {
	Active       bool       `json:"active"`
	LastDelivery *time.Time `json:"lastDeliveryAt"`
	LastError    *string    `json:"lastError"`
	FailedSince  *time.Time `json:"failedSince,omitzero"`
}

// nullable returns a value as it is sent: null for the zero value.
func nullable[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// Answer serves a request events/subscribe or events/unsubscribe, for programs without an
// [events.Server], such as a gateway, which call [Sender.Start] with a feed of their own. change, if
// not nil, modifies the parsed request before Answer uses it, for example its Scope. The error for the
// client is an [*mcp.Error].
//
// Spec: SEP-3415, Subscribing; Unsubscribing.
func (s *Sender) Answer(ctx context.Context, req *mcp.Request, change func(r *Request)) (mcp.Result, error) {
	r, err := parseParams(req)
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(&r)
	}
	if req.Method == methodUnsubscribe {
		if err := s.Unsubscribe(ctx, r.Subscription, r.URL); err != nil {
			return nil, err
		}
		return mcp.EmptyResult{}, nil
	}
	grant, err := s.Subscribe(ctx, r)
	if err != nil {
		return nil, err
	}
	// A time that is rounded down is no later than the client suggested.
	sent := func(t time.Time) *time.Time { return nullable(t.UTC().Truncate(time.Millisecond)) }
	res := &subscribeResult{ID: grant.ID, RefreshBefore: sent(grant.Expires), Cursor: nullable(grant.Cursor),
		Truncated: grant.Truncated}
	if st := grant.Status; st != nil {
		res.Status = &sentStatus{Active: st.Active, LastDelivery: sent(st.LastDelivery),
			LastError: nullable(st.LastError), FailedSince: sent(st.FailedSince)}
	}
	return res, nil
}
