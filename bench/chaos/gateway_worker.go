//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

const (
	// callDeadline is by when a call must have ended: 5 seconds for a start that is delayed, 3 for the
	// start, and 4 for the request; see serverSettings.
	callDeadline = 12 * time.Second
	// listDeadline is that of a list, for which the gateway waits 5 seconds for each server, all at a
	// time, and connectDeadline that of a connection.
	listDeadline    = 8 * time.Second
	connectDeadline = 8 * time.Second
	// clientTimeout is when a client ends a request itself: too late. The deadlines are the gateway's.
	clientTimeout = 20 * time.Second
	// holdTime is the length of a fault within which every request must have ended.
	holdTime     = callDeadline + grace + time.Second
	largePadding = 300 << 10 // of the arguments and the result of a large call
	cancelTime   = 80 * time.Millisecond
)

// downstreams are the revisions of the clients of each principal. The oldest uses HTTP+SSE.
var downstreams = []string{"2026-07-28", "2025-11-25", "2026-07-28", "2025-06-18", "2024-11-05"}

// gatewayPrincipals is how many of the principals call the gateway.
const gatewayPrincipals = 3

// A gatewayWorker is one client of the gateway. It makes one call after the other.
type gatewayWorker struct {
	*gatewayRun
	number    int
	principal string
	revision  string
	random    *rand.Rand
	nonces    int
	client    *mcp.Client
	http      *http.Transport
	leave     atomic.Pointer[context.CancelFunc] // of a call whose question is not answered; nil for none
}

func (s *gatewayRun) newWorker(number int, seed uint64) *gatewayWorker {
	return &gatewayWorker{
		gatewayRun: s, number: number, principal: principals[number/len(downstreams)%gatewayPrincipals],
		revision: downstreams[number%len(downstreams)], random: rand.New(rand.NewPCG(seed, uint64(number))),
		http: &http.Transport{MaxIdleConnsPerHost: 4},
	}
}

// run makes calls until ctx ends.
func (w *gatewayWorker) run(ctx context.Context) {
	defer w.disconnect()
	for ctx.Err() == nil {
		if w.random.IntN(80) == 0 {
			w.disconnect()
		}
		if w.connect(ctx) {
			w.call(ctx)
		}
		w.pause(ctx)
	}
}

func (w *gatewayWorker) pause(ctx context.Context) {
	select {
	case <-time.After(time.Duration(w.random.Int64N(int64(2 * maxPause)))):
	case <-ctx.Done():
	}
}

// RoundTrip sends a request. Clients of 2024-11-05 find that the gateway serves HTTP+SSE only.
func (w *gatewayWorker) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.revision == "2024-11-05" && r.Method == http.MethodPost && r.URL.RawQuery == "" {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
		return &http.Response{Status: "405", StatusCode: http.StatusMethodNotAllowed, Proto: "HTTP/1.1", ProtoMajor: 1,
			ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	return w.http.RoundTrip(r)
}

// connect connects if there is no connection, and reports whether there is one.
func (w *gatewayWorker) connect(ctx context.Context) bool {
	if w.client != nil {
		return true
	}
	log := slog.New(slog.DiscardHandler)
	transport := mcphttp.NewTransport(w.proxy.url()+"/mcp", &mcphttp.TransportOptions{
		Client: &http.Client{Transport: w}, Logger: log,
		Header: http.Header{"Authorization": {"Bearer " + tokenOf(w.principal)}},
	})
	a := w.begin("connect", "", connectDeadline)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clientTimeout)
	defer cancel()
	client, err := mcp.Connect(ctx, transport, &mcp.ClientOptions{
		Revision: w.revision, Logger: log, Timeout: clientTimeout, MaxTimeout: clientTimeout, Log: w.logged,
		Elicit: w.elicit, ElicitationsPerMinute: 1e6,
	})
	w.end(a, nil, err)
	if err == nil {
		w.client = client
	}
	return err == nil
}

func (w *gatewayWorker) disconnect() {
	if w.client != nil {
		_ = w.client.Close() // an error says that the session could not be deleted
		w.client = nil
	}
	w.http.CloseIdleConnections()
}

func (w *gatewayWorker) begin(op, nonce string, timeout time.Duration) *attempt {
	a := attempt{Worker: w.number, Principal: w.principal, Era: w.revision, Op: op, Nonce: nonce}
	return w.history.begin(a, timeout)
}

// end records the end of an attempt.
func (w *gatewayWorker) end(a *attempt, res *mcp.CallToolResult, err error) {
	a.Outcome, a.Error, a.Detail = classifyGateway(res, err)
	if res != nil && a.Outcome == answered {
		a.Got = brief(res.Text())
	}
	w.history.end(a)
}

// brief shortens the padding of a result, so that the history stays readable.
func brief(text string) string {
	if n := len(text); n > 200 && strings.Trim(text[n-largePadding:], "x") == "" {
		return fmt.Sprint(text[:n-largePadding], largePadding)
	}
	return text
}

// A hostError is the part of an error of the gateway that clients may rely on.
type hostError struct {
	Code       string `json:"code"`
	Server     string `json:"server"`
	MayHaveRun *bool  `json:"mayHaveRun"`
}

// classifyGateway returns the outcome of a call, the name of its error, and its text.
func classifyGateway(res *mcp.CallToolResult, err error) (o outcome, kind, text string) {
	var fault *mcp.Error
	switch {
	case err == nil && (res == nil || !res.IsError):
		return answered, "", ""
	case err == nil:
		raw, marked := res.Meta["dev.patchbay/error"]
		if !marked {
			return failed, "tool error", res.Text()
		}
		encoded, _ := json.Marshal(raw)
		o, kind = classifyHost(encoded)
		return o, kind, res.Text()
	case errors.As(err, &fault) && len(fault.Data) > 0:
		if o, kind = classifyHost(fault.Data); o != untyped {
			return o, kind, err.Error()
		}
	case errors.As(err, &fault) && strings.HasPrefix(fault.Message, "unknown tool"):
		return unsent, "unknown tool", err.Error()
	case errors.Is(err, context.Canceled):
		return unknown, "cancelled", err.Error()
	}
	o, kind = classify(err)
	return o, kind, err.Error()
}

func classifyHost(data []byte) (outcome, string) {
	var e hostError
	if json.Unmarshal(data, &e) != nil || e.Code == "" || e.Server == "" || e.MayHaveRun == nil {
		return untyped, "error without members"
	}
	if *e.MayHaveRun {
		return unknown, "gateway: " + e.Code
	}
	return unsent, "gateway: " + e.Code
}

// call makes one of the calls at random.
func (w *gatewayWorker) call(ctx context.Context) {
	name := upstreamNames[w.random.IntN(len(upstreamNames))]
	w.nonces++
	nonce := fmt.Sprintf("n%d-%d-%d", w.round.Load(), w.number, w.nonces)
	in := &upstreamArguments{Nonce: nonce, Principal: w.principal}
	want := in.text()
	switch n := w.random.IntN(100); {
	case n < 4:
		w.list(ctx)
	case n < 8 && w.revision == downstreams[0]:
		w.replay(ctx, name, in)
	case n < 40:
		w.attempt(ctx, name, "echo", "echo", in, want)
	case n < 47:
		in.Padding = strings.Repeat("x", largePadding)
		w.attempt(ctx, name, "echo", "large", in, fmt.Sprint(want, " ", largePadding))
	case n < 57:
		in.Millis = 1 + w.random.IntN(100)
		w.attempt(ctx, name, "echo", "cancel", in, want)
	case n < 72 || w.revision < "2025-06-18":
		in.Count, in.Millis = 1+w.random.IntN(streamNotes), w.random.IntN(40)
		w.attempt(ctx, name, "stream", "stream", in, want)
	case n < 75:
		in.Count = 1
		want += " " + wordFor(in.Nonce) // the question may reach another call of the principal, which answers it
		w.attempt(ctx, name, "ask", "leave", in, want)
	default:
		in.Count = 1 + w.random.IntN(2)
		w.attempt(ctx, name, "ask", "ask", in, want+strings.Repeat(" "+wordFor(in.Nonce), in.Count))
	}
}

// list lists the tools. It fails if there is one that no upstream has.
func (w *gatewayWorker) list(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clientTimeout)
	defer cancel()
	a := w.begin("list", "", listDeadline)
	tools, err := mcp.Collect(w.client.Tools(ctx))
	w.end(a, nil, err)
	for _, tool := range tools {
		server, name, _ := strings.Cut(tool.Name, "__")
		if !slices.Contains(upstreamNames, server) || !slices.Contains([]string{"echo", "stream", "ask"}, name) {
			w.history.violate("crossed: a list has an unknown tool", tool.Name)
		}
	}
}

// attempt makes one call and records it. Each call has a nonce of its own.
func (w *gatewayWorker) attempt(ctx context.Context, name, tool, op string, in *upstreamArguments, want string) {
	timeout := callDeadline
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	switch op {
	case "leave":
		w.leave.Store(&cancel)
		defer w.leave.Store(nil)
	case "cancel":
		timeout = time.Duration(w.random.Int64N(int64(cancelTime)))
		stop := time.AfterFunc(timeout, cancel)
		defer stop.Stop()
	}
	ctx, end := context.WithTimeout(ctx, clientTimeout)
	defer end()
	if op == "stream" {
		last := 0.0
		ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{Progress: func(p mcp.ProgressUpdate) {
			w.progressed(in, p, &last)
		}})
	}
	a := w.begin(name+" "+op, in.Nonce, timeout)
	a.Want = want
	res, err := w.client.CallTool(ctx, name+"__"+tool, in)
	w.end(a, res, err)
	if a.Outcome == answered {
		w.answered(w.number, name)
	}
}

// progressed checks the progress of a call. Revisions before 2025-03-26 have no message in it.
func (w *gatewayWorker) progressed(in *upstreamArguments, p mcp.ProgressUpdate, last *float64) {
	w.history.note(note{Stream: in.Nonce, Kind: "progress", Owner: w.principal, For: w.principal, N: int64(p.Progress)})
	if p.Message != in.text() && (p.Message != "" || w.revision >= "2025-03-26") {
		w.history.violate("crossed: a call got the progress of another", in.text()+" got "+p.Message)
	}
	if p.Progress <= *last {
		w.history.violate("order: progress does not rise", fmt.Sprint(in.text(), ": ", p.Progress, " after ", *last))
	}
	*last = p.Progress
}

func (w *gatewayWorker) logged(_ context.Context, m *mcp.LoggingMessage) {
	var data struct{ Msg string }
	if err := json.Unmarshal(m.Data, &data); err != nil {
		w.history.violate("crossed: a log message cannot be read", string(m.Data))
		return
	}
	owner, nonce, _ := strings.Cut(data.Msg, " ")
	w.history.note(note{Stream: nonce, Kind: "log", Owner: w.principal, For: owner})
	if owner != w.principal {
		w.history.violate("crossed: a log message reached another principal", data.Msg+" reached "+w.principal)
	}
}

// elicit answers a question, which names its server, the principal and the nonce.
func (w *gatewayWorker) elicit(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	server, text, _ := strings.Cut(p.Message, " ")
	server = strings.Trim(server, "[]")
	owner, nonce, _ := strings.Cut(text, " ")
	w.history.note(note{Stream: nonce, Kind: "question", Owner: w.principal, For: owner})
	switch parts := strings.Split(nonce, "-"); {
	case owner != w.principal || len(parts) != 3:
		w.history.violate("crossed: a question reached another principal", p.Message+" reached "+w.principal)
	case parts[1] != strconv.Itoa(w.number) && server == "s25":
		// A session over stdio does not say which of the calls of one principal asks.
		w.history.note(note{Stream: nonce, Kind: "question of another call of the principal", Owner: owner, For: owner})
	case parts[1] != strconv.Itoa(w.number):
		text := fmt.Sprint(p.Message, " reached worker ", w.number)
		w.history.violate("crossed: a question reached another call", text)
	}
	w.atOpen(server)
	if cancel := w.leave.Load(); cancel != nil {
		(*cancel)() // the caller does not return
	}
	select {
	case <-time.After(rand.N(60 * time.Millisecond)):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if rand.IntN(10) == 0 {
		return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
	}
	content, err := json.Marshal(map[string]string{"value": wordFor(nonce)})
	return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: content}, err
}
