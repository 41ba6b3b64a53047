package events

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"math"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxPageBytes limits a page of several event types. Clients accept messages of 16 MiB.
const maxPageBytes = 4 << 20

type listResult struct {
	mcp.EmptyResult `json:"-"`
	Events          []json.RawMessage `json:"events"`
	NextCursor      string            `json:"nextCursor,omitzero"`
}

// list serves events/list. A cursor holds the last name of a page: it reveals no hidden event type,
// and remains valid when event types are added or removed.
//
// Spec: SEP-3415, Listing Available Events.
func (s *Server) list(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	var p struct {
		Cursor *string `json:"cursor"`
	}
	if jsonv2.Unmarshal(req.Params, &p) != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params.cursor is not a string")
	}
	after := ""
	if p.Cursor != nil {
		name, err := base64.RawURLEncoding.Strict().DecodeString(*p.Cursor)
		if err != nil || checkName(string(name)) != nil {
			return nil, mcp.Errorf(mcp.CodeInvalidParams,
				"params.cursor is not a cursor of this list; start again without one")
		}
		after = string(name)
	}
	res := &listResult{Events: []json.RawMessage{}}
	size, last := 0, ""
	for _, e := range s.visible(ctx) {
		if e.Name <= after {
			continue
		}
		raw, err := jsonv2.Marshal(&e, jsonv2.Deterministic(true))
		if err != nil {
			return nil, err
		}
		if n := len(res.Events); n > 0 && (n == s.opts.PageSize || size+len(raw) > maxPageBytes) {
			res.NextCursor = base64.RawURLEncoding.EncodeToString([]byte(last))
			break
		}
		res.Events, size, last = append(res.Events, raw), size+len(raw), e.Name
	}
	return res, nil
}

// requestParams are the params of events/poll and events/stream.
type requestParams struct {
	Name      *string         `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Cursor    *string         `json:"cursor"`
	MaxAge    *int64          `json:"maxAgeMs"`
	MaxEvents *int            `json:"maxEvents"`
}

// ParseSubscription returns the subscription and the start in the params of a request: name,
// arguments, cursor and maxAgeMs. The error is an [*mcp.Error] with code -32602.
func ParseSubscription(req *mcp.Request) (Subscription, Start, error) {
	sub, at, _, err := parseParams(req)
	return sub, at, err
}

func parseParams(req *mcp.Request) (sub Subscription, at Start, p requestParams, err error) {
	invalid := func(format string, args ...any) (Subscription, Start, requestParams, error) {
		return Subscription{}, Start{}, p, mcp.Errorf(mcp.CodeInvalidParams, format, args...)
	}
	if err := jsonv2.Unmarshal(req.Params, &p); err != nil {
		return invalid("params: want a string as name and cursor, an object as arguments, " +
			"and integers as maxAgeMs and maxEvents")
	}
	isNull := string(p.Arguments) == "null"
	switch {
	case p.Name == nil || len(*p.Name) > maxName:
		return invalid("params.name: want a string of at most %d bytes", maxName)
	case p.Arguments != nil && !isNull && p.Arguments[0] != '{':
		return invalid("params.arguments: want an object")
	case p.Cursor != nil && len(*p.Cursor) > maxCursor:
		return invalid("params.cursor has %d bytes, want at most %d", len(*p.Cursor), maxCursor)
	case p.MaxAge != nil && *p.MaxAge < 0:
		return invalid("params.maxAgeMs is %d, want a positive number", *p.MaxAge)
	case p.MaxEvents != nil && *p.MaxEvents < 1:
		return invalid("params.maxEvents is %d, want a positive number", *p.MaxEvents)
	}
	sub = Subscription{Principal: req.Principal, Name: *p.Name, Arguments: p.Arguments}
	if isNull {
		sub.Arguments = nil
	}
	if p.Cursor != nil {
		at.Cursor = *p.Cursor
	}
	if p.MaxAge != nil {
		const longest = math.MaxInt64 / int64(time.Millisecond)
		at.MaxAge = max(time.Duration(min(*p.MaxAge, longest))*time.Millisecond, 1) // zero means no limit
	}
	return sub, at, p, nil
}

type pollResult struct {
	mcp.EmptyResult `json:"-"`
	Events          []*Delivered `json:"events"`
	Cursor          *string      `json:"cursor"`
	Truncated       bool         `json:"truncated"`
	HasMore         bool         `json:"hasMore"`
	NextPollMs      int64        `json:"nextPollMs"`
}

// poll serves events/poll, without state between requests.
//
// Spec: SEP-3415, Poll-Based Delivery.
func (s *Server) poll(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	sub, at, p, err := parseParams(req)
	if err != nil {
		return nil, err
	}
	limit := s.opts.MaxEvents
	if p.MaxEvents != nil {
		limit = min(*p.MaxEvents, limit)
	}
	f, err := s.openAt(ctx, ModePoll, sub, at, limit)
	if err != nil {
		return nil, err
	}
	b := f.first
	if b.events == nil {
		b.events = []*Delivered{}
	}
	return &pollResult{Events: b.events, Cursor: nullable(b.cursor), Truncated: b.truncated, HasMore: b.more,
		NextPollMs: b.next.Milliseconds()}, nil
}
