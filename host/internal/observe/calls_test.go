package observe_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/observe"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A recorder stores the kinds of records, and refuses the records of a kind.
type recorder struct {
	kinds   []event.Kind
	calls   []string
	refuses event.Kind
}

func (r *recorder) Record(record *event.Record) error {
	if record.Event == r.refuses {
		return errors.New("no space left")
	}
	r.kinds, r.calls = append(r.kinds, record.Event), append(r.calls, record.Call)
	return nil
}

// serve passes a call through the stages of records and a stage between them, which describes the call as
// the policy does and may refuse it.
func serve(t *testing.T, r *recorder, refusal error, res mcp.Result, failed error) (sent bool, lost uint64, err error) {
	t.Helper()
	o := &observe.Calls{Recorder: r, IDs: observe.NewIDs()}
	between := func(next call.Next) call.Next {
		return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
			c.Action = &policy.Action{Kind: policy.ActionCall}
			o.Describe(c)
			if refusal != nil {
				return nil, refusal
			}
			return next(ctx, c)
		}
	}
	last := func(context.Context, *call.Call) (mcp.Result, error) {
		sent = true
		return res, failed
	}
	_, err = call.Chain(last, o.Call, between, o.Intent)(t.Context(), &call.Call{
		Request: &mcp.Request{Method: "tools/call", Params: []byte(`{"name":"pay"}`)}})
	return sent, o.Lost.Load(), err
}

// Each call has an intent before it is sent, and exactly one end, question or refusal, with one ID.
func TestEachCallIsRecordedFromIntentToEnd(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		refusal error
		res     mcp.Result
		failed  error
		want    []event.Kind
	}{
		"result":   {nil, mcp.RawResult(`{"resultType":"complete"}`), nil, []event.Kind{event.Intent, event.End}},
		"error":    {nil, nil, broken, []event.Kind{event.Intent, event.End}},
		"question": {nil, mcp.RawResult(`{"resultType":"input_required"}`), nil, []event.Kind{event.Intent, event.Question}},
		"refusal":  {broken, nil, nil, []event.Kind{event.Refused}},
	} {
		r := &recorder{}
		sent, lost, _ := serve(t, r, test.refusal, test.res, test.failed)
		if !slices.Equal(r.kinds, test.want) || sent == (test.refusal != nil) || lost != 0 {
			t.Errorf("%s: got %v, sent %t, %d lost; want %v", name, r.kinds, sent, lost, test.want)
		}
		if ids := slices.Compact(r.calls); len(ids) != 1 || ids[0] == "" {
			t.Errorf("%s: got the IDs %q, want one", name, ids)
		}
	}
}

// A call whose intent cannot be stored must not be sent. A lost end does not fail the call.
func TestCallsWithoutAStoredIntentAreNotSent(t *testing.T) {
	sent, lost, err := serve(t, &recorder{refuses: event.Intent}, nil, mcp.RawResult(`{}`), nil)
	if e, ok := errors.AsType[*hosterr.Error](err); !ok || e.Code != hosterr.CodeUnrecorded || sent || lost != 1 {
		t.Errorf("intent: got %v, sent %t, %d lost, want %s", err, sent, lost, hosterr.CodeUnrecorded)
	}
	sent, lost, err = serve(t, &recorder{refuses: event.End}, nil, mcp.RawResult(`{}`), nil)
	if err != nil || !sent || lost != 1 {
		t.Errorf("end: got %v, sent %t, %d lost, want a result and 1 lost", err, sent, lost)
	}
}
