package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Earlier is the state of the round that a request continues.
type Earlier struct {
	Conn  string      // the ID of the connection; empty means any
	Roots []string    // the keys of questions that the configuration answers
	Uses  pins.Target // the definitions that the connection must offer in an approved form
}

// Forward sends a request to an instance of a class, and answers questions for the roots of the
// configuration. If the server asks its client at the same time, Forward returns the keys of the
// questions for roots. The error is an [*hosterr.Error] if there is no valid response.
func (p *Pool) Forward(
	ctx context.Context, req *mcp.Request, class string, c Earlier, o *driver.ForwardOptions,
) (s *Conn, res mcp.Result, roots []string, err error) {
	if o.Capabilities == nil {
		o.Capabilities = p.ClientCapabilities(req)
	}
	o.WithoutMeta = cmp.Or(o.WithoutMeta, p.Entry().WithoutMeta())
	own := p.roots()
	req = own.with(withRecent(p, req, o.Principal), c.Roots)
	for round := range maxRootsRounds {
		if s, res, err = p.sendOnce(ctx, req, class, c, o); err != nil {
			if round > 0 {
				err = connection.Ran(err)
			}
			return s, nil, nil, err
		}
		if err := checkQuestions(p, req, res); err != nil {
			return s, nil, nil, err
		}
		rest, keys, others := own.take(res)
		switch {
		case len(keys) == 0:
			return s, res, nil, nil
		case others:
			return s, rest, keys, nil
		}
		req = own.next(req, rest, keys)
		if s.binds() {
			c.Conn = s.ServedID()
		}
	}
	e := p.up.Errorf(hosterr.CodeInvalidResult, "the server has asked for the roots more than %d times", maxRootsRounds)
	e.MayHaveRun = true
	return nil, nil, nil, e
}

// withRecent returns the request with notifications that count as results for [Action.Recent].
func withRecent(p *Pool, req *mcp.Request, principal string) *mcp.Request {
	notify := req.Notify
	if notify == nil || !p.up.env.UsesRecent() {
		return req
	}
	inner := *req
	inner.Notify = func(ctx context.Context, method string, params json.RawMessage) error {
		p.up.env.AddRecent(principal, p.up.name)
		return notify(ctx, method, params)
	}
	return &inner
}

// sendOnce sends a round of a request. If the connection ends before the request was sent, another
// connection sends it again. A request that continues a call must use the connection of the call. While the server
// of a cluster moves to another host, other requests wait for it.
func (p *Pool) sendOnce(
	ctx context.Context, req *mcp.Request, class string, c Earlier, o *driver.ForwardOptions,
) (*Conn, mcp.Result, error) {
	id := c.Conn
	moves := time.Now().Add(moveTime)
	for again := false; ; again = true {
		s, err := p.AcquireCall(ctx, class, id)
		moved := id == "" && time.Now().Before(moves)
		if moved && errors.Is(err, errMoved) {
			continue
		}
		if err != nil {
			return nil, nil, p.up.RequestError(ctx, err)
		}
		if err := s.checkPins(ctx, c.Uses); err != nil {
			s.ReleaseCall(id)
			return nil, nil, err
		}
		sent := ctx
		if s.peer != nil && id != "" {
			sent = context.WithValue(ctx, continuesKey{}, true)
		}
		res, err := s.send(sent, req, o)
		s.ReleaseCall(id)
		unsent := connection.IsUnsent(err) || s.peer != nil && isUnsentByPeer(err)
		moved = moved && s.peer != nil && s.peer.refused.Load()
		if again && !moved || id != "" || !unsent || !p.up.isCommand() || ctx.Err() != nil {
			return s, res, p.up.RequestError(ctx, err)
		}
	}
}

// send sends a request, and records whether the server responded.
func (s *Conn) send(ctx context.Context, req *mcp.Request, o *driver.ForwardOptions) (mcp.Result, error) {
	if s.lease != nil || s.peer != nil {
		return s.serve(ctx, req, o)
	}
	return s.exchange(ctx, req, o)
}

func (s *Conn) exchange(ctx context.Context, req *mcp.Request, o *driver.ForwardOptions) (mcp.Result, error) {
	began := time.Now()
	res, err := s.Forwarder().ForwardAs(ctx, req, o)
	u := s.in.pool.up
	if failed, ok := errors.AsType[*mcp.TransportError](err); ok && ctx.Err() == nil {
		if errors.Is(err, mcp.ErrTimeout) {
			err = withSetting(u.entry().Settings, failed, time.Since(began))
		}
		if exited := connection.ExitOf(err); exited != nil && u.isCommand() && s.peer == nil {
			s.lost(exited)
		}
		e := u.Failure(ctx, err)
		s.observe(e)
		if s.peer != nil { // the other host counts failures of the server
			return res, err
		}
		s.countFailure(e, o.Principal)
		if e.Code == hosterr.CodeTimeout && u.isCommand() && !s.HasSession() {
			s.CheckHealth()
		}
		return res, err
	}
	if err == nil || ctx.Err() == nil {
		s.observe(nil)
	}
	if raw, ok := res.(mcp.RawResult); ok {
		s.note(req.Method, raw)
	}
	return res, err
}

// answerTime limits how long a connection waits for the answer to a question of a modern server.
// The state of the question may be useful only to the process that sent it.
const answerTime = 10 * time.Minute

// note records the effect of a result on the life of its connection.
func (s *Conn) note(method string, res mcp.RawResult) {
	resultType := res.ResultType()
	asks := resultType == driver.ResultInputRequired
	if asks || s.in.calls {
		switch {
		case !asks:
			s.AwaitAnswer(time.Time{})
		case !s.HasSession():
			s.AwaitAnswer(time.Now().Add(answerTime))
		}
	}
	if resultType != driver.ResultComplete || strings.HasPrefix(method, "tasks/") {
		s.noteTask(res)
	}
}

// observe records whether the last request received a valid response.
func (s *Conn) observe(failed *hosterr.Error) {
	u := s.in.pool.up
	u.mu.Lock()
	defer u.mu.Unlock()
	if failed != nil {
		s.in.err = failed
	} else {
		s.in.breaker.Succeeded()
	}
	state := status.Degraded
	switch {
	case failed == nil && s.in.pool.lists.LackTools(): // the server responds, and is of no use
		return
	case failed == nil:
		state = status.Ready
	case failed.Code == hosterr.CodeAuthRequired:
		state = status.Auth
	}
	if s.SetHealth(state) {
		u.event(s, state, failed)
	}
}

// countFailure counts a request without a valid response in the breaker of its instance.
func (s *Conn) countFailure(e *hosterr.Error, principal string) {
	u := s.in.pool.up
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.poolKey(s.in.pool.caller) != "" {
		principal = "" // no other caller uses the instance
	}
	s.in.breaker.Failed(e, principal)
}

// checkQuestions returns an error if a result asks invalid questions.
func checkQuestions(p *Pool, req *mcp.Request, res mcp.Result) error {
	raw, ok := res.(mcp.RawResult)
	if !ok || raw.ResultType() != driver.ResultInputRequired {
		return nil
	}
	if err := round.CheckQuestions(req, raw, p.roots().areOfCaller()); err != nil {
		e := p.Errorf(hosterr.CodeInvalidResult, "invalid input_required result: %w", err)
		e.MayHaveRun = true
		return e
	}
	return nil
}
