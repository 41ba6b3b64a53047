package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

const (
	largeSize  = 100 << 10
	pageSize   = 20
	extraTools = 60 // so that the list has several pages
)

// nonceArgs are the arguments of most tools. The result starts with the nonce.
type nonceArgs struct {
	Nonce string `json:"nonce"`
}

type streamArgs struct {
	Nonce  string `json:"nonce"`
	Events int    `json:"events"`
	Close  bool   `json:"close"` // the server closes the stream in the middle; the client resumes it
}

type touchArgs struct {
	URI string `json:"uri"`
}

type resourceVars struct {
	ID string `json:"id"`
}

// slowCalls is the number of slow calls that run.
var slowCalls atomic.Int64

// newServer returns the server under test. All transports serve the same tools.
func newServer() *mcp.Server {
	s := mcp.NewServer("soak", "1.0.0", &mcp.ServerOptions{PageSize: pageSize, Logger: newLogger()})
	large := strings.Repeat("x", largeSize)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(ctx context.Context, in nonceArgs) (string, error) {
		return in.Nonce + " " + subject(ctx), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "large"}, func(_ context.Context, in nonceArgs) (string, error) {
		return in.Nonce + " " + large, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "stream"}, stream)
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, ask)
	mcp.AddTool(s, &mcp.Tool{Name: "slow"}, slow)
	mcp.AddTool(s, &mcp.Tool{Name: "touch"}, func(_ context.Context, in touchArgs) (string, error) {
		s.ResourceUpdated(in.URI)
		return in.URI, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "measure"}, func(context.Context, struct{}) (sample, error) {
		return measureQuiet(), nil
	})
	for i := range extraTools {
		mcp.AddTool(s, &mcp.Tool{Name: fmt.Sprintf("extra-%02d", i)}, func(context.Context, nonceArgs) (string, error) {
			return "extra", nil
		})
	}
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "soak://client/{id}", Name: "client"},
		func(_ context.Context, vars resourceVars) (string, error) { return "resource " + vars.ID, nil })
	return s
}

// listedTools is the number of tools that newServer offers.
const listedTools = 7 + extraTools

func subject(ctx context.Context) string {
	if p := mcp.PrincipalFrom(ctx); p != nil {
		return p.Subject
	}
	return ""
}

func stream(ctx context.Context, in streamArgs) (string, error) {
	for i := range in.Events {
		mcp.Progress(ctx, float64(i+1), float64(in.Events), "")
		if in.Close && i == in.Events/2 {
			_ = mcphttp.CloseStream(ctx, 20*time.Millisecond) // unsupported before 2025-11-25 and after it
		}
		if sleep(ctx, 3*time.Millisecond) != nil {
			return "", context.Cause(ctx)
		}
	}
	return in.Nonce, nil
}

func ask(ctx context.Context, in nonceArgs) (string, error) {
	answer, err := mcp.Ask[string](ctx, "answer", in.Nonce, nil)
	return in.Nonce + " " + answer, err
}

func slow(ctx context.Context, in nonceArgs) (string, error) {
	slowCalls.Add(1)
	defer slowCalls.Add(-1)
	if sleep(ctx, slowTime) != nil {
		return "", context.Cause(ctx)
	}
	return in.Nonce, nil
}

// slowTime is how long a slow call runs that is not cancelled.
const slowTime = time.Second

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serveStdio is a server on standard input and output. The tool exit ends the process abruptly.
func serveStdio() error {
	s := newServer()
	mcp.AddTool(s, &mcp.Tool{Name: "exit"}, func(context.Context, struct{}) (string, error) {
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		return "", err
	})
	return s.Run(context.Background(), mcp.Stdio())
}

// newLogger returns a logger of errors: warnings about refused requests are expected.
func newLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}
