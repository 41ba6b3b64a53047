package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

const (
	// listTimeout bounds the first list, which a server that has connected returns at once.
	listTimeout = 20 * time.Second
	// maxListed bounds the counted items of the first list: a server could continue it without end.
	maxListed = 1000
	// maxAttempts bounds the shown messages of a negotiation, of which a client sends two or three.
	maxAttempts = 8
)

// An attempts records the messages of a client that negotiates the revision.
type attempts struct {
	mu    sync.Mutex // guards the fields below
	lines []string
	sent  map[jsonrpc.ID]string // messages without a response

	declared []string // revisions that the server lists
	chosen   string   // the revision in the response to initialize
}

// frame is for [mcp.Trace].
func (a *attempts) frame(f mcp.Frame) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch m := f.Message; {
	case m == nil || len(a.lines) >= maxAttempts:
	case f.Sent && m.Method == driver.MethodDiscover:
		a.sent[m.ID] = m.Method + " as " + connect.NewestRevision()
	case f.Sent && m.Method == driver.MethodInitialize:
		version, _ := rawjson.Get(m.Params, "protocolVersion")
		a.sent[m.ID] = fmt.Sprintf("%s as %s", m.Method, version)
	case !f.Sent && m.Method == "" && a.sent[m.ID] != "":
		got, ok := rawjson.Get(m.Result, "protocolVersion")
		if ok {
			_ = json.Unmarshal(got, &a.chosen)
		} else if got, ok = rawjson.Get(m.Result, "supportedVersions"); ok {
			_ = json.Unmarshal(got, &a.declared)
		} else if m.Error != nil {
			supported, _ := rawjson.Get(m.Error.Data, "supported")
			_ = json.Unmarshal(supported, &a.declared)
			got = fmt.Appendf(nil, "error %d: %s", m.Error.Code, m.Error.Message)
		}
		a.lines = append(a.lines, fmt.Sprintf("%s -> %s", a.sent[m.ID], got))
		delete(a.sent, m.ID)
	}
}

// next returns the next step if client and server share no revision.
func (a *attempts) next() string {
	offered, ours := a.declared, connect.Revisions() // the newest first
	if a.chosen != "" {
		offered = []string{a.chosen}
	}
	who := "the server or Patchbay"
	switch {
	case len(offered) == 0:
	case slices.Min(offered) > ours[0]:
		who = "Patchbay"
	case slices.Max(offered) < ours[len(ours)-1]:
		who = "the server"
	}
	return fmt.Sprintf("update %s: the server and Patchbay share no protocol revision; Patchbay speaks %s", who,
		strings.Join(ours, ", "))
}

// dial connects a client, and adds its messages to the observations.
func (r *run) dial(ctx context.Context, c *Check, t mcp.Transport) (*mcp.Client, error) {
	opts, err := r.Dialer.ClientOptions(ctx)
	if err != nil {
		return nil, exit.UsageError(err)
	}
	opts.Elicit, opts.ElicitURL, opts.Sample = nil, nil, nil
	opts.Logger = slog.New(slog.DiscardHandler) // its warnings are observations
	limit := r.Dialer.LimitStart(r.target, opts)
	a := &attempts{sent: map[jsonrpc.ID]string{}}
	r.attempts = a
	mcp.Trace(t, a.frame)
	var client *mcp.Client
	err = connect.Within(ctx, limit, func(ctx context.Context) (err error) {
		client, err = mcp.Connect(ctx, t, opts)
		return err
	}, func(error) error { return r.Dialer.NoAnswer(r.target) })
	if err != nil {
		_ = t.Close() // waits for the end of the attempt
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c.Seen = append(c.Seen, a.lines...)
	for _, sent := range slices.Sorted(maps.Values(a.sent)) {
		c.see("%s -> no response", sent)
	}
	return client, err
}

// negotiate connects to a URL with the stored login or the login of this run.
func (w *web) negotiate(ctx context.Context, c *Check) {
	if w.needsLogin() && !w.canLogIn {
		c.see("the server requires a login")
		c.end(Fail, "log in with patchbay auth login %[1]s, with patchbay doctor --login %[1]s, or with Log in of the "+
			"console", w.argument())
		c.ofLogin = true
		return
	}
	opts := &mcphttp.TransportOptions{Header: w.target.Header, Client: w.Dialer.Net.HTTPClient(),
		InsecureHTTP: w.Dialer.Flags.InsecureHTTP || w.target.InsecureHTTP, Logger: slog.New(slog.DiscardHandler)}
	if w.target.Auth != nil {
		if tokens, err := w.target.Auth.Token(ctx); err == nil && tokens != nil {
			w.secrets.add(tokens.AccessToken, tokens.RefreshToken)
		}
		opts.Client = &http.Client{Transport: w.target.Auth}
	}
	client, err := w.dial(ctx, c, mcphttp.NewTransport(w.target.URL, opts))
	if err != nil {
		w.explain(c, err)
		return
	}
	defer w.Dialer.Close(client)
	_ = w.describe(ctx, c, client) // the check shows the error
}

// explain sets the result of a failed negotiation.
func (r *run) explain(c *Check, err error) {
	code := exit.Code(r.ctx, err)
	c.see("%s", exit.Text(code, err))
	switch {
	case errors.Is(err, mcp.ErrNoCommonRevision):
		c.end(Fail, "%s", r.attempts.next())
	case code == exit.Timeout:
		c.end(Fail, "raise --timeout, or look at the log of the server: it does not answer in time")
	case code == exit.Auth:
		c.end(Fail, "log in again: patchbay auth login %s", r.argument())
		c.ofLogin = true
	case code == exit.Protocol:
		c.end(Fail, "correct the server: its response violates the protocol")
	default:
		c.end(Fail, "look at the log of the server")
	}
}

// describe shows the server, requests the first list, and returns the error of the request.
func (r *run) describe(ctx context.Context, c *Check, client *mcp.Client) error {
	info, revision, declared := client.ServerInfo(), client.Revision(), r.attempts.declared
	c.see("%s %s speaks %s", info.Name, info.Version, revision)
	if len(declared) > 0 && !slices.Contains(declared, revision) {
		c.end(Warn, "correct the server: server/discover lists %s, but the response to initialize contains %s, and "+
			"some clients then end the connection", strings.Join(declared, ", "), revision)
	}
	offered := client.Capabilities()
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var n int
	var err error
	kind := "tool"
	switch {
	case offered.Tools != nil:
		n, err = counted(client.Tools(ctx))
	case offered.Resources != nil:
		kind = "resource"
		n, err = counted(client.Resources(ctx))
	case offered.Prompts != nil:
		kind = "prompt"
		n, err = counted(client.Prompts(ctx))
	default:
		c.end(Warn, "declare the capabilities tools, resources or prompts: the server offers none of them")
		return nil
	}
	if err != nil {
		c.see("the list of %ss: %s", kind, exit.Text(exit.Code(ctx, err), err))
		c.end(Fail, "correct the server: it declares %ss and does not list them", kind)
		if e, ok := errors.AsType[*mcp.Error](err); ok && e.Code == driver.CodeUnsupportedProtocolVersion {
			c.end(Fail, "correct the server: it declares revision %s, but rejects a request in this revision", revision)
		}
		return err
	}
	c.see("%d %ss", n, kind)
	return nil
}

func counted[T any](all iter.Seq2[T, error]) (n int, err error) {
	for _, err := range all {
		if err != nil {
			return n, err
		}
		if n++; n == maxListed {
			break
		}
	}
	return n, nil
}
