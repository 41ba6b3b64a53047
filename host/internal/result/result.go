// Package result contains the steps that treat the result of a call: questions to the caller, names and URIs,
// the output schema, and the size.
//
// Each step must ignore the results that it does not treat. The package keeps large results for their callers.
// It knows no connections and no policy.
package result

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Options configures [Steps].
type Options struct {
	Rounds *round.Sealer  // seals the states of questions
	Limits *limits.Limits // charges the bytes of results
	// Settings returns the limits of callers that are in force.
	Settings func() *config.CallerLimits
	// Mark adds the decision about a call to the state of a question, for the next round.
	Mark   func(c *call.Call, st *round.State)
	Logger *slog.Logger
}

// Steps contains the steps, and holds the results that are too large for their callers. It is safe for
// concurrent use. Its owner must close it.
type Steps struct {
	opts Options
	kept keptResults
}

// New returns the steps of a host.
func New(o Options) *Steps { return &Steps{opts: o} }

// A View is the caller's side of a call, which the [call.Call.View] of each call must implement.
type View interface {
	call.View
	// IsSingle reports whether names and URIs are unchanged, because the caller uses one server.
	IsSingle() bool
	// Publish gives the items of a result the names and URIs of the caller.
	Publish(p call.Pool, method string, raw mcp.RawResult) mcp.RawResult
}

// A Pool contains the limits and the schemas of a server. The [call.Call.Pool] of each call must implement it.
type Pool interface {
	Limits() *limits.Server
	Schema(item *catalogue.Item) *catalogue.Schema
}

// Bytes charges the size of the server's response to the budget of the caller.
func (s *Steps) Bytes(_ context.Context, c *call.Call, res mcp.Result, failed error) (mcp.Result, error) {
	s.opts.Limits.Charge(c.View.Principal(), int(sizeOf(res, failed)))
	return res, failed
}

// sizeOf returns the size of the response of a server.
func sizeOf(res mcp.Result, err error) config.Size {
	if fault, ok := errors.AsType[*mcp.Error](err); ok && fault.Remote() {
		return config.Size(len(fault.Message) + len(fault.Data))
	}
	raw, _ := res.(mcp.RawResult)
	return config.Size(len(raw))
}

// Questions seals the state of a result that asks the caller, and rewrites its questions for the caller.
func (s *Steps) Questions(_ context.Context, c *call.Call, res mcp.Result, failed error) (mcp.Result, error) {
	raw, ok := res.(mcp.RawResult)
	if failed != nil || !ok || !c.IsRaw() || raw.ResultType() != driver.ResultInputRequired {
		return res, failed
	}
	raw = WithoutOwnMeta(raw)
	server := c.Pool.Name()
	st := round.State{Server: server, Call: c.ID(), Class: c.Served.Class, Roots: c.Served.Roots}
	if inner, ok := jsonscan.Get(raw, "requestState"); ok {
		text, err := jsonscan.Unquote(inner)
		if err != nil {
			return nil, hosterr.Errorf(hosterr.CodeInvalidResult, server, "invalid requestState: must be a string")
		}
		st.State = &text
	}
	if c.Served.Session || c.Served.Single {
		st.Instance, st.Target = c.Served.ID, c.Target
	}
	s.opts.Mark(c, &st)
	sealed, err := s.opts.Rounds.Seal(c.View.Caller(), c.Request, st)
	if err != nil {
		return nil, &hosterr.Error{Code: hosterr.CodeTooLarge, Server: server, MayHaveRun: true, Err: err}
	}
	if c.View.(View).IsSingle() {
		server = ""
	}
	out := jsonscan.WithMember(raw, "requestState", jsonscan.AppendQuote(nil, sealed))
	return mcp.RawResult(PublicQuestions(out, server)), nil
}

// Map gives the items of a result the names and URIs of the caller.
func (s *Steps) Map(_ context.Context, c *call.Call, res mcp.Result, failed error) (mcp.Result, error) {
	sent, ok := responseOf(c, res, failed)
	if !ok {
		return res, failed
	}
	raw := c.View.(View).Publish(c.Pool, c.Request.Method, sent)
	if len(raw) > 0 && len(raw) == len(sent) && &raw[0] == &sent[0] { // unchanged: res needs no new interface value
		return res, nil
	}
	return raw, nil
}

// responseOf returns the response of a server that is not a question. ok is false for all other results.
func responseOf(c *call.Call, res mcp.Result, failed error) (raw mcp.RawResult, ok bool) {
	raw, ok = res.(mcp.RawResult)
	return raw, ok && failed == nil && c.IsRaw() && raw.ResultType() != driver.ResultInputRequired
}

// Validate logs a result that does not match the output schema of its tool. Spec: server/tools, Output Schema.
func (s *Steps) Validate(ctx context.Context, c *call.Call, res mcp.Result, failed error) (mcp.Result, error) {
	raw, ok := responseOf(c, res, failed)
	if !ok || c.Item == nil || c.Item.Kind != catalogue.Tools ||
		c.Pool.Entry().Settings.Validate == config.ValidateOff {
		return res, failed
	}
	output := c.Pool.(Pool).Schema(c.Item).Output
	if output == nil {
		return res, nil
	}
	if isError, _ := jsonscan.Get(raw, "isError"); string(isError) == "true" {
		return res, nil
	}
	content, ok := jsonscan.Get(raw, "structuredContent")
	err := errors.New("missing structuredContent")
	if ok {
		err = output.Validate(content)
	}
	if err != nil {
		s.opts.Logger.WarnContext(ctx, "host: result does not match the output schema of the tool",
			"server", c.Pool.Name(), "tool", c.Target, "error", err)
	}
	return res, nil
}

// Limit refuses a result that is larger than allowed, or keeps it and returns a link to it. It must run after
// the policy, so that a kept result contains only what the policy leaves.
func (s *Steps) Limit(_ context.Context, c *call.Call, res mcp.Result, failed error) (mcp.Result, error) {
	l, size := s.opts.Settings(), sizeOf(res, failed)
	if l.ResultBytes == 0 || size <= l.ResultBytes || c.Own {
		return res, failed
	}
	raw, ok := res.(mcp.RawResult)
	if l.Result != config.ResultSpill || failed != nil || !ok || c.Request.Method != wire.MethodToolsCall ||
		raw.ResultType() != driver.ResultComplete {
		return nil, tooLarge(c, size, l, "")
	}
	r := &keptResult{token: rand.Text(), principal: c.View.Principal(), server: c.Pool.Name(),
		page: max(min(pageSize, int(l.ResultBytes/2)), utf8.UTFMax), expires: time.Now().Add(keptTime)}
	r.text, r.mimeType = keptText(raw)
	if !s.kept.add(r) {
		return nil, tooLarge(c, size, l, fmt.Sprintf(", and than the %v that are kept of one caller",
			config.Size(maxKeptPerPrincipal)))
	}
	c.Pool.(Pool).Limits().Count("limits.resultBytes")
	return r.callResult(raw, l, c.Item), nil
}

// tooLarge returns the error of a result that is larger than allowed.
func tooLarge(c *call.Call, size config.Size, l *config.CallerLimits, reason string) error {
	e := c.Pool.(Pool).Limits().Refuse(hosterr.CodeTooLarge, "limits.resultBytes", 0,
		"the result has %d bytes, more than limits.resultBytes of %v%s", size, l.ResultBytes, reason)
	e.MayHaveRun = true
	return e
}

// Page returns the page with a URI. Only the principal of the result may read it.
func (s *Steps) Page(principal, uri string) (Page, bool) {
	token, number, _ := strings.Cut(strings.TrimPrefix(uri, Prefix), "/")
	n, err := strconv.Atoi(cmp.Or(number, "1"))
	r := s.kept.get(principal, token)
	if r == nil || err != nil || n < 1 || n > r.pages() {
		return Page{}, false
	}
	return Page{r.server, r, n}, true
}

// Contents returns the result of resources/read for the page.
func (p *Page) Contents() mcp.Result { return p.result.contents(p.number) }

// Kept returns the number of the results that the steps keep, and their bytes.
func (s *Steps) Kept() (results, size int) { return s.kept.size() }

// Close removes all kept results.
func (s *Steps) Close() { s.kept.close() }
