package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// An ask is what one of the client's methods wants of the server.
type ask struct {
	method  string
	members []byte // of the params, each behind a comma
	input   []byte // members that answer what the server asked in the round before
	mirror  []HeaderParam
	// notify receives the notifications of the request; nil for progress and log messages. It may pause the timeout.
	notify func(w *requestContext, method string, params json.RawMessage)
}

// do sends a request, answers what the server asks meanwhile, and gives the result.
func (c *Client) do(ctx context.Context, k *ask) (RawResult, error) {
	o := callOptionsFrom(ctx)
	if err := o.checkMeta(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, &TransportError{Method: k.method, Err: context.Cause(ctx)}
	}
	m, _ := wire.Latest().Method(k.method)
	if m.Cacheable && !o.NoCache {
		if raw, ok := c.cache.get(ctx, k); ok {
			return raw, nil
		}
	}
	asked := c.cache.now()
	w := c.requests.start(ctx, c, o.limits(&c.opts))
	defer w.stop()
	raw, err := c.rounds(w, w, o, k)
	if err != nil {
		return nil, unanswered(w, k.method, err)
	}
	if m.Cacheable && k.input == nil {
		c.cache.put(ctx, k, raw, asked)
	}
	return raw, nil
}

// unanswered makes the end of a context an error that says that the request may have run.
func unanswered(ctx context.Context, method string, err error) error {
	var failed *TransportError
	switch {
	case ctx.Err() == nil:
		return err
	case errors.Is(context.Cause(ctx), ErrClosed) && asError(err) != nil:
		// What the server says of a request that closing has ended is only that.
		return &TransportError{Method: method, MayHaveRun: true, Err: context.Cause(ctx)}
	case asError(err) != nil || errors.As(err, &failed):
		return err
	}
	if errors.Is(err, context.Cause(ctx)) || errors.Is(err, ctx.Err()) {
		return &TransportError{Method: method, MayHaveRun: true, Err: err}
	}
	return err
}

// notSent is the error of a request that found no connection to be sent on.
func notSent(ctx context.Context, method string, err error) error {
	var failed *TransportError
	switch {
	case errors.As(err, &failed):
		return &TransportError{Method: method, MayHaveRun: failed.MayHaveRun && failed.Method == method, Err: failed.Err}
	case ctx.Err() != nil && (errors.Is(err, context.Cause(ctx)) || errors.Is(err, ctx.Err())):
		return &TransportError{Method: method, Err: err}
	}
	return err
}

// rounds sends a request again with the answers for as long as the server asks.
//
// Spec: basic/patterns/mrtr (2026-07-28).
func (c *Client) rounds(ctx context.Context, w *requestContext, o *CallOptions, k *ask) (RawResult, error) {
	var in answering
	for round := 0; ; round++ {
		raw, err := c.round(ctx, w, o, k)
		if err != nil {
			return nil, err
		}
		switch resultType := raw.ResultType(); resultType {
		case ResultComplete:
			return raw, nil
		case ResultInputRequired:
			if round >= c.opts.MaxRounds {
				return nil, &TransportError{Method: k.method, MayHaveRun: true, Err: fmt.Errorf("the server asks for the %dth time", round+1)}
			}
			w.Pause()
			k.input, err = c.answerInput(ctx, &in, k.method, raw)
			w.Resume()
			if err != nil {
				return nil, err
			}
		default:
			return nil, c.invalid(k.method, fmt.Errorf("result type %.64q is not known", resultType))
		}
	}
}

// round sends a request once.
func (c *Client) round(ctx context.Context, w *requestContext, o *CallOptions, k *ask) (RawResult, error) {
	conn, err := c.live(ctx)
	if err != nil {
		return nil, notSent(ctx, k.method, err)
	}
	var box *inbox
	var notify func(context.Context, string, json.RawMessage) error
	if take := k.notify; take != nil {
		notify = func(_ context.Context, method string, params json.RawMessage) error {
			take(w, method, params)
			return nil
		}
	} else if o.Progress != nil || c.opts.Log != nil {
		last := math.Inf(-1) // progress
		box = &inbox{log: c.opts.Logger, handle: func(_ string, params json.RawMessage) { o.progressed(&last, params) }}
		notify = func(ctx context.Context, method string, params json.RawMessage) error {
			w.Touch()
			switch method {
			case wire.NotificationProgress:
				return box.put(ctx, method, params)
			case wire.NotificationMessage:
				return c.logs.put(ctx, method, params)
			}
			return nil
		}
	}
	req, err := c.newRequest(conn, o, k, notify)
	if err != nil {
		return nil, err
	}
	res, err := c.handler.ServeMCP(ctx, req)
	if box != nil {
		box.drain(ctx)
		box.close()
	}
	if err != nil {
		return nil, err
	}
	return rawResult(res)
}

// rawResult returns a result in its encoded form; only middleware makes others.
func rawResult(res Result) (RawResult, error) {
	switch res := res.(type) {
	case RawResult:
		return res, nil
	case nil:
		return nil, errors.New("mcp: middleware returned neither result nor error")
	}
	raw, err := encodeResult(nil, res, nil)
	return RawResult(raw), err
}

// progressed hands a note of progress to the caller's function. Progress that does not grow is none.
//
// Spec: basic/utilities/progress#behavior-requirements.
func (o *CallOptions) progressed(last *float64, params json.RawMessage) {
	var update ProgressUpdate
	if o.Progress != nil && jsonv2.Unmarshal(params, &update) == nil && update.Progress > *last {
		*last = update.Progress
		o.Progress(update)
	}
}

// logged hands a log message to the caller's function.
func (c *Client) logged(method string, params json.RawMessage) {
	var m LogMessage
	if c.opts.Log == nil || method != wire.NotificationMessage {
		return
	}
	if err := jsonv2.Unmarshal(params, &m); err != nil {
		c.opts.Logger.Debug("mcp: log message of the server cannot be read", "error", err)
		return
	}
	c.opts.Log(c.ctx, &m)
}

// invalid says that an answer is none. What the server was asked to do it has done.
func (c *Client) invalid(method string, err error) error {
	return &TransportError{Method: method, MayHaveRun: true, Err: fmt.Errorf("%w: %w", ErrInvalidResult, err)}
}

// newRequest puts what is asked into its envelope.
func (c *Client) newRequest(conn *connection, o *CallOptions, k *ask, notify func(context.Context, string, json.RawMessage) error) (*Request, error) {
	req := &Request{Method: k.method, Notify: notify, HeaderParams: k.mirror}
	level := string(cmp.Or(o.LogLevel, c.opts.LogLevel))
	req.env = wire.Envelope{
		VersionText: conn.revision.String(), HasVersion: true, Revision: conn.revision,
		ClientInfo: c.info, Capabilities: c.declared, LogLevel: level,
	}
	room := len(`}}`)
	if level != "" || o.Progress != nil || len(o.Meta) > 0 {
		room = 128 // for small ones
	}
	b := make([]byte, 0, len(conn.prefix)+len(k.members)+len(k.input)+room)
	b = append(b, conn.prefix...)
	if level != "" {
		b = jsonscan.AppendQuote(append(b, `,"`+wire.MetaLogLevel+`":`...), level)
	}
	if o.Progress != nil {
		b = append(b, `,"`+wire.MetaProgressToken+`":`...)
		mark := len(b)
		b = strconv.AppendInt(b, c.tokens.Add(1), 10)
		req.env.ProgressToken = json.RawMessage(b[mark:len(b):len(b)])
	}
	if len(o.Meta) > 0 {
		var err error
		if b, err = appendMembers(append(b, ','), o.Meta); err != nil {
			return nil, fmt.Errorf("mcp: CallOptions.Meta: %w", err)
		}
	}
	b = append(b, '}')
	req.env.Meta = json.RawMessage(b[len(`{"_meta":`):])
	req.Params = append(append(append(b, k.members...), k.input...), '}')
	return req, nil
}
