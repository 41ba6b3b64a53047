package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	echoes        = 10 // calls of one echo operation, so that most calls are cheap
	parallelCalls = 8
	streamEvents  = 10
	// notifyTimeout is how long a notification may take.
	notifyTimeout = 20 * time.Second
)

// An operation is something that a client does in one step. It returns the number of calls.
type operation struct {
	weight int
	suits  func(c *client) bool // nil for all
	run    func(c *client, ctx context.Context) int
}

func operations() []operation {
	return []operation{
		{800, nil, (*client).echo},
		{60, nil, (*client).parallel},
		{40, nil, (*client).large},
		{20, nil, (*client).stream},
		{10, (*client).resumes, (*client).streamClosed},
		{15, (*client).network, (*client).streamCut},
		{25, (*client).elicits, (*client).ask},
		{15, nil, (*client).cancelled},
		{15, nil, (*client).list},
		{30, nil, (*client).read},
		{30, nil, (*client).touch},
		{5, (*client).reconnects, (*client).reconnect},
		{4, (*client).network, (*client).abandon},
		{3, (*client).kills, (*client).kill},
	}
}

// step makes one operation, chosen at random by weight, and returns the number of its calls.
func (c *client) step(ctx context.Context) int {
	if c.conn != nil && c.combination.transport == overMemory && c.generation != c.soak.memory.Load() {
		c.disconnect() // the server was replaced
	}
	if c.conn == nil {
		c.connect(ctx)
		return 1
	}
	total := 0
	for _, o := range c.soak.operations {
		if o.suits == nil || o.suits(c) {
			total += o.weight
		}
	}
	n := rand.IntN(total)
	for _, o := range c.soak.operations {
		if o.suits != nil && !o.suits(c) {
			continue
		}
		if n -= o.weight; n < 0 {
			return o.run(c, ctx)
		}
	}
	return 1
}

func (c *client) resumes() bool {
	return c.combination.transport == overHTTP && c.revision == "2025-11-25"
}

func (c *client) elicits() bool { return c.revision >= "2025-06-18" }

func (c *client) reconnects() bool { return !c.steady }

func (c *client) kills() bool { return c.combination.transport == overStdio && !c.steady }

// callTool calls a tool and checks that the text of its result starts with want.
func (c *client) callTool(ctx context.Context, tool string, args any, want string) (*mcp.CallToolResult, error) {
	res, err := c.conn.CallTool(ctx, tool, args)
	switch {
	case err != nil:
		return nil, err
	case res == nil:
		return nil, wrong("%s: got neither a result nor an error", tool)
	case res.IsError:
		return nil, errors.New("tool error: " + res.Text())
	case !strings.HasPrefix(res.Text(), want):
		return nil, wrong("%s: got %.80q, want %q", tool, res.Text(), want)
	}
	return res, nil
}

// echoOnce checks the answer and the principal that the server took the caller for.
func (c *client) echoOnce(ctx context.Context, nonce string) error {
	want := nonce + " "
	if c.network() {
		want += c.principal()
	}
	res, err := c.callTool(ctx, "echo", nonceArgs{nonce}, want)
	if err == nil && res.Text() != want {
		return wrong("echo: got %q, want %q", res.Text(), want)
	}
	return err
}

func (c *client) echo(ctx context.Context) int {
	for range echoes {
		nonce := c.nonce()
		if c.attempt(ctx, "echo", func(ctx context.Context) error { return c.echoOnce(ctx, nonce) }) != nil {
			break
		}
	}
	return echoes
}

func (c *client) parallel(ctx context.Context) int {
	nonces := make([]string, parallelCalls)
	for i := range nonces {
		nonces[i] = c.nonce()
	}
	err := c.attempt(ctx, "parallel", func(ctx context.Context) error {
		errs := make([]error, parallelCalls)
		var all sync.WaitGroup
		for i, nonce := range nonces {
			all.Go(func() { errs[i] = c.echoOnce(ctx, nonce) })
		}
		all.Wait()
		return errors.Join(errs...)
	})
	if err == nil {
		c.soak.results.calls.Add(parallelCalls - 1)
	}
	return parallelCalls
}

func (c *client) large(ctx context.Context) int {
	nonce := c.nonce()
	_ = c.attempt(ctx, "large", func(ctx context.Context) error {
		res, err := c.callTool(ctx, "large", nonceArgs{nonce}, nonce+" x")
		if err == nil && len(res.Text()) != len(nonce)+1+largeSize {
			return wrong("large: got %d bytes", len(res.Text()))
		}
		return err
	})
	return 1
}

func (c *client) stream(ctx context.Context) int {
	c.streamWith(ctx, "stream", streamArgs{Nonce: c.nonce(), Events: streamEvents}, nil)
	return 1
}

// streamClosed has the server close the stream, which the client resumes. It is no fault.
func (c *client) streamClosed(ctx context.Context) int {
	c.streamWith(ctx, "stream closed", streamArgs{Nonce: c.nonce(), Events: streamEvents, Close: true}, nil)
	return 1
}

// streamCut resets the connections of the client in the middle of a stream. In sessions the client
// resumes it.
func (c *client) streamCut(ctx context.Context) int {
	f := c.faults
	c.streamWith(ctx, "stream cut", streamArgs{Nonce: c.nonce(), Events: streamEvents}, func() { f.cutAll(false) })
	return 1
}

// streamWith checks that progress rises and stops at the result. It calls middle after two
// notifications.
func (c *client) streamWith(ctx context.Context, kind string, args streamArgs, middle func()) {
	var over atomic.Bool
	var mu sync.Mutex
	last, seen, bad := 0.0, 0, ""
	progress := func(p mcp.ProgressUpdate) {
		mu.Lock()
		defer mu.Unlock()
		if over.Load() {
			c.soak.fail("%v: %s: progress after the result", c.combination, kind)
		}
		if p.Progress <= last {
			bad = "progress does not rise"
		}
		last = p.Progress
		if seen++; seen == 2 && middle != nil {
			go middle() // ends at once
		}
	}
	_ = c.attempt(ctx, kind, func(ctx context.Context) error {
		ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{Progress: progress})
		_, err := c.callTool(ctx, "stream", args, args.Nonce)
		over.Store(err == nil)
		mu.Lock()
		defer mu.Unlock()
		if bad != "" {
			return wrong("stream: %s", bad)
		}
		return err
	})
}

func (c *client) ask(ctx context.Context) int {
	nonce := c.nonce()
	_ = c.attempt(ctx, "ask", func(ctx context.Context) error {
		_, err := c.callTool(ctx, "ask", nonceArgs{nonce}, nonce+" "+nonce)
		return err
	})
	return 1
}

// cancelled cancels a call that runs for a second.
func (c *client) cancelled(ctx context.Context) int {
	nonce := c.nonce()
	_ = c.attempt(ctx, "cancelled", func(ctx context.Context) error {
		began, stalled := time.Now(), c.soak.stalls.sum()
		short, cancel := context.WithCancel(ctx)
		defer time.AfterFunc(rand.N(30*time.Millisecond), cancel).Stop()
		_, err := c.callTool(short, "slow", nonceArgs{nonce}, nonce)
		took := time.Since(began)
		switch {
		case err == nil && took < slowTime:
			return wrong("slow: a result after %v", took)
		case took > slowTime+callGrace+c.soak.stalls.sum()-stalled:
			return wrong("slow: the cancelled call returned after %v", took)
		case errors.Is(err, context.Canceled) && ctx.Err() == nil:
			return nil
		}
		return err
	})
	return 1
}

// list lists the tools, over several pages.
func (c *client) list(ctx context.Context) int {
	_ = c.attempt(ctx, "list", func(ctx context.Context) error {
		ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{NoCache: true})
		names := map[string]bool{}
		for tool, err := range c.conn.Tools(ctx) {
			if err != nil {
				return err
			}
			names[tool.Name] = true
		}
		want := listedTools
		if c.combination.transport == overStdio {
			want++ // exit
		}
		if len(names) != want {
			return wrong("list: got %d tools, want %d", len(names), want)
		}
		return nil
	})
	return 1
}

func (c *client) read(ctx context.Context) int {
	_ = c.attempt(ctx, "read", func(ctx context.Context) error {
		res, err := c.conn.ReadResource(ctx, c.uri())
		if err != nil {
			return err
		}
		want := "resource " + strings.TrimPrefix(c.uri(), "soak://client/")
		if len(res.Contents) != 1 || res.Contents[0].Text != want {
			return wrong("read: got %d contents, want %q", len(res.Contents), want)
		}
		return nil
	})
	return 1
}

// touch changes the resource of the client, and waits for the notification.
func (c *client) touch(ctx context.Context) int {
	sub := c.sub
	began, ready, stalled := time.Now(), sub.ready(), c.soak.stalls.sum()
	select {
	case <-sub.events: // of the past
	default:
	}
	err := c.attempt(ctx, "touch", func(ctx context.Context) error {
		_, err := c.callTool(ctx, "touch", touchArgs{c.uri()}, c.uri())
		return err
	})
	if err != nil || !ready {
		return 1
	}
	for time.Since(began) < notifyTimeout+c.soak.stalls.sum()-stalled {
		select {
		case <-sub.events:
			c.soak.results.record(c.combination, "notification", "ok")
			return 1
		case <-time.After(50 * time.Millisecond):
		}
		if !sub.ready() || ctx.Err() != nil || c.network() && c.soak.restarted.since(began) {
			c.soak.results.record(c.combination, "notification", "interrupted")
			return 1
		}
	}
	c.soak.fail("%v: no notification %v after touch", c.combination, time.Since(began))
	return 1
}

// reconnect closes the connection as programs should; the next step connects.
func (c *client) reconnect(context.Context) int {
	c.disconnect()
	return 1
}

// abandon disappears without ending the session.
func (c *client) abandon(context.Context) int {
	c.faults.cutAll(true)
	c.disconnect()
	return 1
}

// kill ends the child while a call runs. The next call starts another child.
func (c *client) kill(ctx context.Context) int {
	nonce := c.nonce()
	var other sync.WaitGroup
	c.faults.add()
	other.Go(func() {
		short, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		_, _ = c.conn.CallTool(short, "exit", nil)
	})
	_ = c.attempt(ctx, "kill", func(ctx context.Context) error {
		_, err := c.callTool(ctx, "slow", nonceArgs{nonce}, nonce)
		return err
	})
	other.Wait()
	c.faults.add()
	return 1
}
