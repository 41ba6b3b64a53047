package host_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A list of more servers than processes may run is complete: servers whose lists were read make room for
// the others.
func TestListOfMoreServersThanProcesses(t *testing.T) {
	for name, caller := range map[string]*policy.Caller{"local": {}, "principal": {Principal: principal("ann")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const servers = 30
				fakes := map[string]*fakeProcess{}
				for n := range servers {
					fakes[fmt.Sprint("s", n)] = &fakeProcess{handler: simpleServer(fmt.Sprint("s", n)), startup: time.Second}
				}
				h := openFakes(t, fakes, `{"limits": {"processes": 4}, "tools": {"mode": "list"}}`)
				c := client(t, h, caller)
				begun := time.Now()
				tools, err := mcp.Collect(c.Tools(t.Context()))
				if err != nil || len(tools) != 4*servers {
					t.Errorf("after %v: got %d tools, %v, want %d", time.Since(begun), len(tools), err, 4*servers)
				}
				synctest.Wait()
				if st := h.Stats(); st.Processes > 4 {
					t.Errorf("got %d processes, want at most 4", st.Processes)
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
