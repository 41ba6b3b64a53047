package host_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// All servers together have at most as many processes as limits.processes says. A principal leaves a quarter
// of them to others, and processes that are not used make room.
func TestProcessesOfAllServersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes, names := map[string]*fakeProcess{}, []string{"a", "b", "c", "d", "e"}
		for _, name := range names {
			fakes[name] = &fakeProcess{handler: simpleServer(name)}
		}
		h := openFakes(t, fakes, `{"limits": {"processes": 4}, "servers": {"e": {"instances": 1}}}`)
		slow := func(subject string, servers ...string) (texts []string) {
			texts = make([]string, len(servers))
			var wait sync.WaitGroup
			for n, server := range servers {
				c, err := mcp.Connect(t.Context(), mcp.InMemory(h.For(&policy.Caller{Principal: principal(subject), Server: server})),
					nil)
				if err != nil {
					texts[n] = err.Error()
					continue
				}
				defer func() { _ = c.Close() }()
				wait.Go(func() {
					res, err := c.CallTool(t.Context(), "slow", nil)
					if texts[n] = fmt.Sprint(err); err == nil {
						texts[n] = res.Text()
					}
				})
				synctest.Wait()
				time.Sleep(time.Millisecond) // calls begin one after the other
			}
			wait.Wait()
			return texts
		}
		got := slow("ann", "a", "b", "c", "d")
		if want := []string{"slow", "slow", "slow"}; strings.Join(got[:3], " ") != strings.Join(want, " ") ||
			!strings.Contains(got[3], "3 of at most 3 for the caller") || !strings.Contains(got[3], "limits.processes") {
			t.Errorf("got %q, want three results and a refusal", got)
		}
		wantProcesses := func(want int) {
			t.Helper()
			if st := h.Stats(); st.Processes != want || st.MaxProcesses != 4 {
				t.Errorf("got %d of at most %d processes, want %d of 4", st.Processes, st.MaxProcesses, want)
			}
		}
		wantProcesses(3)
		if got := slow("bob", "d", "a"); got[0] != "slow" || got[1] != "slow" { // in place of an idle process
			t.Errorf("bob: got %q", got)
		}
		synctest.Wait()
		wantProcesses(4)
		if got := slow("cyd", "e"); got[0] != "slow" {
			t.Errorf("cyd: got %q", got)
		}
		hold := client(t, h, &policy.Caller{Principal: principal("cyd"), Server: "e"})
		var wait sync.WaitGroup
		wait.Go(func() { _, _ = hold.CallTool(t.Context(), "slow", nil) })
		synctest.Wait()
		if got := slow("dan", "e"); !strings.Contains(got[0], "1 of at most 1 in total") {
			t.Errorf("dan: got %q, want a refusal by the setting instances", got)
		}
		wait.Wait()
		time.Sleep(time.Hour)
		wantProcesses(0)
	})
}
