package result_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/result"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A view is the local user, whose names begin with the name of the server.
type view struct{ call.View }

func (view) Caller() *policy.Caller { return &policy.Caller{} }
func (view) Principal() string      { return "ann" }
func (view) IsSingle() bool         { return false }
func (view) Publish(p call.Pool, _ string, raw mcp.RawResult) mcp.RawResult {
	return mcp.RawResult(strings.ReplaceAll(string(raw), `"text:`, `"`+p.Name()+`:`))
}

// A pool is the server shop.
type pool struct {
	catalogue.Store
	limits *limits.Server
}

func (*pool) Name() string             { return "shop" }
func (*pool) Entry() *server.Server    { return &server.Server{Settings: &config.ServerSettings{}} }
func (p *pool) Limits() *limits.Server { return p.limits }

// steps returns the steps of a host with limits, a call of a tool that the server shop has served, and the log.
func steps(t *testing.T, settings *config.CallerLimits) (*result.Steps, *call.Call, *strings.Builder) {
	t.Helper()
	rounds, err := round.NewSealer(nil)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	current := func() *config.CallerLimits { return settings }
	l := limits.New(limits.Options{State: &state.Memory{}, Logger: logger, Settings: current})
	t.Cleanup(l.Close)
	s := result.New(result.Options{Rounds: rounds, Limits: l, Settings: current, Logger: logger,
		Mark: func(*call.Call, *round.State) {}})
	t.Cleanup(s.Close)
	c := &call.Call{View: view{}, Pool: &pool{limits: l.NewServer("shop", &config.ServerSettings{})}, Target: "buy",
		Kind: policy.ActionCall, Served: call.Served{ID: "1", Session: true},
		Request: &mcp.Request{Method: "tools/call", Params: []byte(`{"name":"shop__buy"}`)}}
	return s, c, &log
}

// The steps run in the order of the pipeline, on the result of a fake next stage.
func run(t *testing.T, s *result.Steps, c *call.Call, text string) (string, error) {
	t.Helper()
	var res mcp.Result = mcp.RawResult(text)
	var err error
	for _, step := range []call.Step{s.Bytes, s.Questions, s.Map, s.Validate, s.Limit} {
		res, err = step(t.Context(), c, res, err)
	}
	raw, _ := res.(mcp.RawResult)
	return string(raw), err
}

func TestItemsGetTheNamesOfTheCaller(t *testing.T) {
	s, c, _ := steps(t, &config.CallerLimits{})
	got, err := run(t, s, c, `{"resultType":"complete","content":[{"uri":"text:a"}]}`)
	if want := `{"resultType":"complete","content":[{"uri":"shop:a"}]}`; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	c.Published = true // by package task
	if got, _ = run(t, s, c, `{"resultType":"complete","uri":"text:a"}`); !strings.Contains(got, "text:a") {
		t.Errorf("a result in the form of the caller was changed to %s", got)
	}
}

func TestQuestionsNameTheServerAndCarryASealedState(t *testing.T) {
	s, c, _ := steps(t, &config.CallerLimits{})
	got, err := run(t, s, c, `{"resultType":"input_required","requestState":"mine","inputRequests":{"q":{`+
		`"method":"elicitation/create","params":{"message":"Sure?","_meta":{"dev.patchbay/error":1}}}}}`)
	if err != nil || !strings.Contains(got, "[shop] Sure?") || strings.Contains(got, "dev.patchbay") {
		t.Errorf("got %s, %v", got, err)
	}
	if state := jsonscan.GetString([]byte(got), "requestState"); state == "" || strings.Contains(state, "mine") {
		t.Errorf("the client receives the state %q", state)
	}
	_, err = run(t, s, c, `{"resultType":"input_required","requestState":1}`)
	if e, ok := errors.AsType[*hosterr.Error](err); !ok || e.Code != hosterr.CodeInvalidResult {
		t.Errorf("a state that is no string: %v", err)
	}
}

func TestResultsThatViolateTheOutputSchemaAreLogged(t *testing.T) {
	s, c, log := steps(t, &config.CallerLimits{})
	c.Item = &catalogue.Item{Kind: catalogue.Tools, Raw: []byte(`{"outputSchema":{"type":"object","required":["n"]}}`)}
	for text, bad := range map[string]bool{`{"structuredContent":{"n":1}}`: false, `{"structuredContent":{}}`: true,
		`{"content":[]}`: true, `{"isError":true}`: false} {
		log.Reset()
		if _, err := run(t, s, c, text); err != nil || strings.Contains(log.String(), "output schema") != bad {
			t.Errorf("%s: %v, and the log is %q", text, err, log)
		}
	}
}

func TestLargeResultsAreRefusedOrKept(t *testing.T) {
	settings := &config.CallerLimits{ResultBytes: 100}
	s, c, _ := steps(t, settings)
	large := `{"resultType":"complete","content":[{"type":"text","text":"` + strings.Repeat("x", 120) + `"}]}`
	_, err := run(t, s, c, large)
	if e, ok := errors.AsType[*hosterr.Error](err); !ok || e.Code != hosterr.CodeTooLarge || !e.MayHaveRun {
		t.Errorf("got %v, want an error with the code %s", err, hosterr.CodeTooLarge)
	}
	settings.Result = config.ResultSpill
	got, err := run(t, s, c, large)
	if err != nil || !strings.Contains(got, result.Prefix) {
		t.Fatalf("got %s, %v, want a link to the first page", got, err)
	}
	meta, _ := jsonscan.Get([]byte(got), "_meta")
	page, _ := jsonscan.Get(meta, "dev.patchbay/result")
	next := jsonscan.GetString(page, "next")
	if page, ok := s.Page("ann", next); !ok || page.Server != "shop" {
		t.Errorf("the principal of the result cannot read the page %s", next)
	}
	if _, ok := s.Page("ben", next); ok {
		t.Error("another principal can read the result")
	}
	c.Own = true // a page of the host
	if got, err := run(t, s, c, large); err != nil || got != large {
		t.Errorf("a page of the host became %s, %v", got, err)
	}
}

func TestErrorsPassTheSteps(t *testing.T) {
	s, c, _ := steps(t, &config.CallerLimits{ResultBytes: 1})
	failed := errors.New("refused")
	for n, step := range []call.Step{s.Bytes, s.Questions, s.Map, s.Validate, s.Limit} {
		if res, err := step(context.Background(), c, nil, failed); res != nil || !errors.Is(err, failed) {
			t.Errorf("step %d: got %v, %v", n, res, err)
		}
	}
}
