package host_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A call of a tool of a server that has never been listed fails with the error of this server: the
// tool may well exist.
func TestCallOfAnUnlistedServerFailsWithItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &fakeProcess{handler: simpleServer("broken"), fail: errBroken}
		slow := &fakeProcess{handler: simpleServer("slow"), startup: time.Minute}
		fine := &fakeProcess{handler: simpleServer("fine")}
		h := openFakes(t, map[string]*fakeProcess{"broken": broken, "slow": slow, "fine": fine}, "{}")
		c := client(t, h, &policy.Caller{})
		for server, code := range map[string]hosterr.Code{"broken": hosterr.CodeUnavailable, "slow": hosterr.CodeStarting} {
			if f, text := failureOf(t, c, server+"__name"); f == nil || f.Code != code || f.Server != server || f.MayHaveRun {
				t.Errorf("%s: got %+v, %q, want %s", server, f, text, code)
			}
		}
		var unknown *mcp.Error
		for _, tool := range []string{"fine__unknown", "unknown__name", "brokenname"} {
			if _, err := c.CallTool(t.Context(), tool, nil); !errors.As(err, &unknown) || unknown.Code != mcp.CodeInvalidParams {
				t.Errorf("%s: got %v, want an unknown tool", tool, err)
			}
		}
		if f, text := failureOf(t, c, "fine__name"); f != nil || text != "fine" {
			t.Errorf("got %+v, %q", f, text)
		}
	})
}

// A call finds a tool of a server whose list was read while the call waited for the list of another one.
func TestCallFindsAToolThatWasListedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &fakeProcess{handler: simpleServer("late"), fail: errBroken}
		slow := &fakeProcess{handler: simpleServer("slow"), startup: time.Minute}
		h := openFakes(t, map[string]*fakeProcess{"late": late, "slow": slow}, "{}")
		c := client(t, h, &policy.Caller{})
		var calling sync.WaitGroup
		calling.Go(func() { // waits for the slow server
			res, err := c.CallTool(t.Context(), "late__name", nil)
			if err != nil || res.IsError || res.Text() != "late" {
				t.Errorf("got %+v, %v", res, err)
			}
		})
		synctest.Wait()
		late.setFail(nil)
		time.Sleep(2 * time.Second) // its start is delayed by at most that
		only := client(t, h, &policy.Caller{Server: "late"})
		if f, text := failureOf(t, only, "name"); f != nil {
			t.Errorf("got %+v, %q", f, text)
		}
		calling.Wait()
	})
}
