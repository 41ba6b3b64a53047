package host_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A list of more servers than processes may run is complete: servers whose lists were read make room for
// the others.
func TestListOfMoreServersThanProcesses(t *testing.T) {
	for name, caller := range map[string]*policy.Caller{
		"local 4": {}, "principal 4": {Principal: principal("ann")}, "local 1": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit, servers := int(name[len(name)-1]-'0'), 30
				if limit == 1 {
					servers = 5
				}
				fakes := map[string]*fakeProcess{}
				for n := range servers {
					s := fmt.Sprint("s", n)
					fakes[s] = &fakeProcess{handler: simpleServer(s), startup: time.Second}
				}
				h := openFakes(t, fakes, fmt.Sprintf(`{"limits": {"processes": %d}, "tools": {"mode": "list"}}`, limit))
				c := client(t, h, caller)
				begun := time.Now()
				tools, err := mcp.Collect(c.Tools(t.Context()))
				if err != nil || len(tools) != 4*servers {
					t.Errorf("after %v: got %d tools, %v, want %d", time.Since(begun), len(tools), err, 4*servers)
				}
				synctest.Wait()
				if st := h.Stats(); st.Processes > limit {
					t.Errorf("got %d processes, want at most %d", st.Processes, limit)
				}
				for name, f := range fakes {
					if starts := len(f.started()); starts != 1 {
						t.Errorf("%s was started %d times", name, starts)
					}
				}
			})
		})
	}
}

// A process that is not used makes room for another process also if its caller reads no lists.
func TestProcessesWithoutListsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := map[string]*fakeProcess{}
		for n := range 3 {
			fakes[fmt.Sprint("s", n)] = &fakeProcess{handler: newServer(fmt.Sprint("s", n))}
		}
		h := openFakes(t, fakes, `{"limits": {"processes": 2}}`)
		for name := range fakes {
			c := client(t, h, &policy.Caller{Server: name})
			if _, err := c.ReadResource(t.Context(), "file:///"+name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			time.Sleep(time.Minute)
		}
	})
}

// A subscription is acknowledged although the process of a resource cannot start: another process serves a
// call that may last for hours.
func TestSubscriptionsDoNotWaitForProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := map[string]*fakeProcess{"s0": {handler: simpleServer("s0")}, "s1": {handler: simpleServer("s1")}}
		h := openFakes(t, fakes, `{"limits": {"processes": 1}, "tools": {"mode": "list"}}`)
		c := client(t, h, &policy.Caller{})
		if all, err := mcp.Collect(c.Resources(t.Context())); err != nil || len(all) != 2 {
			t.Errorf("got %d resources, %v, want 2", len(all), err)
		}
		begun := time.Now()
		var call sync.WaitGroup
		call.Go(func() {
			if _, err := c.CallTool(t.Context(), "s0__slow", nil); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		for e, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{ResourceSubscriptions: []string{"file:///s1"}}) {
			if err == nil && e.Kind != mcp.EventListening {
				continue
			}
			if wait := time.Since(begun); err != nil || wait > 10*time.Second {
				t.Errorf("after %v: %v, want an acknowledgement", wait, err)
			}
			break
		}
		call.Wait()
	})
}
