package recording

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A replay is a Handler that answers as the recorded server did.
type replay struct {
	rec   *Recording
	delay bool

	mu   sync.Mutex     // guards next
	next map[string]int // by key, the call that is replayed next
}

// Handler returns a server that replays the recording to clients of every revision. Equal requests
// get their recorded responses in order, and afterwards the last response again. With delay it
// pauses like the recorded server.
func (r *Recording) Handler(delay bool) mcp.Handler {
	return &replay{rec: r, delay: delay, next: map[string]int{}}
}

// ServeMCP replays a round of a call.
func (p *replay) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	switch req.Method {
	case driver.MethodDiscover:
		return mcp.RawResult(p.rec.discovered), nil
	case driver.MethodSubscriptionsListen:
		return nil, listen(ctx, req)
	}
	c, at, err := p.find(req)
	if err != nil {
		return nil, err
	}
	end := c.rounds[at]
	for _, n := range end.notes {
		if err := p.pause(ctx, n.pause); err != nil {
			return nil, err
		}
		if err := n.send(ctx, req); err != nil {
			return nil, err
		}
	}
	if err := p.pause(ctx, end.pause); err != nil {
		return nil, err
	}
	switch {
	case end.cut > 0:
		return nil, mcp.Errorf(mcp.CodeInternalError,
			"the recording has only the beginning of this answer, of %d bytes", end.cut)
	case end.err != nil:
		return nil, &mcp.Error{Code: end.err.Code, Message: end.err.Message, Data: end.err.Data}
	case isTask(end.result):
		return nil, mcp.Errorf(mcp.CodeInternalError, "the recorded answer is a task, whose changes cannot be replayed")
	case mcp.RawResult(end.result).ResultType() != driver.ResultInputRequired:
		return mcp.RawResult(end.result), nil
	}
	if missing := missingCapability(req, end.result); missing != "" {
		return nil, driver.MissingClientCapability(json.RawMessage(missing))
	}
	state := rawjson.AppendQuote(nil, fmt.Sprintf("%d.%d", slices.Index(p.rec.calls[c.key], c), at))
	return mcp.RawResult(rawjson.Set(end.result, "requestState", state)), nil
}

// find returns the recorded call of a request and its round: the next call with equal params, or,
// for a request with the answers to questions, the call that asked them.
func (p *replay) find(req *mcp.Request) (c *call, round int, err error) {
	key := keyOf(req.Method, req.Params)
	calls := p.rec.calls[key]
	raw, isRetry := req.Param("requestState")
	if !isRetry {
		if len(calls) == 0 {
			return nil, 0, p.rec.unknown(req)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		n := p.next[key]
		p.next[key] = min(n+1, len(calls)-1)
		return calls[n], 0, nil
	}
	state, _ := rawjson.Unquote(raw)
	first, second, _ := strings.Cut(state, ".")
	n, err1 := strconv.Atoi(first)
	round, err2 := strconv.Atoi(second)
	if err1 != nil || err2 != nil || n < 0 || n >= len(calls) || round < 0 || round >= len(calls[n].rounds) {
		return nil, 0, mcp.Errorf(mcp.CodeInvalidParams, "invalid requestState %.40q: not of this server", state)
	}
	answers, _ := req.Param("inputResponses")
	c = calls[n]
	for _, other := range calls { // another call may contain the answers of this client
		if c.rounds[round].answers != canonical(answers) && other.follows(c, round, canonical(answers)) {
			c = other
		}
	}
	if round++; round >= len(c.rounds) {
		return nil, 0, mcp.Errorf(mcp.CodeInternalError, "the recording ends with this question")
	}
	return c, round, nil
}

// follows reports whether two calls asked the same questions and got the same answers up to a
// round.
func (c *call) follows(other *call, round int, answers string) bool {
	return round+1 < len(c.rounds) && c.rounds[round].answers == answers &&
		string(questions(c.rounds[round])) == string(questions(other.rounds[round]))
}

// isTask reports whether a result is a task, of 2025-11-25 or of the extension. The end of a task
// may have been a notification of a subscription, so a client could wait for it without limit.
func isTask(result []byte) bool {
	task, _ := rawjson.Get(result, "task")
	_, hasContent := rawjson.Get(result, "content")
	return mcp.RawResult(result).ResultType() == "task" || rawjson.Kind(task) == '{' && !hasContent
}

func questions(r *round) []byte {
	asked, _ := rawjson.Get(r.result, "inputRequests")
	return asked
}

func (p *replay) pause(ctx context.Context, d time.Duration) error {
	if !p.delay || d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// send sends a notification if the client subscribed to it.
func (n *note) send(ctx context.Context, req *mcp.Request) error {
	params := n.params
	if n.method == driver.NotificationProgress {
		token, ok := req.Meta("progressToken")
		if !ok {
			return nil
		}
		params = rawjson.Set(params, "progressToken", token)
	} else {
		level := rawjson.GetString(params, "level")
		least, asked := driver.LogSeverity(string(req.LogLevel()))
		if severity, ok := driver.LogSeverity(level); !asked || !ok || severity < least {
			return nil
		}
	}
	if req.Notify == nil {
		return nil
	}
	return req.Notify(ctx, n.method, params)
}

// missingCapability returns the capability that a result's questions require and the client lacks.
func missingCapability(req *mcp.Request, result []byte) string {
	has := req.Capabilities()
	asked, _ := rawjson.Get(result, "inputRequests")
	for _, q := range rawjson.Members(asked) {
		raw, _ := rawjson.Get(q, "method")
		switch method, _ := rawjson.Unquote(raw); {
		case method == driver.MethodElicitationCreate && has.Elicitation == nil:
			return `{"elicitation":{}}`
		case method == driver.MethodSamplingCreateMessage && has.Sampling == nil:
			return `{"sampling":{}}`
		case method == driver.MethodRootsList && has.Roots == nil:
			return `{"roots":{}}`
		}
	}
	return ""
}

// listen accepts a subscription. Changes are not replayed: they belong to no request.
func listen(ctx context.Context, req *mcp.Request) error {
	filter, _ := req.Param("notifications")
	if req.Notify == nil || rawjson.Kind(filter) != '{' {
		return mcp.Errorf(mcp.CodeInvalidParams, "invalid params.notifications: must be an object")
	}
	params := append([]byte(`{"notifications":`), filter...)
	params = append(append(params, `,"_meta":{"`+driver.MetaSubscriptionID+`":`...), req.ID.String()...)
	if err := req.Notify(ctx, driver.NotificationSubscriptionsAcknowledged, append(params, "}}"...)); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// unknown returns the error for a request that was not recorded. It names the recorded requests.
func (r *Recording) unknown(req *mcp.Request) error {
	const most = 5 // calls that the error names
	var names, methods []string
	for _, c := range r.order {
		if c.method == req.Method && !slices.Contains(names, c.summary) && len(names) <= most {
			names = append(names, c.summary)
		}
		if !slices.Contains(methods, c.method) && len(methods) <= 2*most {
			methods = append(methods, c.method)
		}
	}
	if len(names) == 0 {
		return mcp.Errorf(mcp.CodeMethodNotFound, "%.100s was not recorded; recorded: %s",
			req.Method, list(methods, 2*most))
	}
	asked := strings.TrimSpace(req.Method + " " + summary(req.Params))
	return mcp.Errorf(mcp.CodeInvalidParams, "%s was not recorded with these params; recorded: %s",
		asked, list(names, most))
}

func list(names []string, most int) string {
	if len(names) == 0 {
		return "nothing"
	}
	if len(names) > most {
		names = append(names[:most:most], "…")
	}
	for i, n := range names {
		if n == "" {
			names[i] = "a request without arguments"
		}
	}
	return strings.Join(names, ", ")
}
