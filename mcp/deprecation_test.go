package mcp_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Requirement: DEP-02, DEP-03
func TestDeprecatedFeaturesWorkAndAreWarnedAboutOnce(t *testing.T) {
	for _, on := range mcptest.Combinations() {
		var log bytes.Buffer
		s := newServer(t, &mcp.ServerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		addTool(s, "all", func(ctx context.Context) (string, error) {
			mcp.Logger(ctx).Error("x")
			if _, err := mcp.Roots(ctx); err != nil {
				return "", err
			}
			p := &mcp.CreateMessageParams{MaxTokens: 1, Messages: []mcp.SamplingMessage{
				{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("x")}}}}
			if _, err := mcp.Sample(ctx, "s", p); err != nil {
				return "", err
			}
			return "done", nil
		})
		opts := &mcptest.Options{LogLevel: "debug"}
		mcptest.RunOn(t, s, []mcptest.Combination{on}, opts, func(t *testing.T, c *mcptest.Client) {
			for range 3 {
				if got := callTool(t, c, "all", nil).text(); got != "done" {
					t.Errorf("got %q, want done", got)
				}
			}
			want := 0
			if c.Modern() {
				want = 1
			}
			for _, feature := range []string{"sampling", "roots", `"log messages"`} {
				if got := strings.Count(log.String(), "feature="+feature); got != want {
					t.Errorf("%d warnings about %s, want %d:\n%s", got, feature, want, &log)
				}
			}
		})
	}
}

// Requirement: DEP-03
func TestClientWarnsOnceAboutEachDeprecatedFeature(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "all", func(ctx context.Context) (string, error) {
		mcp.Logger(ctx).Error("x")
		if _, err := mcp.Roots(ctx); err != nil {
			return "", err
		}
		p := &mcp.CreateMessageParams{MaxTokens: 1, Messages: []mcp.SamplingMessage{
			{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("x")}}}}
		_, err := mcp.Sample(ctx, "s", p)
		return "done", err
	})
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log lockedBuffer
				var logged atomic.Int32
				c, err := mcp.Connect(t.Context(), mcptest.Transport(t, s, on.Transport), &mcp.ClientOptions{
					Revision: on.Revision, Logger: slog.New(slog.NewTextHandler(&log, nil)),
					Roots: func(context.Context) ([]mcp.Root, error) { return []mcp.Root{{URI: "file:///x"}}, nil },
					Sample: func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
						return &mcp.CreateMessageResult{Content: []mcp.ContentBlock{mcp.Text("x")}, Model: "m"}, nil
					},
					Log: func(context.Context, *mcp.LoggingMessage) { logged.Add(1) },
				})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if log.String() != "" {
					t.Errorf("warnings without use:\n%s", &log)
				}
				for range 2 {
					if got, err := mcp.CallTool[string](t.Context(), c, "all", nil); err != nil || got != "done" {
						t.Fatalf("got %q, %v, want done", got, err)
					}
				}
				synctest.Wait()
				want := 0
				if on.Modern() {
					want = 1
				}
				for _, feature := range []string{"sampling", "roots", `"log messages"`} {
					if got := strings.Count(log.String(), "feature="+feature); got != want || logged.Load() == 0 {
						t.Errorf("%d warnings about %s after %d messages, want %d:\n%s", got, feature, logged.Load(), want, &log)
					}
				}
			})
		})
	}
}

// Requirement: DEP-03
func TestClientWarnsAboutEnumNames(t *testing.T) {
	for revision, want := range map[string]int{"2025-06-18": 0, "2025-11-25": 1} {
		var log lockedBuffer
		answerInSession(t, &mcp.ClientOptions{Revision: revision, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
			},
		}, "elicitation/create", `{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string",`+
			`"enum":["x"],"enumNames":["X"]}}}}`)
		if got := strings.Count(log.String(), "feature=enumNames"); got != want {
			t.Errorf("%s: %d warnings, want %d:\n%s", revision, got, want, &log)
		}
	}
}
