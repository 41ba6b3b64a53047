package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/seal"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
	"github.com/patchbay-mcp/patchbay/visible"
)

// A Prompt asks callers to log in: a request that needs a login returns a question with the page of the
// login, and continues when its caller sends it again.
type Prompt struct {
	Logins *Logins
	Ring   *seal.KeyRing // seals the states of questions
	// Hold counts a request that waits for its user. It returns false if too many wait; otherwise the
	// caller must call release when the wait ends.
	Hold func(principal string) (release func(), ok bool)
	// Command returns the command line with which the local user logs in to a server; it may be nil.
	Command func(server string) string
	// Links reports whether errors may contain pages of logins, for clients that cannot open them.
	Links func() bool
}

// A Requester is the sender of the requests that a [Prompt] serves.
type Requester struct {
	Caller    *policy.Caller
	Principal string // identifies the principal of waiting requests
	// Credential returns the login that the requests of the caller to a server need. It is nil without
	// such a login, or if the caller cannot use the server.
	Credential func(ctx context.Context, server string) (*Credential, error)
}

const (
	// loginKey is the key of the question for a login.
	loginKey = "login"
	// maxLoginRounds limits the logins for a request: the first is for a token, the others for more scopes.
	maxLoginRounds = 3
	// loginPoll is the interval between reads of the tokens while a request waits: another process may
	// log in.
	loginPoll = 2 * time.Second
	// maxKeptAnswers limits the earlier state and answers of a request that needs a login, in bytes: its
	// client must send them again.
	maxKeptAnswers = 32 << 10
)

// A promptState is the content of the requestState of a question for a login.
type promptState struct {
	Server string `json:"s"`
	Login  string `json:"l"` // the digest of the ticket
	Rounds int    `json:"n"`
	// Scopes are the scopes for which the user was asked to log in.
	Scopes []string `json:"c,omitempty"`
	// State and Answers belong to the request that needs the login.
	State   json.RawMessage `json:"u,omitempty"`
	Answers json.RawMessage `json:"a,omitempty"`
	Expires int64           `json:"e"` // in seconds since 1970
}

// A loginError tells a caller why a request needs a login.
type loginError struct {
	text string
	err  error
}

func (e *loginError) Error() string { return e.text }

// Unwrap returns the error of the request.
func (e *loginError) Unwrap() error { return e.err }

// Serve serves a request with a function. If a server requires a login of the caller first, Serve returns
// the question for the login, and the request continues when it is sent again.
func (p *Prompt) Serve(
	ctx context.Context, req *mcp.Request, from *Requester,
	serve func(ctx context.Context, req *mcp.Request) (mcp.Result, error),
) (mcp.Result, *mcp.Request, error) {
	req, st, err := p.resume(ctx, req, from)
	if err != nil {
		return nil, req, err
	}
	res, err := serve(ctx, req)
	if err == nil {
		return res, req, nil
	}
	if unbegun, ok := errors.AsType[*round.NotSentError](err); ok { // an approval was used: it is asked for again
		if res, err = p.ask(ctx, req, from, st, false, unbegun.Err); err != nil {
			err = &round.NotSentError{Err: err}
		}
		return res, req, err
	}
	res, err = p.ask(ctx, req, from, st, true, err)
	return res, req, err
}

// mayElicitURL reports whether the client of a request can open pages for its user.
func mayElicitURL(req *mcp.Request) bool {
	m, ok := wire.Latest().Method(req.Method)
	e := req.Capabilities().Elicitation
	revision, known := wire.ParseRevision(req.Revision())
	return ok && m.MayAskInput && known && revision.Has(wire.ElicitationURL) && e != nil && e.URL != nil
}

// Needed returns the login that a failed request needs, nil if a login would not help.
func (r *Requester) Needed(ctx context.Context, err error) (c *Credential, scopes []string) {
	e, ok := errors.AsType[*hosterr.Error](err)
	needed, required := errors.AsType[*oauthclient.LoginRequiredError](err)
	if !ok || !required || e.Code != hosterr.CodeAuthRequired {
		return nil, nil
	}
	c, failed := r.Credential(ctx, e.Server)
	if failed != nil {
		return nil, nil
	}
	return c, needed.Scopes
}

// ask returns the question for the login that a failed request needs, or the error of the request. The
// question contains the state and the answers of the request, if it continues after the login.
func (p *Prompt) ask(
	ctx context.Context, req *mcp.Request, from *Requester, st *promptState, continued bool, err error,
) (mcp.Result, error) {
	c, scopes := from.Needed(ctx, err)
	if c == nil {
		return nil, err
	}
	e, _ := errors.AsType[*hosterr.Error](err)
	own := c.Principal().Key() == from.Caller.Principal.Key() && c.IsOfCallers()
	if !own || p.Logins.URL() == "" || p.Logins.Refused(c.Principal()) != nil {
		return nil, p.required(e, c, from, "")
	}
	if st == nil {
		st = &promptState{}
	}
	again := len(scopes) > 0 && Includes(st.Scopes, scopes) && !c.IsMissing() // the user has logged in for them
	if st.Rounds >= maxLoginRounds || again {
		out := *e
		const text = "the server still requires a login after the user has logged in"
		out.Err = hosterr.Public{Err: &loginError{text, e.Err}}
		return nil, &out
	}
	if !mayElicitURL(req) && !p.Links() {
		return nil, p.required(e, c, from, "")
	}
	l, failed := p.Logins.Begin(c, scopes)
	if failed != nil {
		return nil, failed
	}
	if !mayElicitURL(req) {
		return nil, p.required(e, c, from, l.URL())
	}
	if st.State, st.Answers = nil, nil; continued {
		st.State, _ = req.Param("requestState")
		st.Answers, _ = req.Param("inputResponses")
	}
	if len(st.State)+len(st.Answers) > maxKeptAnswers {
		return nil, p.required(e, c, from, "")
	}
	st.Server, st.Login, st.Rounds = c.Server(), l.ID(), st.Rounds+1
	st.Scopes = append(st.Scopes, scopes...)
	p.Logins.record(c, "asked", nil)
	return p.question(req, l, from, st), nil
}

// required returns the error of a request that needs a login for which its client cannot be asked.
func (p *Prompt) required(e *hosterr.Error, c *Credential, from *Requester, page string) error {
	out := *e
	text := "a login is required"
	refused := p.Logins.Refused(from.Caller.Principal)
	switch {
	case page != "":
		text += ": the user must open this page, which is for one visit within " + Time.String() + ": " + page
	case from.Caller.Principal == nil && p.Command != nil:
		text += ": run " + p.Command(e.Server)
	case c.IsOfCallers() && refused != nil:
		text += ": " + refused.Error()
	case c.IsOfCallers():
		text += ": use a client that supports URL elicitation, or ask the operator for another way"
	default:
		text += " of the operator"
	}
	out.Err = hosterr.Public{Err: &loginError{text, e.Err}}
	return &out
}

// question returns the result that asks the client to open the page of a login.
func (p *Prompt) question(req *mcp.Request, l *Login, from *Requester, st *promptState) mcp.Result {
	st.Expires = time.Now().Add(round.TTL).Unix()
	plain, _ := json.Marshal(st) // of plain values: no error is possible
	sealed := p.Ring.SealText(plain, bound(req, from.Caller)...)
	message := fmt.Sprintf("[%s] The server requires a login. Log in to it on this page to continue.",
		visible.Escape(l.Server(), nil))
	b := append(jsonscan.AppendQuote([]byte(`{"resultType":"input_required","inputRequests":{"`+loginKey+
		`":{"method":"`+wire.MethodElicitationCreate+`","params":{"mode":"url","message":`), message), `,"url":`...)
	b = append(jsonscan.AppendQuote(b, l.URL()), `}}},"requestState":`...)
	return mcp.RawResult(append(jsonscan.AppendQuote(b, sealed), '}'))
}

func bound(req *mcp.Request, c *policy.Caller) []string {
	return append([]string{loginKey}, round.Bound(c, req)...)
}

// resume returns the request that needed a login, after the login. It returns a request without the state
// of such a question unchanged.
func (p *Prompt) resume(
	ctx context.Context, req *mcp.Request, from *Requester,
) (*mcp.Request, *promptState, error) {
	text, ok, err := round.StateOf(req)
	if !ok || err != nil {
		return req, nil, nil //nolint:nilerr // the error is that of who opens the state
	}
	plain, _, err := p.Ring.OpenText(text, bound(req, from.Caller)...)
	var st promptState
	if err != nil || json.Unmarshal(plain, &st) != nil {
		return req, nil, nil //nolint:nilerr // it is the state of another question
	}
	if time.Now().Unix() > st.Expires {
		return req, nil, round.ErrInvalid
	}
	responses, _ := req.Param("inputResponses")
	answer, answered := jsonscan.Get(responses, loginKey)
	inner := *req
	inner.Params = jsonscan.Without(req.Params, "requestState", "inputResponses")
	if st.State != nil {
		inner.Params = jsonscan.WithMember(inner.Params, "requestState", st.State)
	}
	if st.Answers != nil {
		inner.Params = jsonscan.WithMember(inner.Params, "inputResponses", st.Answers)
	}
	if !answered {
		return &inner, &st, nil // it is asked again
	}
	c, err := from.Credential(ctx, st.Server)
	if c == nil && err == nil { // the server was removed, or needs no login any more
		return &inner, &st, nil
	}
	if jsonscan.GetString(answer, "action") != "accept" {
		return &inner, &st, hosterr.Errorf(hosterr.CodeAuthRequired, st.Server,
			"a login is required, and the user has not agreed to it")
	}
	if err != nil {
		return &inner, &st, err
	}
	return &inner, &st, p.await(ctx, &inner, from, c, &st)
}

// await waits until the caller logged in.
func (p *Prompt) await(
	ctx context.Context, req *mcp.Request, from *Requester, c *Credential, st *promptState,
) error {
	l := p.Logins.ByID(c.Principal().Key(), st.Login)
	if l == nil { // it has succeeded or expired, or was of another process
		return nil
	}
	release, ok := p.Hold(from.Principal)
	if !ok {
		return hosterr.Errorf(hosterr.CodeLimited, st.Server, "too many requests wait for their users")
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
				return hosterr.Errorf(hosterr.CodeAuthRequired, st.Server, "the login has failed: %s",
					operator.LoginFailure(err))
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
			return hosterr.Errorf(hosterr.CodeAuthRequired, st.Server, "the login was not completed within %v", Time)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.Logins.opts.Context.Done():
			return mcp.ErrClosed
		}
	}
}
