package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
	"github.com/patchbay-mcp/patchbay/visible"
)

const (
	// loginKey is the key of the question for a login.
	loginKey = "login"
	// maxLoginRounds bounds the logins for one request: for a token, and for more scopes.
	maxLoginRounds = 3
	// loginPoll is how often the tokens are read while a request waits: another process may have logged
	// in.
	loginPoll = 2 * time.Second
	// maxKeptAnswers bounds what a request that needs a login has answered before, in bytes: its
	// client carries it.
	maxKeptAnswers = 32 << 10
)

// A loginState is the content of the requestState of a question for a login.
type loginState struct {
	Server string `json:"s"`
	Login  string `json:"l"` // the digest of the ticket
	Rounds int    `json:"n"`
	// Scopes are those that were asked for.
	Scopes []string `json:"c,omitempty"`
	// State and Answers are those of the request that needs the login.
	State   json.RawMessage `json:"u,omitempty"`
	Answers json.RawMessage `json:"a,omitempty"`
	Expires int64           `json:"e"` // in seconds since 1970
}

// A loginError is why a request needs a login.
type loginError struct {
	text string
	err  error
}

func (e *loginError) Error() string { return e.text }

// Unwrap returns the error of the request.
func (e *loginError) Unwrap() error { return e.err }

// asksLogin reports whether a request may need a login of its caller.
func (v *View) asksLogin() bool { return v.table.Servers().Logins }

// loginRounds asks the caller of a view to log in, and continues its requests afterwards.
type loginRounds struct{ *View }

// serveWithLogin serves a request. If a server requires a login of the caller first, it returns the
// question for it, and the request goes on when it is sent again.
func (v loginRounds) serveWithLogin(ctx context.Context, req *mcp.Request) (mcp.Result, *mcp.Request, error) {
	req, st, err := v.resumeLogin(ctx, req)
	if err != nil {
		return nil, req, err
	}
	res, err := v.serveMethod(ctx, req)
	if err == nil {
		return res, req, nil
	}
	if unbegun, ok := errors.AsType[*round.NotSentError](err); ok { // an approval was used: it is asked for again
		if res, err = v.askLogin(ctx, req, st, false, unbegun.Err); err != nil {
			err = &round.NotSentError{Err: err}
		}
		return res, req, err
	}
	res, err = v.askLogin(ctx, req, st, true, err)
	return res, req, err
}

// mayElicitURL reports whether the client of a request can open pages for its user.
func mayElicitURL(req *mcp.Request) bool {
	m, ok := wire.Latest().Method(req.Method)
	e := req.Capabilities().Elicitation
	revision, known := wire.ParseRevision(req.Revision())
	return ok && m.MayAskInput && known && revision.Has(wire.ElicitationURL) && e != nil && e.URL != nil
}

// neededLogin returns the login that a failed request needs, nil if a login would not help.
func (v loginRounds) neededLogin(ctx context.Context, err error) (c *login.Credential, scopes []string) {
	e, ok := errors.AsType[*hosterr.Error](err)
	needed, required := errors.AsType[*oauthclient.LoginRequiredError](err)
	if !ok || !required || e.Code != hosterr.CodeAuthRequired {
		return nil, nil
	}
	p := v.poolNamed(e.Server)
	if p == nil {
		return nil, nil
	}
	c, failed := p.Logins().Of(ctx, p.Caller())
	if failed != nil {
		return nil, nil
	}
	return c, needed.Scopes
}

// askLogin returns the question for the login that a failed request needs, else the error of the
// request. If it continues what it has begun, its state and its answers are kept.
func (v loginRounds) askLogin(
	ctx context.Context, req *mcp.Request, st *loginState, continued bool, err error,
) (mcp.Result, error) {
	c, scopes := v.neededLogin(ctx, err)
	if c == nil {
		return nil, err
	}
	e, _ := errors.AsType[*hosterr.Error](err)
	own := c.Principal().Key() == v.caller.Principal.Key() && c.IsOfCallers()
	if !own || v.host.logins.URL() == "" || v.host.logins.Refused(c.Principal()) != nil {
		return nil, v.loginRequired(e, "")
	}
	if st == nil {
		st = &loginState{}
	}
	again := len(scopes) > 0 && login.Includes(st.Scopes, scopes) && !c.IsMissing() // the user has logged in for them
	if st.Rounds >= maxLoginRounds || again {
		out := *e
		const text = "the server still requires a login after the user has logged in"
		out.Err = hosterr.Public{Err: &loginError{text, e.Err}}
		return nil, &out
	}
	if !mayElicitURL(req) && !v.host.servers.Current().Settings().Connect.Links {
		return nil, v.loginRequired(e, "")
	}
	l, failed := v.host.logins.Begin(c, scopes)
	if failed != nil {
		return nil, failed
	}
	if !mayElicitURL(req) {
		return nil, v.loginRequired(e, l.URL())
	}
	if st.State, st.Answers = nil, nil; continued {
		st.State, _ = req.Param("requestState")
		st.Answers, _ = req.Param("inputResponses")
	}
	if len(st.State)+len(st.Answers) > maxKeptAnswers {
		return nil, v.loginRequired(e, "")
	}
	st.Server, st.Login, st.Rounds = c.Server(), l.ID(), st.Rounds+1
	st.Scopes = append(st.Scopes, scopes...)
	v.host.recordLogin(c.Server(), c.Principal(), "asked", nil)
	return v.loginQuestion(req, l, st), nil
}

// loginRequired returns the error of a request that needs a login which its client cannot be asked for.
func (v loginRounds) loginRequired(e *hosterr.Error, page string) error {
	out := *e
	text := "a login is required"
	u := v.host.servers.Current().Named(e.Server)
	refused := v.host.logins.Refused(v.caller.Principal)
	switch command := v.host.opts.LoginCommand; {
	case page != "":
		text += ": the user must open this page, which is for one visit within " + login.Time.String() + ": " + page
	case v.caller.Principal == nil && command != nil && u != nil:
		text += ": run " + command(e.Server)
	case u != nil && u.Entry().UsesLoginOfCaller() && refused != nil:
		text += ": " + refused.Error()
	case u != nil && u.Entry().UsesLoginOfCaller():
		text += ": use a client that supports URL elicitation, or ask the operator for another way"
	default:
		text += " of the operator"
	}
	out.Err = hosterr.Public{Err: &loginError{text, e.Err}}
	return &out
}

// loginQuestion returns the result that asks the client to open the page of a login.
func (v loginRounds) loginQuestion(req *mcp.Request, l *login.Login, st *loginState) mcp.Result {
	st.Expires = time.Now().Add(round.TTL).Unix()
	sealed := v.host.states.Ring.SealText(mustJSON(st), v.loginBound(req)...)
	message := fmt.Sprintf("[%s] The server requires a login. Log in to it on this page to continue.",
		visible.Escape(l.Server(), nil))
	b := append(jsonscan.AppendQuote([]byte(`{"resultType":"input_required","inputRequests":{"`+loginKey+
		`":{"method":"`+wire.MethodElicitationCreate+`","params":{"mode":"url","message":`), message), `,"url":`...)
	b = append(jsonscan.AppendQuote(b, l.URL()), `}}},"requestState":`...)
	return mcp.RawResult(append(jsonscan.AppendQuote(b, sealed), '}'))
}

func (v loginRounds) loginBound(req *mcp.Request) []string {
	return append([]string{loginKey}, round.Bound(v.caller, req)...)
}

// resumeLogin returns the request that needed a login, after it. A request without the state of such a
// question is returned as it is.
func (v loginRounds) resumeLogin(ctx context.Context, req *mcp.Request) (*mcp.Request, *loginState, error) {
	text, ok, err := round.StateOf(req)
	if !ok || err != nil {
		return req, nil, nil //nolint:nilerr // the error is that of who opens the state
	}
	plain, _, err := v.host.states.Ring.OpenText(text, v.loginBound(req)...)
	var st loginState
	if err != nil || json.Unmarshal(plain, &st) != nil {
		return req, nil, nil //nolint:nilerr // it is the state of another question
	}
	if time.Now().Unix() > st.Expires {
		return req, nil, round.ErrInvalid
	}
	responses, _ := req.Param("inputResponses")
	answer, answered := jsonscan.Get(responses, loginKey)
	inner := *req
	inner.Params = jsonscan.Without(jsonscan.Without(req.Params, "requestState"), "inputResponses")
	if st.State != nil {
		inner.Params = jsonscan.WithMember(inner.Params, "requestState", st.State)
	}
	if st.Answers != nil {
		inner.Params = jsonscan.WithMember(inner.Params, "inputResponses", st.Answers)
	}
	if !answered {
		return &inner, &st, nil // it is asked again
	}
	p := v.poolNamed(st.Server)
	if p == nil {
		return &inner, &st, nil
	}
	if jsonscan.GetString(answer, "action") != "accept" {
		return &inner, &st, p.Errorf(hosterr.CodeAuthRequired, "a login is required, and the user has not agreed to it")
	}
	return &inner, &st, v.awaitLogin(ctx, &inner, p, &st)
}

// awaitLogin waits until the caller has logged in.
func (v loginRounds) awaitLogin(ctx context.Context, req *mcp.Request, p *upstream.Pool, st *loginState) error {
	c, err := p.Logins().Of(ctx, p.Caller())
	if err != nil || c == nil {
		return err
	}
	l := v.host.logins.ByID(c.Principal().Key(), st.Login)
	if l == nil { // it has succeeded or expired, or was of another process
		return nil
	}
	release, ok := v.host.approve.Hold(v.principal)
	if !ok {
		return p.Errorf(hosterr.CodeLimited, "too many requests wait for their users")
	}
	defer release()
	expiry := time.NewTimer(time.Until(l.Expires()))
	defer expiry.Stop()
	poll, progress := time.NewTicker(loginPoll), time.NewTicker(round.ProgressInterval)
	defer poll.Stop()
	defer progress.Stop()
	changed := c.Waiting()
	for n := 1; ; {
		select {
		case <-l.Done():
			if err := l.Outcome(); err != nil {
				return p.Errorf(hosterr.CodeAuthRequired, "the login has failed: %s", operator.LoginFailure(err))
			}
			return nil
		case <-changed:
			return nil
		case <-poll.C:
			// Another request may have found the tokens already, so that changed is for a later login.
			if c.Includes(ctx, l.Scopes()) {
				return c.Ready(ctx)
			}
		case <-progress.C:
			round.NotifyProgress(ctx, req, n, "waiting for the login")
			n++
		case <-expiry.C:
			return p.Errorf(hosterr.CodeAuthRequired, "the login was not completed within %v", login.Time)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-v.host.ctx.Done():
			return mcp.ErrClosed
		}
	}
}
