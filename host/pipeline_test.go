package host_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// docs/architecture.md lists the stages and the steps of the pipeline, in their order.
func TestArchitectureListsTheStages(t *testing.T) {
	code, err := os.ReadFile("pipeline.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## The way of a call through a host")
	section, _, _ = strings.Cut(section, "\n## ")
	names := func(pattern, text string) (all []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		return all
	}
	listed := names("(?m)^\\d+\\. `([\\w.]+)`", section)
	if diff := cmp.Diff(names(`(?m)^\t+h\.([\w.]+),`, string(code)), listed); diff != "" || len(listed) < 15 {
		t.Errorf("stages and steps of pipeline.go (-) and docs/architecture.md (+):\n%s", diff)
	}
}

// hideCalls hides the tools with some names.
func hideCalls(names ...string) policyFunc {
	return func(a *policy.Action) policy.Decision {
		if slices.Contains(names, a.Target) {
			return policy.Decision{Do: policy.OutcomeHide}
		}
		return policy.Decision{Do: policy.OutcomeAllow}
	}
}

// A refusal of a definition that is not approved must not reveal a tool that the policy hides.
func TestPolicyRunsBeforePins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop := newTurncoat()
		h := openFile(t, map[string]any{"shop": map[string]string{"command": "shop"}}, "{}", &host.Options{
			Pins: true, State: &state.Memory{}, Policy: hideCalls("add"),
			Dial: func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(shop), nil },
		})
		t.Cleanup(func() { _ = h.Close() })
		c := clientWith(t, h, &policy.Caller{}, nil)
		_ = toolNames(t, c)
		turn(t, c, true)
		wantFailure(t, c, "shop__search", hosterr.CodeQuarantined, "approve")
		wantUnknown := func(c *mcp.Client, name string) {
			t.Helper()
			_, err := c.CallTool(t.Context(), name, nil)
			if want := `unknown tool "` + name + `"`; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
		wantUnknown(c, "shop__add") // in quarantine
		wantUnknown(c, "shop__none")
		wantUnknown(clientWith(t, h, &policy.Caller{ReadOnly: true}, nil), "shop__add")

		// A rule about calls only: the lists would show both tools, if their definitions were approved.
		h.SetPolicy(policyFunc(func(a *policy.Action) policy.Decision {
			if a.Kind == policy.ActionCall && (a.Target == "search" || a.Target == "add") {
				return policy.Decision{Do: policy.OutcomeHide}
			}
			return policy.Decision{Do: policy.OutcomeAllow}
		}))
		_ = toolNames(t, c)
		wantUnknown(c, "shop__search") // a changed definition
		wantUnknown(c, "shop__add")    // a new definition
	})
}

// A refusal by any stage is recorded once, as a call that was not sent.
//
// Requirement: HOST-23
func TestEachRefusalIsRecordedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		settings string
		decide   policy.Outcome
		code     hosterr.Code
	}{
		"policy":   {"{}", policy.OutcomeDeny, hosterr.CodeDenied},
		"pins":     {"{}", policy.OutcomeAllow, hosterr.CodeQuarantined},
		"rate":     {`{"limits": {"perTool": "1/h burst 1"}}`, policy.OutcomeAllow, hosterr.CodeLimited},
		"approval": {"{}", policy.OutcomeAsk, hosterr.CodeApprovalNeeded},
		"budget":   {`{"limits": {"callsPerDay": 1}}`, policy.OutcomeAllow, hosterr.CodeLimited},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var events []event.Kind
				outcome := policy.OutcomeAllow
				shop := newTurncoat()
				h := openFile(t, map[string]any{"shop": map[string]string{"command": "shop"}}, test.settings, &host.Options{
					Pins: name == "pins", State: &state.Memory{},
					Policy: policyFunc(func(a *policy.Action) policy.Decision {
						if a.Kind == policy.ActionCall {
							return policy.Decision{Do: outcome}
						}
						return policy.Decision{Do: policy.OutcomeAllow}
					}),
					Recorder: recorderFunc(func(r *event.Record) {
						mu.Lock()
						defer mu.Unlock()
						if r.Kind == policy.ActionCall || r.Public == "shop__search" {
							events = append(events, r.Event)
						}
					}),
					Dial: func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(shop), nil },
				})
				t.Cleanup(func() { _ = h.Close() })
				c := clientWith(t, h, &policy.Caller{}, nil)
				_ = toolNames(t, c)
				switch name {
				case "pins":
					turn(t, c, true)
				case "rate", "budget":
					if r, err := c.CallTool(t.Context(), "shop__search", nil); err != nil || r.Text() != "found" {
						t.Fatalf("first call: %+v, %v", r, err)
					}
				}
				events, outcome = nil, test.decide
				wantFailure(t, c, "shop__search", test.code, "did not run")
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(events, []event.Kind{event.Refused}) {
					t.Errorf("recorded %v, want one %s", events, event.Refused)
				}
			})
		})
	}
}

// A result that is too large and denied is reported as denied, whatever happens to large results: the
// policy decides first.
func TestDeniedResultIsNotReportedAsLarge(t *testing.T) {
	for _, result := range []string{"error", "spill"} {
		synctest.Test(t, func(t *testing.T) {
			decide := policyFunc(func(a *policy.Action) policy.Decision {
				if a.Kind == policy.ActionResult && a.Target == "text" {
					return policy.Decision{Do: policy.OutcomeDeny, Rule: "secret"}
				}
				return policy.Decision{Do: policy.OutcomeAllow}
			})
			settings := `{"limits": {"resultBytes": "4KiB", "result": "` + result + `"}}`
			h := openLimited(t, largeServer(), settings, decide, nil)
			f, text := largeFailure(t, clientWith(t, h, &policy.Caller{}, nil))
			if f == nil || f.Code != hosterr.CodeDenied || !strings.Contains(text, "denied by rule secret") {
				t.Errorf("%s: got %+v %q, want denied", result, f, text)
			}
			if n, _ := spilled(h); n != 0 {
				t.Errorf("%s: %d results are kept, want 0", result, n)
			}
		})
	}
}

func largeFailure(t *testing.T, c *mcp.Client) (*failure, string) {
	t.Helper()
	res, err := c.CallTool(t.Context(), "a__text", map[string]any{"Size": 100_000})
	if err != nil {
		t.Fatal(err)
	}
	return failureIn(t, res)
}
