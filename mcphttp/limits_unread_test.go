package mcphttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A megabytesCore is a handler whose tool "large" returns 4 MB.
type megabytesCore struct{ *testCore }

func (c megabytesCore) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if !strings.Contains(string(req.Params), `"large`) {
		return c.testCore.ServeMCP(ctx, req)
	}
	if strings.Contains(string(req.Params), `"largestream"`) {
		if err := req.Notify(ctx, "notifications/message", []byte(`{"level":"info","data":1}`)); err != nil {
			return nil, err
		}
	}
	if strings.Contains(string(req.Params), `"largechecked"`) {
		text := strings.Repeat("x", 4<<20)
		raw := mcp.RawResult(`{"resultType":"complete","content":[{"type":"text","text":"` + text + `"}]}`)
		req.Driver().Valid = json.RawMessage(raw)
		return raw, nil
	}
	return text(strings.Repeat("x", 4<<20)), nil
}

// Responses that are not read are bounded in bytes. The oldest are cut, and a client that reads gets
// its response.
func TestLimits_OfUnreadResponses(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	if raceDetector {
		t.Skip("the race detector changes the size of the heap")
	}
	for _, tool := range []string{"large", "largestream", "largechecked"} {
		for _, owner := range []string{"anonymous", "principal"} {
			for _, era := range []string{"modern", "session"} {
				t.Run(tool+"/"+owner+"/"+era, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testUnreadResponses(t, tool, owner, era) })
				})
			}
		}
	}
}

func testUnreadResponses(t *testing.T, tool, owner, era string) {
	const clients = 100
	f := start(t, megabytesCore{newTestCore()}, nil)
	var headers []string
	budget := int64(2*128+64) << 20 // the encoded response, and its copy in the buffer of a stream
	if owner == "principal" {
		headers, budget = []string{"Authorization: mallory"}, int64(2*64+64)<<20
	}
	body, lines := modernCall("tools/call", fmt.Sprintf(`"name":%q`, tool), headers...)
	if era == "session" {
		body, lines = callBody(1, tool), f.initialize(november2025, headers...).headers
	}
	before := heapInUse()
	var conns []*rawConn
	for i := range clients {
		if era == "session" {
			body = callBody(i+1, tool)
		}
		conn := f.raw()
		conn.write(head(strings.Join(lines, "\r\n")+"\r\n", fmt.Sprintf("Content-Length: %d\r\n", len(body))), body)
		conns = append(conns, conn)
		synctest.Wait()
	}
	if grown := heapInUse() - before; grown > budget {
		t.Errorf("%d unread responses of 4 MiB hold %d MiB, want at most %d", clients, grown>>20, budget>>20)
	}
	for _, other := range []string{"Authorization: ann", "Authorization: bob"} {
		got := f.modern("tools/call", fmt.Sprintf(`"name":%q`, tool), other)
		if got.status != 200 || len(got.body) < 4<<20 {
			t.Errorf("%s: got %d and %d bytes, want the response", other, got.status, len(got.body))
		}
	}
	last := conns[clients-1]
	if n, _ := io.Copy(io.Discard, io.LimitReader(last.reader, 4<<20)); n != 4<<20 {
		t.Errorf("the newest response: read %d bytes, want all of them", n)
	}
	time.Sleep(time.Minute) // beyond the write timeout
}

// Responses that an HTTP+SSE session does not read are bounded in bytes. Beyond them the client gets
// errors, and a client that reads gets one response to each request.
func TestLimits_OfUnreadBytesOfHTTPSSE(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector changes the size of the heap")
	}
	synctest.Test(t, func(t *testing.T) {
		const calls, budget = 100, 64 << 20
		f := start(t, megabytesCore{newTestCore()}, nil)
		c := f.initializedSSE(t.Context())
		before := heapInUse()
		for id := range calls {
			c.post(callBody(id+2, "large"))
			synctest.Wait()
		}
		if grown := heapInUse() - before; grown > budget {
			t.Errorf("%d unread responses of 4 MiB hold %d MiB, want at most %d", calls, grown>>20, budget>>20)
		}
		whole, discarded := 0, 0
		c.Reader = sse.NewReader(c.resp.Body, 8<<20)
		for range calls {
			e := c.next()
			if strings.Contains(string(e.Data[:min(len(e.Data), 200)]), `"error"`) {
				discarded++
			} else {
				whole++
			}
		}
		if whole < 4 || discarded < calls-10 {
			t.Errorf("got %d responses and %d errors, want %d in all and some of each", whole, discarded, calls)
		}
		c.post(callBody(calls+2, "large"))
		if e := c.next(); len(e.Data) < 4<<20 {
			t.Errorf("call after the session was read: got %.100s, want the response", e.Data)
		}
	})
}
