package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// An Earlier is the state of the request that another one continues.
type Earlier struct {
	Conn  string      // the ID of the connection; empty means any
	Roots []string    // the keys of questions that the configuration answers
	Uses  pins.Target // the definitions that the connection must offer in an approved form
}

// Forward sends a request to an instance of a class, and answers questions for the roots of the
// configuration. If the server asks its client at the same time, the keys of those are returned. The
// error is an [*Error] if there is no valid response.
func (p *Pool) Forward(
	ctx context.Context, req *mcp.Request, class string, c Earlier, o *driver.ForwardOptions,
) (s *Conn, res mcp.Result, roots []string, err error) {
	if o.Capabilities == nil {
		o.Capabilities = p.ClientCapabilities(req)
	}
	o.WithoutMeta = p.WithoutMeta()
	req = p.withRoots(p.withRecent(req, o.Principal), c.Roots)
	for round := range maxRootsRounds {
		if s, res, err = p.sendOnce(ctx, req, class, c, o); err != nil {
			if round > 0 {
				err = connection.Ran(err)
			}
			return s, nil, nil, err
		}
		if err := p.checkQuestions(req, res); err != nil {
			return s, nil, nil, err
		}
		rest, keys, others := p.takeRoots(res)
		switch {
		case len(keys) == 0:
			return s, res, nil, nil
		case others:
			return s, rest, keys, nil
		}
		req = p.nextRound(req, rest, keys)
		if s.HasSession() || s.in.calls {
			c.Conn = s.ID()
		}
	}
	e := p.up.errorf(hosterr.CodeInvalidResult, "the server has asked for the roots more than %d times", maxRootsRounds)
	e.MayHaveRun = true
	return nil, nil, nil, e
}

// withRecent returns the request with notifications that count as results for [Action.Recent].
func (p *Pool) withRecent(req *mcp.Request, principal string) *mcp.Request {
	notify := req.Notify
	if notify == nil || !p.up.servers.UsesRecent() {
		return req
	}
	inner := *req
	inner.Notify = func(ctx context.Context, method string, params json.RawMessage) error {
		p.up.servers.AddRecent(principal, p.up.name)
		return notify(ctx, method, params)
	}
	return &inner
}

// WithoutMeta returns the member of `_meta` that the server must not receive, or "" if there is
// none.
func (p *Pool) WithoutMeta() string {
	if p.up.entry().Settings.ForwardBaggage {
		return ""
	}
	return wire.MetaBaggage
}

// sendOnce sends one round of a request. If the connection ends before the request was sent, it is
// sent once more, on another one. A request that continues another has the id of its connection.
func (p *Pool) sendOnce(
	ctx context.Context, req *mcp.Request, class string, c Earlier, o *driver.ForwardOptions,
) (*Conn, mcp.Result, error) {
	id := c.Conn
	for again := false; ; again = true {
		s, err := p.AcquireCall(ctx, class, id)
		if err != nil {
			return nil, nil, p.up.requestError(ctx, err)
		}
		if err := s.checkPins(ctx, c.Uses); err != nil {
			s.ReleaseCall(id)
			return nil, nil, err
		}
		res, err := s.send(ctx, req, o)
		s.ReleaseCall(id)
		if again || id != "" || !connection.IsUnsent(err) || !p.up.isCommand() || ctx.Err() != nil {
			return s, res, p.up.requestError(ctx, err)
		}
	}
}

// requestError returns the error of a request: an [*Error] if there is no valid response.
func (u *Server) requestError(ctx context.Context, err error) error {
	switch _, failed := errors.AsType[*mcp.TransportError](err); {
	case err == nil:
		return nil
	case failed:
		return u.failure(ctx, err)
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)): // it was waiting to be sent
		return u.errorf(hosterr.CodeUnavailable, "%w", hosterr.Public{Err: fmt.Errorf("the request was cancelled: %w", err)})
	case isResponse(err):
		return err
	}
	e := *u.failure(ctx, err)
	e.MayHaveRun = true // the error does not say
	return &e
}

// isResponse reports whether an error is one of the server, or says already what a caller receives.
func isResponse(err error) bool {
	_, remote := errors.AsType[*mcp.Error](err)
	_, own := errors.AsType[*hosterr.Error](err)
	return remote || own
}

// send sends a request, and records whether the server has responded.
func (s *Conn) send(ctx context.Context, req *mcp.Request, o *driver.ForwardOptions) (mcp.Result, error) {
	began := time.Now()
	res, err := s.Forwarder().ForwardAs(ctx, req, o)
	u := s.in.Pool.up
	if failed, ok := errors.AsType[*mcp.TransportError](err); ok && ctx.Err() == nil {
		if errors.Is(err, mcp.ErrTimeout) {
			err = u.withSetting(failed, time.Since(began))
		}
		if exited := connection.ExitOf(err); exited != nil && u.isCommand() {
			s.lost(exited)
		}
		e := u.failure(ctx, err)
		s.observe(e)
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

// answerTime is how long a connection is kept for the answer to a question of a modern server. The
// state of the question may be of use only to the process that has made it.
const answerTime = 10 * time.Minute

// note records what a result says about the future of its connection.
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

// observe records whether the last request has a valid response.
func (s *Conn) observe(failed *hosterr.Error) {
	u := s.in.Pool.up
	u.mu.Lock()
	defer u.mu.Unlock()
	if failed != nil {
		s.in.err = failed
	} else {
		s.in.breaker.Succeeded()
	}
	state := connection.StateDegraded
	switch {
	case failed == nil && s.in.Pool.lists.LackTools(): // the server responds, and is of no use
		return
	case failed == nil:
		state = connection.StateReady
	case failed.Code == hosterr.CodeAuthRequired:
		state = connection.StateAuth
	}
	if s.SetHealth(state) {
		u.event(s, state, failed)
	}
}

// countFailure counts a request without a valid response in the breaker of its instance.
func (s *Conn) countFailure(e *hosterr.Error, principal string) {
	u := s.in.Pool.up
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.poolKey(s.in.Pool.caller) != "" {
		principal = "" // no other caller uses the instance
	}
	s.in.breaker.Failed(e, principal)
}

// A timeoutError is a timeout with the setting that expired.
type timeoutError struct {
	text string
	err  error
}

func (e *timeoutError) Error() string { return e.text }

// Unwrap returns the error of the request.
func (e *timeoutError) Unwrap() error { return e.err }

// withSetting adds the name of the setting that expired. A request that paused, while its server waited
// for an answer, may have exceeded either setting.
func (u *Server) withSetting(failed *mcp.TransportError, took time.Duration) error {
	s := u.entry().Settings
	text := "no response within maxTimeout of " + s.MaxTimeout.String()
	if took < time.Duration(s.MaxTimeout) || s.MaxTimeout == 0 {
		text = "no response, and no progress, within timeout of " + s.Timeout.String()
	}
	named := *failed
	named.Err = hosterr.Public{Err: &timeoutError{text, failed.Err}}
	return &named
}

// checkQuestions returns an error if a result asks invalid questions.
func (p *Pool) checkQuestions(req *mcp.Request, res mcp.Result) error {
	raw, ok := res.(mcp.RawResult)
	if !ok || raw.ResultType() != driver.ResultInputRequired {
		return nil
	}
	if err := round.CheckQuestions(req, raw, p.passesRoots()); err != nil {
		e := p.Errorf(hosterr.CodeInvalidResult, "invalid input_required result: %w", err)
		e.MayHaveRun = true
		return e
	}
	return nil
}
