package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const (
	progressed = "notifications/progress"
	logged     = "notifications/message"
)

type progressParams struct {
	ProgressToken   json.RawMessage
	Progress, Total *float64
	Message         *string
}

// callWithProgress calls a tool with a progress token and returns its progress notifications.
func callWithProgress(t *testing.T, c *mcptest.Client, tool string, token any) []progressParams {
	t.Helper()
	before := len(c.Notifications(progressed))
	c.Call("tools/call", object{"name": tool, "_meta": object{"progressToken": token}})
	var notes []progressParams
	for _, n := range c.Notifications(progressed)[before:] {
		notes = append(notes, decode[progressParams](t, n.Params))
	}
	return notes
}

// Requirement: PROG-02, PROG-03
func TestProgressRisesAndPrecedesTheResult(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "steps", func(ctx context.Context) (string, error) {
		for i := range 500 {
			mcp.Progress(ctx, float64(i+1), 500, "step")
			mcp.Progress(ctx, float64(i), 500, "back") // not more than before: dropped
		}
		return "done", nil
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		notes := callWithProgress(t, c, "steps", "p1")
		if len(notes) != 500 {
			t.Fatalf("got %d progress notifications before the result, want 500", len(notes))
		}
		for i, p := range notes {
			if string(p.ProgressToken) != `"p1"` || *p.Progress != float64(i+1) || *p.Total != 500 {
				t.Fatalf("notification %d: got %+v, want token \"p1\" and %d of 500", i, p, i+1)
			}
			if (p.Message != nil) != c.Since("2025-03-26") { // PROG-06
				t.Fatalf("notification %d: got message present %v, want %v", i, p.Message != nil, c.Since("2025-03-26"))
			}
		}
		callTool(t, c, "steps", nil)
		if got := len(c.Notifications(progressed)); got != 500 {
			t.Errorf("got %d progress notifications without a token, want 0", got-500)
		}
	})
}

// Integers are written without an exponent up to 1e21.
func TestProgressNumbersAreWrittenWithoutLoss(t *testing.T) {
	rising := []float64{
		-1e21, -3, math.Copysign(0, -1), 1e-7, 0.25, 1, 1.5, 1 << 52, 1<<53 - 1, 1 << 53, 1<<53 + 2, 1e20, 1e21, math.MaxFloat64,
	}
	const want = `-1e+21 -3 -0 1e-07 0.25 1 1.5 4503599627370496 9007199254740991 9007199254740992 9007199254740994 ` +
		`100000000000000000000 1e+21 1.7976931348623157e+308`
	s := newServer(t, nil)
	addTool(s, "count", func(ctx context.Context) (string, error) {
		for _, done := range rising {
			mcp.Progress(ctx, done, 0, "")
		}
		return "done", nil
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		c.Call("tools/call", object{"name": "count", "_meta": object{"progressToken": 1}})
		var got []string
		for _, n := range c.Notifications(progressed) {
			got = append(got, string(decode[struct{ Progress json.RawMessage }](t, n.Params).Progress))
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// Requirement: PROG-01
func TestTokensKeepTheirType(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "half", func(ctx context.Context) (string, error) {
		mcp.Progress(ctx, 0.5, 0, "")
		mcp.Progress(ctx, math.NaN(), 1, "nonsense")
		mcp.Progress(ctx, math.Inf(1), 1, "nonsense")
		mcp.Progress(ctx, 12_345_678, math.Inf(1), "")
		mcp.Progress(ctx, 1e300, 0, "")
		return "", nil
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for _, token := range []string{`"7"`, `7`, `""`, `9007199254740993`, `-1`, `"\u00e9\""`} {
			notes := callWithProgress(t, c, "half", json.RawMessage(token))
			if len(notes) != 3 {
				t.Fatalf("got %d notifications, want 3", len(notes))
			}
			want := decode[any](t, json.RawMessage(token))
			for i, p := range notes {
				if got := decode[any](t, p.ProgressToken); got != want || p.Total != nil || p.Message != nil {
					t.Errorf("token %s: got %s, total %v, message %v", token, p.ProgressToken, p.Total, p.Message)
				}
				if got := *p.Progress; got != []float64{0.5, 12_345_678, 1e300}[i] {
					t.Errorf("progress: got %v", got)
				}
			}
		}
		if text := string(c.Notifications(progressed)[1].Params); !strings.Contains(text, "12345678") {
			t.Errorf("got %s, want 12345678 in it", text)
		}
		for _, token := range []string{`1.5`, `true`, `{}`, `[]`} {
			_, err := c.Try("tools/call", object{"name": "half", "_meta": object{"progressToken": json.RawMessage(token)}})
			wantCode(t, "token "+token, err, mcp.CodeInvalidParams)
		}
	})
}

// A handler may start a goroutine that uses its context after the result.
//
// Requirement: PROG-04
func TestNothingFollowsTheResult(t *testing.T) {
	s := newServer(t, nil)
	var late func()
	addTool(s, "leave", func(ctx context.Context) (string, error) {
		log := mcp.Logger(ctx)
		late = func() {
			mcp.Progress(ctx, 1, 1, "late")
			log.Error("late")
		}
		return "", nil
	})
	on := &mcptest.Options{LogLevel: "debug"}
	mcptest.RunOn(t, s, mcptest.Combinations(), on, func(t *testing.T, c *mcptest.Client) {
		callWithProgress(t, c, "leave", 1)
		late()
		synctest.Wait()
		if got := c.Notifications(); len(got) > 0 {
			t.Errorf("got %s %s after the result, want nothing", got[0].Method, got[0].Params)
		}
	})
}

// Notifications of concurrent calls carry the token of their own request, also on one stream.
//
// Requirement: PROG-09
func TestProgressBelongsToItsRequest(t *testing.T) {
	s := newServer(t, nil)
	type countIn struct {
		From int `json:"from"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "count"}, func(ctx context.Context, in countIn) (string, error) {
		for i := range 20 {
			mcp.Progress(ctx, float64(in.From+i), 0, "")
			time.Sleep(time.Millisecond)
		}
		return "", nil
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		var calls []*mcptest.Pending
		for i := range 10 {
			calls = append(calls, c.Send("tools/call", object{
				"name": "count", "arguments": object{"from": 100 * i}, "_meta": object{"progressToken": i},
			}))
		}
		for _, p := range calls {
			if m := p.Wait(); m.Error != nil {
				t.Error(m.Error)
			}
		}
		counts := map[string]float64{}
		for _, n := range c.Notifications(progressed) {
			p := decode[progressParams](t, n.Params)
			token := string(p.ProgressToken)
			var want float64
			fmt.Sscan(token, &want)
			if want = want*100 + counts[token]; *p.Progress != want {
				t.Fatalf("token %s: got %v, want %v", token, *p.Progress, want)
			}
			counts[token]++
		}
		if len(counts) != 10 || counts["3"] != 20 {
			t.Errorf("got %v, want 20 notifications for each of 10 tokens", counts)
		}
	})
}

// Requirement: LOG-02, LOG-06
func TestLoggerHonoursTheRequestedLevel(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "log", func(ctx context.Context) (string, error) {
		log := mcp.Logger(ctx)
		log.Debug("quiet")
		log.With("who", "me").WithGroup("g").Warn("loud", "n", 1, "err", errors.New("oops"), "took", time.Second)
		return "", nil
	})
	mcptest.RunOn(t, s, mcptest.Combinations(), &mcptest.Options{LogLevel: "warning"}, func(t *testing.T, c *mcptest.Client) {
		callTool(t, c, "log", nil)
		notes := c.Notifications(logged)
		if len(notes) != 1 {
			t.Fatalf("got %d messages, want 1", len(notes))
		}
		const want = `{"level":"warning","data":{"g":{"err":"oops","n":1,"took":"1s"},"msg":"loud","who":"me"}}`
		if got := string(notes[0].Params); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// Requirement: LOG-10
func TestSlogLevelsMapToProtocolLevels(t *testing.T) {
	levels := map[slog.Level]string{
		slog.LevelDebug - 4: "debug", slog.LevelDebug: "debug", slog.LevelDebug + 1: "debug", slog.LevelInfo: "info",
		slog.LevelInfo + 2: "notice", slog.LevelWarn: "warning", slog.LevelError: "error", slog.LevelError + 4: "critical",
		slog.LevelError + 8: "alert", slog.LevelError + 12: "emergency", slog.LevelError + 100: "emergency",
	}
	s := newServer(t, nil)
	addTool(s, "log", func(ctx context.Context) (string, error) {
		for level := slog.Level(-8); level < 120; level++ {
			if name, ok := levels[level]; ok {
				mcp.Logger(ctx).Log(ctx, level, name)
			}
		}
		return "", nil
	})
	type params struct{ Level, Data string }
	for lowest, from := range map[string]int{
		"debug": 0, "info": 2, "notice": 3, "warning": 4, "error": 5, "critical": 6, "alert": 7, "emergency": 8,
	} {
		on := []mcptest.Combination{{Transport: mcptest.InMemory, Revision: "2025-06-18"}, {Transport: mcptest.HTTP, Revision: mcptest.Modern}}
		mcptest.RunOn(t, s, on, &mcptest.Options{LogLevel: lowest}, func(t *testing.T, c *mcptest.Client) {
			callTool(t, c, "log", nil)
			notes := c.Notifications(logged)
			if len(notes) != 10-from { // the level below debug is never sent
				t.Errorf("%s: %d messages, want %d", lowest, len(notes), 10-from)
			}
			for _, n := range notes {
				if p := decode[params](t, n.Params); p.Level != p.Data {
					t.Errorf("%s: got %s", p.Data, p.Level)
				}
			}
		})
	}
}

// Requirement: LOG-03, LOG-05
func TestMessagesWithoutARequestedLevel(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "log", func(ctx context.Context) (string, error) {
		mcp.Logger(ctx).Debug("debug")
		mcp.Logger(ctx).Info("info")
		return fmt.Sprint(mcp.Logger(ctx).Enabled(ctx, slog.LevelError)), nil
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		res := callTool(t, c, "log", nil)
		notes := c.Notifications(logged)
		if c.Modern() {
			if len(notes) > 0 || res.text() != "false" {
				t.Errorf("got %d messages and Enabled %s, want none", len(notes), res.text())
			}
			return
		}
		if len(notes) != 1 { // LOG-03: this server sends info and above
			t.Errorf("got %d messages, want 1", len(notes))
		}
	})
}

// Requirement: LOG-04
func TestUnknownLevelsAreInvalidParams(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "log", func(context.Context) (string, error) { return "", nil })
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for _, level := range []any{"loud", "", "Debug", 3} {
			var err *jsonrpc.Error
			if c.Modern() { // META-18
				_, err = c.Try("tools/call", object{"name": "log", "_meta": object{"io.modelcontextprotocol/logLevel": level}})
			} else {
				_, err = c.Try("logging/setLevel", object{"level": level})
			}
			wantCode(t, fmt.Sprint(level), err, mcp.CodeInvalidParams)
		}
	})
}

// An attribute that cannot be encoded affects only its own message.
//
// Requirement: LOG-10
func TestAttributesOfEveryKind(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "log", func(ctx context.Context) (string, error) {
		log := mcp.Logger(ctx)
		log.Info("plain")
		log.Info("nothing", slog.Group("empty"))
		log.WithGroup("").With().Info("inline", slog.Group("", "a", 1))
		log.WithGroup("a").With("x", 1).WithGroup("b").Info("nested", "y", 2, "x", 3)
		log.Info("twice", "k", 1, "k", 2)
		log.Info("no JSON", "c", make(chan int))
		log.Info("bad", "!", math.NaN())
		log.Info("breaks", "v", panicsWhenEncoded{})
		return "", nil
	})
	mcptest.RunOn(t, s, mcptest.Combinations(), &mcptest.Options{LogLevel: "debug"}, func(t *testing.T, c *mcptest.Client) {
		_, err := c.Try("tools/call", object{"name": "log"})
		wantCode(t, "an attribute that panics", err, mcp.CodeInternalError)
		var got []string
		for _, n := range c.Notifications(logged) {
			got = append(got, string(decode[struct{ Data json.RawMessage }](t, n.Params).Data))
		}
		want := []string{
			`"plain"`,
			`"nothing"`,
			`{"a":1,"msg":"inline"}`,
			`{"a":{"b":{"x":3,"y":2},"x":1},"msg":"nested"}`,
			`{"k":2,"msg":"twice"}`,
			`"no JSON"`,
			`"bad"`,
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

type panicsWhenEncoded struct{}

func (panicsWhenEncoded) MarshalJSON() ([]byte, error) { panic("secret") }

func TestProgressAndLoggerOutsideOfAHandler(t *testing.T) {
	mcp.Progress(t.Context(), 1, 2, "x")
	mcp.Logger(t.Context()).With("a", 1).WithGroup("g").Error("x")
	if mcp.RequestFrom(t.Context()) != nil {
		t.Error("RequestFrom: got a request, want nil")
	}
}
