package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

const (
	// maxCalls limits the recorded calls of a test, as the admin API does.
	maxCalls = 1000
	// maxArguments limits the arguments of all recorded calls of a test, in bytes: the body of a
	// request to the admin API must not exceed 4 MiB.
	maxArguments = 3 << 20
)

// A comparison is the test of an edited policy on recorded traffic.
type comparison struct {
	Text string // of the policy

	Done    bool
	Err     string // why there is no result
	Calls   int
	Left    int // calls without their arguments, or beyond the limits
	Changed []changedCall
}

// summary returns the result in words.
func (c *comparison) summary() string {
	return fmt.Sprintf("%s, %d would change", count(c.Calls, "call"), len(c.Changed))
}

// A changedCall is a recorded call that the edited policy decides differently.
type changedCall struct {
	Time                       time.Time
	Caller, Server, Tool, Link string
	Now, Then                  verdict
}

// compare tests the policy of a form on recorded traffic. The decisions must not take effect.
func (s *screen) compare(r *page.Request) (*page.Outcome, error) {
	c := comparison{Text: r.PostFormValue("policy")}
	if err := s.evaluate(r, &c); err != nil {
		c.Err = page.ErrorText(err)
	}
	location, err := page.Link("/policy", "compare", s.comparisons.Add(c))
	return &page.Outcome{Location: location + "#recorded"}, err
}

func (s *screen) evaluate(r *page.Request, c *comparison) error {
	policy, err := plain("policy", c.Text)
	if err == nil && policy == nil {
		err = errors.New("missing policy: enter an object with default and rules, {} for no rules")
	}
	if err != nil {
		return err
	}
	body := struct {
		Policy  json.RawMessage `json:"policy"`
		Actions []action        `json:"actions"`
	}{Policy: policy}
	calls, left, err := recorded(s.ring, servers.Opened(r))
	if err != nil {
		return err
	}
	c.Left = left
	for i := range calls {
		body.Actions = append(body.Actions, calls[i].action)
	}
	if c.Calls, c.Done = len(calls), true; len(calls) == 0 {
		return nil
	}
	var res struct {
		Changed []struct {
			Index int     `json:"index"`
			Now   verdict `json:"now"`
			Then  verdict `json:"then"`
		} `json:"changed"`
	}
	if err := r.Post("/policy:compare", &body, &res); err != nil {
		c.Done = false
		return err
	}
	for _, x := range res.Changed {
		if x.Index < 0 || x.Index >= len(calls) {
			continue
		}
		call := &calls[x.Index]
		link, err := page.Link("/traffic", "id", strconv.FormatUint(call.id, 10))
		if err != nil {
			return err
		}
		c.Changed = append(c.Changed,
			changedCall{call.time, call.Subject, call.Server, call.Target, link, x.Now, x.Then})
	}
	return nil
}

// A recordedCall is a call of a tool in the ring.
type recordedCall struct {
	action
	id   uint64
	time time.Time
}

// recorded returns the calls of callers to servers that a person may use, if the ring holds their arguments,
// the newest first, and how many calls are left out.
func recorded(ring *capture.Ring, opened func(server string) bool) (calls []recordedCall, left int, err error) {
	query, err := capture.ParseQuery("hop:downstream method:tools/call")
	if err != nil {
		return nil, 0, err
	}
	query.Only(func(x *capture.Exchange) bool { return opened(x.Server) })
	size := 0
	for _, x := range ring.Find(query, 0, capture.MaxExported) {
		arguments, ok := argumentsOf(ring, x.ID)
		if size += len(arguments); !ok || len(calls) == maxCalls || size > maxArguments {
			left++
			continue
		}
		name := cmp.Or(x.Name, x.Target)
		calls = append(calls, recordedCall{action{"call", x.Server, name, arguments, x.Caller, nil}, x.ID, x.Queued})
	}
	return calls, left, nil
}

// argumentsOf returns the arguments of a call, nil without arguments. It reports false if the ring
// does not hold the request, or only its beginning.
func argumentsOf(ring *capture.Ring, id uint64) (arguments json.RawMessage, ok bool) {
	_, frames, held := ring.Get(id)
	if !held {
		return nil, false
	}
	for i := range frames {
		f := &frames[i]
		if f.Kind != capture.Message || !f.Sent {
			continue
		}
		params, found := rawjson.Get([]byte(f.Text), "params")
		if f.IsCut() || rawjson.Valid([]byte(f.Text)) != nil || !found || rawjson.Kind(params) != '{' {
			return nil, false
		}
		arguments, _ = rawjson.Get(params, "arguments")
		return arguments, true
	}
	return nil, false
}
