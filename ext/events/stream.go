package events

import (
	"context"
	"encoding/json"
	"errors"
	"maps"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// stream serves events/stream until the client or the server ends it.
//
// Spec: SEP-3415, Push-Based Delivery.
func (s *Server) stream(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if req.Notify == nil {
		return nil, mcp.Errorf(mcp.CodeInvalidRequest, "%s needs a stream for notifications", req.Method)
	}
	sub, at, _, err := parseParams(req)
	if err != nil {
		return nil, err
	}
	release, err := s.acquire(req.Principal.Key())
	if err != nil {
		return nil, err
	}
	defer release()
	f, err := s.Open(ctx, ModePush, sub, at)
	if err != nil {
		return nil, err
	}
	p := &push{ctx: ctx, req: req, meta: mcp.Meta{metaSubscriptionID: json.RawMessage(req.ID.String())}}
	if err := p.active(f.Cursor, f.Truncated); err != nil {
		return nil, err
	}
	for item, err := range f.Items(ctx) {
		if err != nil {
			err = p.notify(notificationTerminated, frame{Error: s.public(asError(err))})
		} else {
			err = p.send(s, item)
		}
		if err != nil {
			return nil, err
		}
	}
	if cause := context.Cause(ctx); ctx.Err() != nil &&
		(!errors.Is(cause, mcp.ErrClosed) || errors.Is(cause, mcp.ErrDisconnected)) {
		return nil, cause // cancelled by the client
	}
	return mcp.EmptyResult{Meta: p.meta}, nil
}

// A push writes the notifications of a stream.
type push struct {
	ctx  context.Context
	req  *mcp.Request
	meta mcp.Meta // with the id of the subscription
}

// A frame contains the members of all notifications of a stream. Cursor is a string or null.
type frame struct {
	*Delivered `json:",embed"`
	Cursor     json.RawMessage `json:"cursor,omitzero"`
	Truncated  *bool           `json:"truncated,omitzero"`
	Error      *mcp.Error      `json:"error,omitzero"`
	Meta       mcp.Meta        `json:"_meta"`
}

func (p *push) active(cursor string, truncated bool) error {
	return p.notify(notificationActive, frame{Cursor: encodeCursor(cursor), Truncated: &truncated})
}

func (p *push) send(s *Server, i Item) error {
	switch {
	case i.Gap:
		return p.active(i.Cursor, true)
	case i.Failure != nil:
		return p.notify(notificationError, frame{Error: s.public(i.Failure)})
	case i.Event != nil:
		return p.notify(notificationEvent, frame{Delivered: i.Event, Cursor: encodeCursor(i.Cursor)})
	}
	return p.notify(notificationHeartbeat, frame{Cursor: encodeCursor(i.Cursor)})
}

func (p *push) notify(method string, f frame) error {
	f.Meta = p.meta
	if f.Delivered != nil && len(f.Delivered.Meta) > 0 {
		f.Meta = maps.Clone(f.Delivered.Meta)
		maps.Copy(f.Meta, p.meta)
	}
	params, err := jsonv2.Marshal(f, jsonv2.Deterministic(true))
	if err != nil {
		return err
	}
	return p.req.Notify(p.ctx, method, params)
}

// encodeCursor returns a cursor as JSON.
func encodeCursor(cursor string) json.RawMessage {
	raw, err := jsonv2.Marshal(nullable(cursor))
	if err != nil {
		return json.RawMessage("null") // not UTF-8: it cannot be sent
	}
	return raw
}
