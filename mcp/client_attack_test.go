package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// mayHaveRun reports what a TransportError says, and fails the test if err holds none.
func mayHaveRun(t *testing.T, err error) bool {
	t.Helper()
	var failed *mcp.TransportError
	if !errors.As(err, &failed) {
		t.Fatalf("got %v, want a TransportError", err)
	}
	return failed.MayHaveRun
}

const emptyContent = `{"resultType":"complete","content":[]}`

// What is begun after Close has certainly not run.
func TestAfterCloseNothingRuns(t *testing.T) {
	for range 50 { // the outcome must not be a matter of luck
		c := scripted(t, nil, func(context.Context, *mcp.Request) (string, error) { return emptyContent, nil })
		c.Close()
		c.Close()
		_, err := c.CallTool(t.Context(), "x", nil)
		if !errors.Is(err, mcp.ErrClosed) || mayHaveRun(t, err) || !strings.Contains(err.Error(), "tools/call") {
			t.Fatalf("got %v", err)
		}
		if c.Revision() == "" || c.Capabilities().Tools == nil {
			t.Fatal("a closed client has forgotten its server")
		}
	}
}

// The function for log messages is called for one message at a time, whichever request brought it.
func TestLOG_OneMessageAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at, seen atomic.Int32
		opts := &mcp.ClientOptions{Log: func(context.Context, *mcp.LoggingMessage) {
			if at.Add(1) > 1 {
				t.Error("two log messages at once")
			}
			time.Sleep(time.Millisecond)
			at.Add(-1)
			seen.Add(1)
		}}
		c := scripted(t, opts, func(ctx context.Context, req *mcp.Request) (string, error) {
			for range 3 {
				_ = req.Notify(ctx, "notifications/message", json.RawMessage(`{"level":"info","data":"x"}`))
			}
			return emptyContent, nil
		})
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		c.Close()
		if seen.Load() != 12 {
			t.Errorf("%d of 12 messages", seen.Load())
		}
	})
}

// Log may call the client, also for requests that bring log messages themselves.
func TestLOG_TheFunctionMayCallTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *mcp.Client
		inner := make(chan error, 1)
		opts := &mcp.ClientOptions{Log: func(_ context.Context, m *mcp.LoggingMessage) {
			if m.Text() == "outer" {
				_, err := c.CallTool(t.Context(), "inner", nil)
				inner <- err
			}
		}}
		c = scripted(t, opts, func(ctx context.Context, req *mcp.Request) (string, error) {
			text := member(t, req.Params, "name")
			return emptyContent, req.Notify(ctx, "notifications/message", json.RawMessage(`{"level":"info","data":`+text+`}`))
		})
		began := time.Now()
		if _, err := c.CallTool(t.Context(), "outer", nil); err != nil {
			t.Error(err)
		}
		if err := <-inner; err != nil || time.Since(began) != 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// No progress is told once the request has returned, however much of it waits.
func TestPROG04_NoProgressAfterTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := scripted(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			for i := range 100 {
				_ = req.Notify(ctx, "notifications/progress", json.RawMessage(fmt.Sprintf(`{"progressToken":1,"progress":%d}`, i)))
			}
			<-ctx.Done()
			_ = req.Notify(ctx, "notifications/progress", json.RawMessage(`{"progressToken":1,"progress":1000}`))
			return "", ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10500*time.Millisecond)
		defer cancel()
		var returned atomic.Bool
		ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{Progress: func(mcp.ProgressUpdate) {
			if returned.Load() {
				t.Error("progress after the request")
			}
			time.Sleep(time.Second)
		}})
		_, err := c.CallTool(ctx, "x", nil)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		returned.Store(true)
		time.Sleep(time.Minute)
	})
}

// The maximum of one request holds, though the client's timeout is longer.
func TestCAN14_AShortMaximumHolds(t *testing.T) {
	for _, own := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			opts, o := &mcp.ClientOptions{}, mcp.CallOptions{}
			if own {
				o.MaxTimeout = 5 * time.Second
			} else {
				opts.MaxTimeout = 5 * time.Second
			}
			c := scripted(t, opts, func(ctx context.Context, _ *mcp.Request) (string, error) {
				<-ctx.Done()
				return "", context.Cause(ctx)
			})
			began := time.Now()
			_, err := c.CallTool(mcp.WithCallOptions(t.Context(), o), "x", nil)
			if took := time.Since(began); took != 5*time.Second || !errors.Is(err, mcp.ErrTimeout) {
				t.Errorf("the call's own %t: after %v: %v", own, took, err)
			}
		})
	}
}

// A server of a session that always has a question open does not hold a request up for ever.
func TestCAN14_QuestionsDoNotStopTheTimeForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := mcp.Pipe()
		ctx := context.Background()
		ask := func(id int64) {
			_ = server.Write(ctx, jsonrpc.NewRequest(jsonrpc.IntID(id), "roots/list", nil))
		}
		var done sync.WaitGroup
		done.Go(func() {
			asked := int64(0)
			for {
				m, err := server.Read(ctx)
				if err != nil {
					return
				}
				switch {
				case m.Method == "server/discover":
					_ = server.Write(ctx, jsonrpc.NewErrorResponse(m.ID, &jsonrpc.Error{Code: -32601, Message: "?"}))
				case m.Method == "initialize":
					_ = server.Write(ctx, jsonrpc.NewResponse(m.ID, json.RawMessage(initialized)))
				case m.Method == "tools/call":
					ask(1)
					ask(2)
					asked = 2
				case m.Kind() == jsonrpc.Response:
					asked++
					ask(asked)
				}
			}
		})
		opts := &mcp.ClientOptions{Logger: quiet(), Timeout: 10 * time.Second, MaxTimeout: time.Minute, InputTimeout: 2 * time.Minute}
		turn := make(chan struct{}, 1)
		opts.Roots = func(context.Context) ([]mcp.Root, error) {
			turn <- struct{}{} // one after the other, so that one always waits
			time.Sleep(5 * time.Second)
			<-turn
			return nil, nil
		}
		c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(client), opts)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		calling, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = c.CallTool(calling, "x", nil)
		if took := time.Since(began); !errors.Is(err, mcp.ErrTimeout) || took > 4*time.Minute {
			t.Errorf("after %v: %v", took, err)
		}
		c.Close()
		server.Close()
		done.Wait()
		time.Sleep(time.Minute) // the functions return
	})
}

// That the server asks what it may not is not an error of the server's: it has said nothing of the kind.
func TestRPC30_ErrorsOfThisSideAreNotTheServers(t *testing.T) {
	remote := errors.New("unset")
	opts := &mcp.ClientOptions{Roots: func(context.Context) ([]mcp.Root, error) { return nil, remote }}
	question := "sampling/createMessage"
	c := scripted(t, opts, func(context.Context, *mcp.Request) (string, error) {
		return `{"resultType":"input_required","inputRequests":{"k":{"method":"` + question + `","params":{}}}}`, nil
	})
	_, err := c.CallTool(t.Context(), "x", nil)
	var said *mcp.Error
	if errors.As(err, &said) || !errors.Is(err, mcp.ErrInvalidResult) || !mayHaveRun(t, err) {
		t.Errorf("a question that was not declared: %v", err)
	}
	// A function of the caller's may ask another server, which says something.
	question = "roots/list"
	m, _ := jsonrpc.Decode([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"elsewhere"}}`))
	remote = m.Error
	_, err = c.CallTool(t.Context(), "x", nil)
	if errors.As(err, &said) || !strings.Contains(fmt.Sprint(err), "elsewhere") {
		t.Errorf("an error of another server: %v", err)
	}
	remote = io.ErrUnexpectedEOF
	if _, err = c.CallTool(t.Context(), "x", nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an error of the caller's: %v", err)
	}
}

// What one principal may see is not given to another.
func TestCACHE09_AnswersAreOfOnePrincipal(t *testing.T) {
	c := scripted(t, nil, func(_ context.Context, req *mcp.Request) (string, error) {
		return `{"contents":[{"uri":"a:1","text":"for ` + req.Principal.Key()[:1] + `"}],"ttlMs":60000,"cacheScope":"private"}`, nil
	})
	for _, who := range []string{"a", "b", "a"} {
		ctx := mcp.WithPrincipal(t.Context(), &mcp.Principal{Issuer: who})
		r, err := c.ReadResource(ctx, "a:1")
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(r.Contents[0].Text); !strings.Contains(got, "for "+who) {
			t.Errorf("%s reads %q", who, got)
		}
	}
}

// An answer that was on its way when the server said that it has changed is not kept.
func TestCACHE11_AnAnswerThatIsOvertakenIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		change, answer := make(chan struct{}), make(chan struct{}, 2)
		lists := 0
		c := scripted(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			if req.Method == "tools/list" {
				lists++
				<-answer
				return `{"tools":[],"ttlMs":60000,"cacheScope":"private"}`, nil
			}
			_ = req.Notify(ctx, "notifications/subscriptions/acknowledged", json.RawMessage(`{"notifications":{"toolsListChanged":true}}`))
			<-change
			_ = req.Notify(ctx, "notifications/tools/list_changed", json.RawMessage(`{}`))
			<-ctx.Done()
			return "", ctx.Err()
		})
		list := func() {
			for _, err := range c.Tools(t.Context()) {
				t.Error(err)
			}
		}
		for e, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == mcp.EventListening {
				go list()
				synctest.Wait()
				close(change)
				continue
			}
			break
		}
		answer <- struct{}{}
		synctest.Wait()
		answer <- struct{}{}
		list()
		if lists != 2 {
			t.Errorf("asked %d times, want 2: what is old was kept", lists)
		}
	})
}

// The caller may do with a result what it likes.
func TestCACHE04_ResultsAreTheCallers(t *testing.T) {
	c := scripted(t, nil, func(context.Context, *mcp.Request) (string, error) {
		return `{"contents":[],"ttlMs":60000,"cacheScope":"private"}`, nil
	})
	for range 3 {
		raw, err := c.Do(t.Context(), "resources/read", map[string]string{"uri": "a:1"})
		if err != nil || !bytes.Contains(raw, []byte("contents")) {
			t.Fatalf("got %s, %v", raw, err)
		}
		clear(raw)
	}
	v := c.SupportedRevisions()
	v[0] = "changed"
	if c.SupportedRevisions()[0] == "changed" {
		t.Error("Versions gives what is the client's")
	}
}

// A cursor that has become invalid does not leave a list unreadable for as long as its first page is fresh.
func TestCACHE13_AnInvalidCursorDropsThePages(t *testing.T) {
	generation, asked := "1", 0
	tool := `{"name":"t%s","inputSchema":{"type":"object"}}`
	c := scripted(t, nil, func(_ context.Context, req *mcp.Request) (string, error) {
		asked++
		switch member(t, req.Params, "cursor") {
		case "":
			return `{"tools":[` + fmt.Sprintf(tool, "a") + `],"nextCursor":"` + generation + `","ttlMs":3600000,"cacheScope":"private"}`, nil
		case `"` + generation + `"`:
			return `{"tools":[` + fmt.Sprintf(tool, "b") + `],"ttlMs":0,"cacheScope":"private"}`, nil
		}
		return "", mcp.Errorf(mcp.CodeInvalidParams, "that cursor is gone")
	})
	list := func() (names []string, err error) {
		for v, err := range c.Tools(t.Context()) {
			if err != nil {
				return names, err
			}
			names = append(names, v.Name)
		}
		return names, nil
	}
	if names, err := list(); err != nil || len(names) != 2 {
		t.Fatal(names, err)
	}
	generation = "2"
	_, _ = list() // may fail: it has given the first page already
	if names, err := list(); err != nil || len(names) != 2 {
		t.Errorf("got %v, %v", names, err)
	}
}

// acknowledge begins a subscription, as a server does.
func acknowledge(ctx context.Context, req *mcp.Request) {
	_ = req.Notify(ctx, "notifications/subscriptions/acknowledged", json.RawMessage(`{"notifications":{"toolsListChanged":true}}`))
}

// Events that are too many are not lost without a word.
func TestSUB_AFloodIsAResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := scripted(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			acknowledge(ctx, req)
			for i := range 5000 {
				_ = req.Notify(ctx, "notifications/resources/updated", json.RawMessage(fmt.Sprintf(`{"uri":"a:%d"}`, i)))
			}
			_ = req.Notify(ctx, "notifications/tools/list_changed", json.RawMessage(`{}`))
			<-ctx.Done()
			return "", ctx.Err()
		})
		got := map[mcp.EventKind]int{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"a:"}}) {
			if err != nil {
				t.Fatal(err)
			}
			if got[e.Kind]++; e.Kind == mcp.EventListening {
				time.Sleep(time.Second)
			}
			if e.Kind == mcp.EventChangesMissed && (e.Filter == nil || !e.Filter.ToolsListChanged) {
				t.Errorf("the filter of a resync is %+v", e.Filter)
			}
		}
		if got[mcp.EventToolsChanged] != 1 || got[mcp.EventChangesMissed] == 0 || got[mcp.EventResourceUpdated] > 2100 {
			t.Errorf("got %v", got)
		}
	})
}

// A server that never acknowledges is an error in the end.
func TestSUB03_NoAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := scripted(t, nil, func(ctx context.Context, _ *mcp.Request) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var last error
		for _, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
			last = err
		}
		if !errors.Is(last, mcp.ErrTimeout) {
			t.Errorf("got %v", last)
		}
	})
}

// One that acknowledges stays subscribed to for as long as it likes.
func TestSUB03_AfterTheAcknowledgementThereIsNoHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := 0
		c := scripted(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			begun++
			acknowledge(ctx, req)
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Hour)
		defer cancel()
		for _, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
			if err != nil {
				t.Error(err)
			}
		}
		if begun != 1 {
			t.Errorf("subscribed %d times", begun)
		}
	})
}

// A server that ends each subscription as soon as it has begun is not asked every second for ever.
func TestSUB11_SubscriptionsThatEndAtOnceAreRenewedSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, resyncs := 0, 0
		c := scripted(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			begun++
			acknowledge(ctx, req)
			return `{"resultType":"complete"}`, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == mcp.EventChangesMissed {
				resyncs++
			}
		}
		if begun > 600 || begun < 60 || resyncs != begun-1 {
			t.Errorf("subscribed %d times within an hour, %d resyncs", begun, resyncs)
		}
	})
}

// A Resync that waits tells of what the server agreed to last.
func TestSUB06_AResyncHasTheLastFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := 0
		c := scripted(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			if begun++; begun == 1 {
				acknowledge(ctx, req)
				return `{"resultType":"complete"}`, nil
			}
			if begun == 2 {
				acknowledge(ctx, req)
				return `{"resultType":"complete"}`, nil
			}
			_ = req.Notify(ctx, "notifications/subscriptions/acknowledged", json.RawMessage(`{"notifications":{"promptsListChanged":true}}`))
			<-ctx.Done()
			return "", ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var last *mcp.SubscriptionFilter
		for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true, PromptsListChanged: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == mcp.EventListening {
				time.Sleep(30 * time.Minute)
			}
			last = e.Filter
		}
		if last == nil || !last.PromptsListChanged || last.ToolsListChanged {
			t.Errorf("the last filter is %+v", last)
		}
	})
}

// Middleware that panics while a subscription is open ends the loop, not the process.
func TestR7_3_7_MiddlewareThatPanicsInListen(t *testing.T) {
	opts := &mcp.ClientOptions{Middleware: []mcp.Middleware{func(mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { panic("ouch") })
	}}}
	c := scripted(t, opts, func(context.Context, *mcp.Request) (string, error) { return "", nil })
	var last error
	for _, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}) {
		last = err
	}
	if last == nil {
		t.Error("no error")
	}
}

// Pages of broken items are bounded as those of good ones are, in bytes and in what is logged.
func TestR7_2_BrokenItemsCount(t *testing.T) {
	for name, page := range map[string]string{
		"bytes": `{"tools":[],"junk":"` + strings.Repeat("x", 8<<20) + `","nextCursor":"%d"}`,
		"items": `{"tools":[` + strings.Repeat("0,", 50_000) + `0],"nextCursor":"%d"}`,
	} {
		t.Run(name, func(t *testing.T) {
			pages := 0
			var logged lineCounter
			h := mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
				if req.Method == "server/discover" {
					return mcp.RawResult(discovered), nil
				}
				pages++
				return mcp.RawResult(fmt.Sprintf(page, pages)), nil
			})
			c, err := mcp.Connect(t.Context(), mcp.InMemory(h), &mcp.ClientOptions{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var last error
			for _, err := range c.Tools(t.Context()) {
				last = err
			}
			if !errors.Is(last, mcp.ErrInvalidResult) || pages > 9 || logged > 10_100 {
				t.Errorf("%d pages, %d lines in the log, %v", pages, logged, last)
			}
		})
	}
}

type lineCounter int

func (n *lineCounter) Write(p []byte) (int, error) {
	*n += lineCounter(bytes.Count(p, []byte("\n")))
	return len(p), nil
}

// A pin that the server does not meet is what Connect says, whatever the server said.
func TestVER21_APinThatIsNotMet(t *testing.T) {
	for _, discover := range []string{`{"code":-32601,"message":"what?"}`, `{"code":-32022,"message":"?","data":{"supported":["2025-06-18"]}}`, `{"hello":1}`, ``} {
		synctest.Test(t, func(t *testing.T) {
			transport, _ := converse(t, dialogue{"server/discover": discover, "initialize": initialized})
			_, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Revision: "2026-07-28", Logger: quiet()})
			if !errors.Is(err, mcp.ErrNoCommonRevision) {
				t.Errorf("%s: %v", discover, err)
			}
		})
	}
}

// Errors do not repeat all that a stranger says.
func TestVER21_TheVersionsInAnErrorAreBounded(t *testing.T) {
	versions := strings.TrimSuffix(strings.Repeat(`"x",`, 100_000), ",")
	transport, _ := converse(t, dialogue{"server/discover": `{"code":-32022,"message":"?","data":{"supported":[` + versions + `]}}`})
	_, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Logger: quiet()})
	if n := len(err.Error()); n > 8<<10 {
		t.Errorf("the error has %d bytes", n)
	}
}

func TestMRTR16_NegativeMeansNone(t *testing.T) {
	rounds := 0
	opts := &mcp.ClientOptions{MaxRounds: -1, Roots: func(context.Context) ([]mcp.Root, error) { return nil, nil }}
	c := scripted(t, opts, func(context.Context, *mcp.Request) (string, error) {
		if rounds++; rounds > 100 {
			return emptyContent, nil
		}
		return `{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}}}`, nil
	})
	if _, err := c.CallTool(t.Context(), "x", nil); err == nil || rounds != 1 {
		t.Errorf("%d rounds, %v", rounds, err)
	}
}

// A server hears of each of many requests that end together, also if it does not read at that moment.
func TestCAN10_ManyEndTogether(t *testing.T) {
	const calls = 500
	synctest.Test(t, func(t *testing.T) {
		client, server := mcp.Pipe()
		heard := map[string]int{}
		var served sync.WaitGroup
		served.Go(func() {
			for m, err := server.Read(context.Background()); err == nil; m, err = server.Read(context.Background()) {
				if m.Method == "server/discover" {
					_ = server.Write(context.Background(), jsonrpc.NewResponse(m.ID, json.RawMessage(discovered)))
				}
				if heard[m.Method]++; heard["tools/call"] == calls && heard["notifications/cancelled"] == 0 {
					time.Sleep(2 * time.Second)
				}
			}
		})
		c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(client), &mcp.ClientOptions{Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var done sync.WaitGroup
		for range calls {
			done.Go(func() { _, _ = c.CallTool(ctx, "x", nil) })
		}
		done.Wait()
		time.Sleep(10 * time.Second)
		c.Close()
		server.Close()
		served.Wait()
		if n := heard["notifications/cancelled"]; n != calls {
			t.Errorf("the server heard of %d of %d", n, calls)
		}
	})
}

// A request that was given up while the server did not read is cancelled when it reads again.
func TestCAN10_WhatIsReadLateIsCancelled(t *testing.T) {
	var methods []string
	onRaw(t, nil, func(s *rawServer) {
		time.Sleep(time.Hour)
		for range 2 {
			_, method := s.next()
			methods = append(methods, method)
		}
	}, func(t *testing.T, c *mcp.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.CallTool(ctx, "x", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := fmt.Sprint(methods); got != "[tools/call notifications/cancelled]" {
			t.Errorf("the server heard %s", got)
		}
	})
}

// A faulty is a Conn of somebody else's, which fails to write after it has written.
type faulty struct {
	mcp.Conn
	broken atomic.Bool
}

func (f *faulty) Write(ctx context.Context, m *jsonrpc.Message) error {
	err := f.Conn.Write(ctx, m)
	if f.broken.Load() {
		return errors.New("flush: the network is unreachable")
	}
	return err
}

func TestSTDIO17_AnUnknownFailureToWriteMayHaveRun(t *testing.T) {
	client, server := mcp.Pipe()
	f := &faulty{Conn: client}
	ran := make(chan struct{}, 9)
	s := newServer(t, nil)
	addTool(s, "x", func(context.Context) (string, error) {
		ran <- struct{}{}
		return "", nil
	})
	var served sync.WaitGroup
	served.Go(func() { _ = mcp.Serve(context.Background(), s, server, nil) })
	c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(f), &mcp.ClientOptions{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	f.broken.Store(true)
	_, err = c.CallTool(t.Context(), "x", nil)
	<-ran
	if !mayHaveRun(t, err) {
		t.Errorf("the call has run: %v", err)
	}
	c.Close()
	served.Wait()
}

// A twoFaced is a server that is one of the session era until it is brought up to date.
type twoFaced struct {
	modern atomic.Bool
	mu     sync.Mutex
	seen   []string // requests, with the revision that they speak
	stuck  atomic.Bool
}

func (f *twoFaced) RoundTrip(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if f.stuck.Load() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if !f.modern.Load() {
		m, _ := jsonrpc.Decode([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"?"}}`))
		return nil, m.Error
	}
	var p struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(req.Params, &p); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.seen = append(f.seen, req.Method+" "+req.Revision()+" "+string(p.Meta["io.modelcontextprotocol/protocolVersion"]))
	f.mu.Unlock()
	if req.Method == "server/discover" {
		return mcp.RawResult(discovered), nil
	}
	return mcp.RawResult(emptyContent), nil
}

func (f *twoFaced) Close() error { return nil }

func (f *twoFaced) OpenSession(context.Context, func(*jsonrpc.Message)) (mcp.SessionConn, error) {
	return &twoFacedLink{f, make(chan struct{}), sync.Once{}}, nil
}

type twoFacedLink struct {
	f    *twoFaced
	done chan struct{}
	once sync.Once
}

func (l *twoFacedLink) RoundTrip(_ context.Context, req *jsonrpc.Message) (*jsonrpc.Message, error) {
	if l.f.modern.Load() {
		return nil, &mcp.TransportError{Method: req.Method, Err: mcp.ErrSessionLost}
	}
	return jsonrpc.NewResponse(jsonrpc.IntID(1), json.RawMessage(initialized)), nil
}
func (l *twoFacedLink) Send(context.Context, *jsonrpc.Message) error { return nil }
func (l *twoFacedLink) Done() <-chan struct{}                        { return l.done }
func (l *twoFacedLink) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// A request that is sent again to what has become a modern server speaks a modern revision.
func TestVER19_ARequestThatIsSentAgainSpeaksTheNewRevision(t *testing.T) {
	f := &twoFaced{}
	c, err := mcp.Connect(t.Context(), f, &mcp.ClientOptions{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f.modern.Store(true)
	if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
		t.Error(err)
	}
	if got := strings.Join(f.seen, ", "); got != `server/discover 2026-07-28 "2026-07-28", tools/call 2026-07-28 "2026-07-28"` {
		t.Errorf("the server saw %s", got)
	}
}

// While a new connection is sought, what waits for it has not run, and Close ends it.
func TestAConnectionThatIsSoughtHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &twoFaced{}
		c, err := mcp.Connect(t.Context(), f, &mcp.ClientOptions{Logger: quiet(), ProbeTimeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		f.stuck.Store(true)
		f.modern.Store(true)
		ended := make(chan error, 2)
		go func() {
			_, err := c.CallTool(t.Context(), "x", nil)
			ended <- err
		}()
		synctest.Wait()
		go func() { ended <- c.RootsChanged(context.Background()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.CallTool(ctx, "x", nil); !errors.Is(err, context.DeadlineExceeded) || mayHaveRun(t, err) {
			t.Errorf("while another one seeks: %v", err)
		}
		began := time.Now()
		c.Close()
		for range 2 {
			if err := <-ended; !errors.Is(err, mcp.ErrClosed) && !errors.Is(err, mcp.ErrSessionLost) || mayHaveRun(t, err) {
				t.Errorf("got %v", err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// A modern server that no longer speaks the revision is asked anew what it speaks.
func TestVER05_ARevisionThatIsNoLongerSpoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := dialogue{"server/discover": discovered, "initialize": initialized, "tools/call": emptyContent}
		transport, heard := converse(t, answers)
		c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		synctest.Wait()
		no := `{"code":-32022,"message":"?","data":{"supported":["2025-06-18"]}}`
		answers["server/discover"], answers["tools/call"] = no, no
		var said *mcp.Error
		if _, err := c.CallTool(t.Context(), "x", nil); !errors.As(err, &said) || said.Code != -32022 {
			t.Errorf("got %v", err)
		}
		if got := strings.Join(heard(), " "); got != "server/discover tools/call server/discover initialize notifications/initialized tools/call" || c.Revision() != "2025-06-18" {
			t.Errorf("revision %s; the server heard %q", c.Revision(), got)
		}
	})
}

// What a function of the caller's leaves out is said plainly, and never sent as an answer that is none.
func TestELI10_ResultsThatAreNone(t *testing.T) {
	var result *mcp.ElicitResult
	give := func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) { return result, nil }
	sent := 0
	params := ""
	c := scripted(t, &mcp.ClientOptions{Elicit: give, ElicitURL: give}, func(_ context.Context, req *mcp.Request) (string, error) {
		if member(t, req.Params, "inputResponses") != "" {
			sent++
			return emptyContent, nil
		}
		return `{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":` + params + `}}}`, nil
	})
	for _, params = range []string{`{"mode":"url","message":"m","url":"https://example.com/"}`, `{"message":"m","requestedSchema":{"type":"object"}}`} {
		for _, result = range []*mcp.ElicitResult{nil, {}, {Action: "perhaps"}} {
			_, err := c.CallTool(t.Context(), "x", nil)
			if err == nil || sent != 0 || strings.Contains(err.Error(), "internal error") {
				t.Errorf("%+v: %v, %d sent", result, err, sent)
			}
		}
	}
}

// Arguments that were left out are none, also as JSON.
func TestTOOL06_NoArguments(t *testing.T) {
	got := ""
	c := scripted(t, nil, func(_ context.Context, req *mcp.Request) (string, error) {
		got = member(t, req.Params, "arguments")
		return emptyContent, nil
	})
	if _, err := c.CallTool(t.Context(), "x", json.RawMessage(nil)); err != nil || got != "{}" {
		t.Errorf("got %s, %v", got, err)
	}
}

// A level from somewhere else cannot add members to the envelope.
func TestLOG_ALevelIsOneString(t *testing.T) {
	got := ""
	c := scripted(t, &mcp.ClientOptions{LogLevel: `info","x":"y`}, func(_ context.Context, req *mcp.Request) (string, error) {
		got = member(t, req.Params, "_meta")
		return emptyContent, nil
	})
	if _, err := c.CallTool(t.Context(), "x", nil); err == nil && strings.Contains(got, `"x":"y"`) {
		t.Errorf("_meta is %s", got)
	}
}

// Requests may end, and the client be closed, at the same time.
func TestCloseWhileRequestsEnd(t *testing.T) {
	for range 100 {
		transport, _ := converse(t, dialogue{"server/discover": discovered})
		c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		for range 8 {
			done.Go(func() { _, _ = c.CallTool(ctx, "x", nil) })
		}
		done.Go(cancel)
		done.Go(func() { c.Close() })
		done.Wait()
	}
}

// A stream on which a message was cut off is not kept: whatever is written on it, the server reads garbage.
func TestSTDIO17_AStreamThatIsCutOffIsGivenUp(t *testing.T) {
	client, server := net.Pipe()
	lines := bufio.NewReader(server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var served sync.WaitGroup
	enough, ended := make(chan struct{}), make(chan error, 1)
	served.Go(func() {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(server, `{"jsonrpc":"2.0","id":1,"result":%s}`+"\n", discovered)
		_, _ = io.ReadFull(lines, make([]byte, 10)) // of a message that is longer
		cancel()
		<-enough
		_, err := io.Copy(io.Discard, lines)
		ended <- err
	})
	c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(mcp.NewStreamConn(client, client, nil)), &mcp.ClientOptions{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CallTool(ctx, strings.Repeat("x", 1<<20), nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(enough)
	for range 2 {
		if _, err := c.CallTool(t.Context(), "x", nil); !errors.Is(err, mcp.ErrDisconnected) || mayHaveRun(t, err) {
			t.Errorf("got %v", err)
		}
	}
	<-ended // without Close
	c.Close()
	served.Wait()
}
