package doctor

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
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

// An attempts collects the messages with which a client finds the revision of a server, one after the
// other.
type attempts struct {
	mu    sync.Mutex // guards the fields below
	lines []string
	sent  string // the message without a response; "" if there is none
}

// frame is for [mcp.Trace].
func (a *attempts) frame(f mcp.Frame) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch m := f.Message; {
	case m == nil || len(a.lines) >= maxAttempts:
	case f.Sent && m.Method == driver.MethodDiscover:
		a.sent = m.Method + " as " + connect.NewestRevision()
	case f.Sent && m.Method == driver.MethodInitialize:
		version, _ := rawjson.Get(m.Params, "protocolVersion")
		a.sent = fmt.Sprintf("%s as %s", m.Method, version)
	case !f.Sent && m.Method == "" && a.sent != "":
		got, ok := rawjson.Get(m.Result, "protocolVersion")
		if !ok {
			got, _ = rawjson.Get(m.Result, "supportedVersions")
		}
		if m.Error != nil {
			got = fmt.Appendf(nil, "error %d: %s", m.Error.Code, m.Error.Message)
		}
		a.lines = append(a.lines, fmt.Sprintf("%s -> %s", a.sent, got))
		a.sent = ""
	}
}

// dial connects a client, and adds its messages to the observations.
func (r *run) dial(ctx context.Context, c *Check, t mcp.Transport) (*mcp.Client, error) {
	opts, err := r.Dialer.ClientOptions(ctx)
	if err != nil {
		return nil, exit.UsageError(err)
	}
	opts.Elicit, opts.ElicitURL, opts.Sample = nil, nil, nil
	opts.Logger = slog.New(slog.DiscardHandler) // its warnings are observations
	limit := r.Dialer.StartLimit(r.target)
	if opts.Revision != "" {
		opts.ProbeTimeout = limit
	}
	a := &attempts{}
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
	if a.sent != "" {
		c.see("%s -> no response", a.sent)
	}
	return client, err
}

// negotiate connects to a URL with the stored login or the login of this run.
func (w *web) negotiate(ctx context.Context, c *Check) {
	if w.needsLogin() && !w.canLogIn {
		c.see("the server requires a login")
		c.end(Fail, "log in with patchbay auth login %s, or run the doctor with --login", w.argument())
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
	w.describe(ctx, c, client)
}

// explain sets the result of a failed negotiation.
func (r *run) explain(c *Check, err error) {
	code := exit.Code(r.ctx, err)
	c.see("%s", exit.Text(code, err))
	switch {
	case errors.Is(err, mcp.ErrNoCommonRevision):
		c.end(Fail, "update the server or Patchbay, which speaks %s: they share no revision of the protocol",
			strings.Join(connect.Revisions(), ", "))
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

// describe shows the server and requests the first list.
func (r *run) describe(ctx context.Context, c *Check, client *mcp.Client) {
	info := client.ServerInfo()
	c.see("%s %s speaks %s", info.Name, info.Version, client.Revision())
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
		return
	}
	if err != nil {
		c.see("the list of %ss: %s", kind, exit.Text(exit.Code(ctx, err), err))
		c.end(Fail, "correct the server: it declares %ss and does not list them", kind)
		return
	}
	c.see("%d %ss", n, kind)
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
