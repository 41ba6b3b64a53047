package mcphttp_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// The requests of a batch count one by one.
func TestLimits_RequestsOfABatchCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 4
		core := newTestCore()
		f := start(t, core, &mcphttp.Options{MaxInFlightPerPrincipal: limit})
		s := f.initialize(march2025, "Authorization: ann")
		var calls sync.WaitGroup
		batch := func(n int, tool string) string {
			var bodies []string
			for id := range n {
				bodies = append(bodies, callBody(id+1, tool))
			}
			return "[" + strings.Join(bodies, ",") + "]"
		}
		if got := s.send(batch(limit+1, "echo")); got.status != 429 || got.code() != mcp.CodeBusy {
			t.Errorf("batch of %d: got %d %s, want 429", limit+1, got.status, got.body)
		}
		calls.Go(func() {
			if got := s.send(batch(limit, "wait")); got.status != 200 {
				t.Errorf("batch of %d: got %d %s, want 200", limit, got.status, got.body)
			}
		})
		synctest.Wait()
		if got := f.modern("tools/call", `"name":"echo"`, "Authorization: ann"); got.status != 429 {
			t.Errorf("call during a batch of %d: got %d, want 429", limit, got.status)
		}
		for range limit {
			core.proceed <- struct{}{}
		}
		calls.Wait()
		for range 10 { // none of the slots is lost or doubled
			if got := s.send(batch(limit, "echo")); got.status != 200 {
				t.Errorf("batch of %d: got %d %s, want 200", limit, got.status, got.body)
			}
			if got := s.send(batch(limit+1, "echo")); got.status != 429 {
				t.Errorf("batch of %d: got %d %s, want 429", limit+1, got.status, got.body)
			}
		}
	})
}

// A body of the maximum size is accepted, whatever the maximum and however it arrives.
func TestLimits_LargestBodyFitsIntoTheShareOfACaller(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const limit = 65 << 20
	for _, caller := range []string{"principal", "anonymous"} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/chunked=%v", caller, chunked), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { // the time to read a body is limited
					f := start(t, newTestCore(), &mcphttp.Options{MaxBody: limit})
					var headers []string
					if caller == "principal" {
						headers = append(headers, "Authorization: ann")
					}
					body := f.requestBuilders()["modern"].bodyOfSize(limit)
					r := f.request(t.Context(), "POST", body, append(modernHeaders("echo"), headers...)...)
					if chunked {
						r.ContentLength, r.Body = -1, io.NopCloser(strings.NewReader(body))
					}
					resp := f.open(r)
					defer resp.Body.Close()
					if resp.StatusCode != 200 {
						got, _ := io.ReadAll(resp.Body)
						t.Errorf("got %d %.200s, want 200", resp.StatusCode, got)
					}
				})
			})
		}
	}
}

// Anonymous callers that do not read cannot have the responses of principals cut.
func TestLimits_AnonymousUnreadOutputCutsNoPrincipal(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	if raceDetector {
		t.Skip("the race detector needs too much memory")
	}
	synctest.Test(t, func(t *testing.T) {
		f := start(t, megabytesCore{newTestCore()}, nil)
		call := func(headers ...string) *rawConn {
			body, lines := modernCall("tools/call", `"name":"large"`, headers...)
			conn := f.raw()
			conn.write(head(strings.Join(lines, "\r\n")+"\r\n", fmt.Sprintf("Content-Length: %d\r\n", len(body))), body)
			synctest.Wait()
			return conn
		}
		var slow []*rawConn
		for principal := range 5 {
			for range 8 {
				slow = append(slow, call(fmt.Sprint("Authorization: user", principal)))
			}
		}
		for range 60 {
			call()
		}
		for n, conn := range slow {
			if got, _ := io.Copy(io.Discard, io.LimitReader(conn.reader, 4<<20)); got != 4<<20 {
				t.Errorf("response %d of %d of principals: read %d bytes, want all", n, len(slow), got)
			}
		}
	})
}
