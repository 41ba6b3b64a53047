package host_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// programSettings are the settings of a program with a host.
type programSettings struct {
	config.Settings
	Policy *struct {
		Default string `json:"default"`
	} `json:"policy,omitzero"`
	Audit *struct{} `json:"audit,omitzero" reload:"restart"`
}

// A reload replaces the policy of the settings, and keeps the last one if the new one is invalid.
func TestReloadReplacesThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const servers = `"a": {"command": "one"}`
		fakes := fakesOf("one")
		configure := func(f *config.File, o *host.Options) (config.Section, error) {
			s := new(programSettings)
			err := f.Decode(s)
			switch {
			case err != nil || s.Policy == nil:
				return s, err
			case s.Policy.Default == "ask":
				return nil, errors.New("invalid policy")
			}
			o.Policy = policyFunc(func(a *policy.Action) policy.Decision {
				if s.Policy.Default == "deny" && a.Kind == policy.ActionCall {
					return policy.Decision{Reason: "closed"}
				}
				return policy.Decision{Do: policy.OutcomeAllow}
			})
			return s, nil
		}
		h, err := host.Open(t.Context(), parseConfig(t, servers, "{}"), &host.Options{Logger: noLog,
			Configure: configure,
			Dial: func(ctx context.Context, s *config.Server) (mcp.Transport, error) {
				return fakes[s.Command].dial(ctx)
			}})
		if err != nil {
			t.Fatal(err)
		}
		r := &reloaded{Host: h, fakes: fakes}
		t.Cleanup(func() {
			_ = h.Close()
			fakes["one"].work.Wait()
		})
		c := client(t, h, &policy.Caller{})
		wantText(t, c, "a__name", "one")
		denied := func(what string) {
			t.Helper()
			if f, text := failureOf(t, c, "a__name"); f == nil || !strings.Contains(text, "closed") {
				t.Errorf("%s: got %+v, %q, want a refusal", what, f, text)
			}
		}
		r.reload(t, servers, `{"policy": {"default": "deny"}}`, host.Diff{Settings: []string{"policy"}})
		denied("after a reload")
		for settings, want := range map[string]string{
			`{"policy": {"default": "ask"}}`:     "invalid policy",
			`{"polcy": {}, "names": {"max": 8}}`: `unknown member "polcy" (did you mean "policy"?)`,
			`{"polcy": {}, "names": {"mx": 8}}`:  "names.mx: unknown member",
		} {
			_, err = h.Reload(t.Context(), parseConfig(t, "", settings))
			if err == nil || strings.Count(err.Error(), want) != 1 {
				t.Errorf("reload of %s: got %v, want %q once", settings, err, want)
			}
		}
		denied("after a reload that failed")
		r.reload(t, servers, "{}", host.Diff{Settings: []string{"policy"}})
		wantText(t, c, "a__name", "one")
		r.reload(t, servers, `{"audit": {}}`, host.Diff{Restart: []string{"audit"}})
		r.wantStarts(t, "one", 1)
	})
}

// Pins of a server follow its entry: what is found at another command line is not approved by the last
// one, and a server that needs review from now on is compared again.
func TestReloadReviewsPins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const review = `{"servers": {"a": {"trust": "review"}}}`
		r := newReloaded(t, fakesOf("one", "two"), `"a": {"command": "one"}`, `{"servers": {"a": {"trust": "first"}}}`)
		c := client(t, r.Host, &policy.Caller{})
		wantText(t, c, "a__name", "one")
		r.reload(t, `"a": {"command": "one"}`, review, host.Diff{Changed: []string{"a"}})
		settle(t, c)
		wantText(t, c, "a__name", "one") // approved before
		r.reload(t, `"a": {"command": "two"}`, review, host.Diff{Changed: []string{"a"}})
		settle(t, c)
		if f, text := failureOf(t, c, "a__name"); f == nil || f.Code != hosterr.CodeQuarantined {
			t.Errorf("tool of another command: got %+v, %q, want a quarantine", f, text)
		}
		if names := freshTools(t, c); slices.Contains(names, "a__name") {
			t.Errorf("listed %q", names)
		}
		r.reload(t, `"a": {"command": "two"}`, "{}", host.Diff{Changed: []string{"a"}})
		settle(t, c)
		wantText(t, c, "a__name", "two")
	})
}

// settle waits until connections are replaced, and lists are read again.
func settle(t *testing.T, c *mcp.Client) {
	t.Helper()
	time.Sleep(90 * time.Second) // fake
	_ = freshTools(t, c)
}
