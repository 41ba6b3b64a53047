package host_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A call that has asked a question may have run, also if the answer cannot be sent: the caller must not
// begin it again without knowing that.
func TestFailureAfterAQuestionSaysThatTheCallMayHaveRun(t *testing.T) {
	for _, era := range []string{"modern", "session"} {
		for _, down := range oneProcess(mcptest.Combinations()) {
			if !down.Since("2025-06-18") {
				continue // elicitation
			}
			t.Run(era+" to "+down.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { failAfterAQuestion(t, era, down) })
			})
		}
	}
}

func failAfterAQuestion(t *testing.T, era string, down mcptest.Combination) {
	p := &fakeProcess{}
	s := simpleServer("s")
	mcp.AddTool(s, &mcp.Tool{Name: "ask_word"}, func(ctx context.Context, _ struct{}) (string, error) {
		return mcp.Ask[string](ctx, "word", "Which word?", nil)
	})
	p.handler = s
	h := openFakes(t, map[string]*fakeProcess{"s": p}, `{"servers": {"s": {"era": "`+era+`"}}}`)
	c := mcptest.Dial(t, h.For(&policy.Caller{}), down, &mcp.ClientOptions{
		Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			p.setFail(errBroken)
			p.exit()
			synctest.Wait()
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":"x"}`)}, nil
		}})
	if f, text := failureOf(t, c, "s__ask_word"); f == nil || !f.MayHaveRun {
		t.Errorf("got %+v, %q, want an error that says that the call may have run", f, text)
	}
	if f, text := failureOf(t, c, "s__name"); f == nil || f.MayHaveRun {
		t.Errorf("the next call: got %+v, %q, want an error that says that it did not run", f, text)
	}
}
