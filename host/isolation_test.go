package host_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A memory is a server that stores what it sees, and returns all of it: lists, results, questions and
// instructions have the secrets of every request that reached it.
type memory struct {
	mu   sync.Mutex // guards seen
	seen []string
}

func (m *memory) add(text string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.seen, text) { // a handler that asks runs again
		m.seen = append(m.seen, text)
	}
	return strings.Join(m.seen, " ")
}

func (m *memory) server() mcp.Handler {
	s := mcp.NewServer("memory", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "remember"}, func(ctx context.Context, in struct{ Secret string }) (string, error) {
		return m.add(in.Secret), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, in struct{ Secret string }) (string, error) {
		all := m.add(in.Secret)
		_, err := mcp.Ask[bool](ctx, "q", all, nil)
		return m.add(""), err
	})
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if secret, ok := req.Meta("com.example/secret"); ok {
			m.add(string(secret))
		}
		if req.Method == "tools/list" { // also lists what it has seen
			tool := `{"name":%q,"inputSchema":{"type":"object"}}`
			return mcp.RawResult(fmt.Sprintf(`{"resultType":"complete","tools":[`+tool+`,`+tool+`,`+tool+
				`],"ttlMs":0,"cacheScope":"private"}`, "ask", "remember", "seen "+m.add(""))), nil
		}
		return s.ServeMCP(ctx, req)
	})
}

// Nothing that one principal sends is in the results, lists or questions of another, unless the
// configuration shares the server.
//
// Requirement: HOST-09, HOST-11, HOST-34
func TestIsolationOfPrincipals(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ran := 0
	for _, share := range []config.Share{config.ShareCaller, config.ShareSession, config.ShareCall, config.ShareShared} {
		for _, up := range oneProcess(mcptest.Combinations()) {
			t.Run(string(share)+" "+up.String(), func(t *testing.T) {
				for _, down := range oneProcess(mcptest.Combinations()) {
					ran++
					synctest.Test(t, func(t *testing.T) { twoPrincipals(t, share, up, down) })
				}
			})
		}
	}
	t.Logf("%d combinations run", ran)
}

func twoPrincipals(t *testing.T, share config.Share, up, down mcptest.Combination) {
	f, err := config.Parse([]byte(`{"mcpServers":{"m":{"command":"m"}},"patchbay":{"servers":{"m":{"share":"` +
		string(share) + `"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	var h *host.Host
	h, err = host.Open(t.Context(), f, &host.Options{
		// Each process of the server has a memory of its own.
		Dial: func(context.Context, *config.Server) (mcp.Transport, error) {
			transport := mcptest.Transport(t, new(memory).server(), up.Transport)
			t.Cleanup(func() { _ = h.Close() })
			return transport, nil
		},
		Client: mcp.ClientOptions{Revision: up.Revision}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var asked []string
	// Nothing relates a question of a session to its request, except a stream over HTTP: on a shared
	// connection it is refused once another principal has used the connection.
	unrelated := share == config.ShareShared && !up.Modern() && up.Transport != mcptest.HTTP
	used := 0
	use := func(name string, n int) (all string) {
		refused := unrelated && used > 0
		used++
		view := h.For(&policy.Caller{Principal: &mcp.Principal{Subject: name}, Session: name})
		c := mcptest.Dial(t, view, down, &mcp.ClientOptions{
			Elicit: func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				asked = append(asked, name+" "+p.Message)
				return yes(ctx, p)
			}})
		for i := range n {
			secret := fmt.Sprint("secret-of-", name, i)
			r, err := c.CallTool(t.Context(), "m__remember", map[string]any{"Secret": secret})
			if err != nil || r.IsError || !strings.Contains(r.Text(), secret) {
				t.Fatalf("%s: got %+v, %v", name, r, err)
			}
			all += r.Text()
		}
		if up.Since("2025-06-18") && down.Since("2025-06-18") {
			r, err := c.CallTool(t.Context(), "m__ask", map[string]any{"Secret": "secret-of-" + name})
			if err != nil || r.IsError != refused {
				t.Fatalf("%s: question: got %+v, %v, want it refused: %t", name, r, err, refused)
			}
			all += r.Text()
		}
		tools, err := mcp.Collect(c.Tools(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range tools {
			all += " " + tool.Name + " " + tool.Title
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		return all
	}
	ann, bob := use("ann", 2), use("bob", 1)
	ann += use("ann", 1)
	leaked := strings.Contains(ann, "secret-of-bob") || strings.Contains(bob, "secret-of-ann")
	for _, question := range asked {
		leaked = leaked || strings.Contains(question, "ann") && strings.Contains(question, "bob")
	}
	if shared := share == config.ShareShared; leaked != shared {
		t.Errorf("to %s: one principal got the secret of the other: %t, want %t", down, leaked, shared)
	}
}
