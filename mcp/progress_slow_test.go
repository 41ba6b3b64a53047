package mcp_test

import (
	"bufio"
	"context"
	stdjson "encoding/json"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Requirement: PROG-05
func TestAClientThatKeepsUpReceivesEveryNotification(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const notifications = 5000
	s := newServer(t, nil)
	addTool(s, "flood", func(ctx context.Context) (string, error) {
		for i := range notifications {
			mcp.Progress(ctx, float64(i), notifications, "")
		}
		return "", nil
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		if got := len(callWithProgress(t, c, "flood", 1)); got != notifications {
			t.Errorf("got %d notifications, want %d", got, notifications)
		}
	})
}

// The client reads ten messages per second, of a call that reports a thousand.
//
// Requirement: PROG-05
func TestNotificationsToASlowClientAreMerged(t *testing.T) {
	for _, revision := range append(sessionRevisions, mcptest.Modern) {
		t.Run(revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { mergeForSlowClient(t, revision) })
		})
	}
}

func mergeForSlowClient(t *testing.T, revision string) {
	const notifications, runs, pause = 10_000, 10 * time.Second, 100 * time.Millisecond
	var took time.Duration
	s := newServer(t, nil)
	addTool(s, "slow", func(ctx context.Context) (string, error) {
		began := time.Now()
		for i := range notifications {
			mcp.Progress(ctx, float64(i+1), notifications, "")
			time.Sleep(runs / notifications)
		}
		took = time.Since(began)
		return "", nil
	})
	in, w := io.Pipe()
	r, out := io.Pipe()
	served := make(chan error, 1)
	conn := mcp.NewStreamConn(in, out, nil)
	go func() {
		served <- mcp.Serve(t.Context(), s, conn, &mcp.ServeOptions{Logger: slog.New(slog.DiscardHandler)})
	}()
	const token = `"progressToken":"p"`
	lines := bufio.NewReaderSize(r, 16)
	if revision == mcptest.Modern {
		io.WriteString(w, modernRequestLine(`1`, "tools/call", `"name":"slow",`, `,`+token)+"\n")
	} else {
		io.WriteString(w, sessionRequest(`0`, "initialize", `{"protocolVersion":"`+revision+`","capabilities":{},`+
			`"clientInfo":{"name":"c","version":"1"}}`)+"\n")
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, sessionRequest(`1`, "tools/call", `{"name":"slow","_meta":{`+token+`}}`)+"\n")
	}
	received, last := 0, 0
	for {
		text, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			ID     stdjson.RawMessage
			Params struct{ Progress int }
		}
		if err := stdjson.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		if m.ID != nil {
			break
		}
		if m.Params.Progress <= last {
			t.Errorf("progress %d after %d, want a higher one", m.Params.Progress, last)
		}
		received, last = received+1, m.Params.Progress
		time.Sleep(pause)
	}
	if last != notifications {
		t.Errorf("the last progress is %d, want %d", last, notifications)
	}
	if received < 10 || received > 30 {
		t.Errorf("got %d notifications, want a tenth of the %v that the client would take", received, runs)
	}
	if limit := runs + runs/5; took > limit {
		t.Errorf("the call took %v, want at most %v: the client must not delay it", took, limit)
	}
	w.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
