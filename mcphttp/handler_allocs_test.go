package mcphttp_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Cores that cost nothing themselves. The second one says something before it answers.
var (
	cannedResult mcp.Result = mcp.RawResult(`{"resultType":"complete","content":[{"type":"text","text":"hello"}]}`)
	cannedNote              = []byte(`{"level":"info","data":"hello"}`)

	freeCore = mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { return cannedResult, nil })

	notifyingCore = mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		return cannedResult, req.Notify(ctx, "notifications/message", cannedNote)
	})
)

// What a call costs the garbage collector on its way from net/http to the server and back, the server's own work left
// out.
func TestAllocationsOfACall(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	for _, test := range []struct {
		name   string
		core   mcp.Handler
		budget float64
	}{
		// The body, the message's id and method, the request, the exchange, and its Notify.
		{"JSON", freeCore, 6},
		// Beside them the stream.
		{"event stream", notifyingCore, 7},
	} {
		x := newRerun(mcphttp.NewHandler(test.core, nil), modernBody, modernHeader())
		if got := testing.AllocsPerRun(1000, x.run); got > test.budget {
			t.Errorf("%s: %v allocations, want at most %v", test.name, got, test.budget)
		}
		x.check(t, "hello")
	}
}

// sessionCore returns every request the same result, and tells sessions what it is.
func sessionCore(result mcp.Result) mcp.Handler {
	return mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
		if req.Method == "server/discover" {
			return mcp.RawResult(`{"resultType":"complete","supportedVersions":["` + modern + `"],"capabilities":{"tools":{}},` +
				`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}`), nil
		}
		return result, nil
	})
}

// The same in a session.
func TestAllocationsOfACallInASession(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	quietCore := sessionCore(cannedResult)
	for _, test := range []struct {
		name, body string
		core       mcp.Handler
		budget     float64
	}{
		// The body, its message's id and method, the POST, its context, the params with the envelope, the request and its
		// Notify.
		{"JSON", sessionBody, quietCore, 9},
		// Beside them the stream with its name, and its connection. Packs of what is kept come to less than one.
		{"event stream", sessionProgressBody, mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if req.Method == "tools/call" {
				_ = req.Notify(ctx, "notifications/message", cannedNote)
			}
			return quietCore.ServeMCP(ctx, req)
		}), 12},
	} {
		h := mcphttp.NewHandler(test.core, nil)
		x := newRerun(h, test.body, sessionHeader(t, h))
		if got := testing.AllocsPerRun(1000, x.run); got > test.budget {
			t.Errorf("%s: %v allocations, want at most %v", test.name, got, test.budget)
		}
		x.check(t, "hello")
	}
}

// Large answers that come one after the other do not each take memory of their size.
func TestLargeAnswersShareTheirRoom(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector drops what pools hold")
	}
	const size, runs = 1 << 19, 100
	large := mcp.RawResult(`{"resultType":"complete","content":[{"type":"text","text":"` + strings.Repeat("x", size) + `"}]}`)
	session := mcphttp.NewHandler(sessionCore(large), nil)
	for name, x := range map[string]*rerun{
		"JSON": newRerun(mcphttp.NewHandler(mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
			return large, nil
		}), nil), modernBody, modernHeader()),
		"event stream": newRerun(mcphttp.NewHandler(mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			return large, req.Notify(ctx, "notifications/message", cannedNote)
		}), nil), modernBody, modernHeader()),
		"session": newRerun(session, sessionBody, sessionHeader(t, session)),
	} {
		x.run()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			x.run()
		}
		runtime.ReadMemStats(&after)
		x.check(t, "xxx")
		if each := (after.TotalAlloc - before.TotalAlloc) / runs; each > size/4 {
			t.Errorf("%s: %d bytes for each answer of %d", name, each, size)
		}
	}
}
