//go:build unix

package gateway_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

var stormRounds = flag.Int("storm-rounds", 60, "changes of the configuration under load")

// startsVariable names a file to which a server of the test appends its process id. With it, the test
// binary is such a server.
const startsVariable = "PATCHBAY_GATEWAY_TEST_STARTS"

func init() {
	name := os.Getenv(startsVariable)
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil {
		panic(err)
	}
	s := mcp.NewServer("storm", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "pid"}, func(context.Context, struct{}) (string, error) { return strconv.Itoa(os.Getpid()), nil })
	mcp.AddTool(s, &mcp.Tool{Name: "slow"}, func(context.Context, struct{}) (string, error) {
		time.Sleep(200 * time.Millisecond) // several changes
		return strconv.Itoa(os.Getpid()), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "forbidden"}, func(context.Context, struct{}) (string, error) { return "ran", nil })
	if s.Run(context.Background(), mcp.Stdio()) != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// A storm is a gateway whose configuration changes.
type storm struct {
	dir    string
	binary string
	host   *host.Host
	log    *audit.Log
	url    string
	key    ed25519.PrivateKey
	opened atomic.Int64 // sessions
	calls  atomic.Int64 // that were answered by the process that does not change
}

// RoundTrip counts the requests that open a session.
func (s *storm) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") == "" {
		s.opened.Add(1)
	}
	return http.DefaultTransport.RoundTrip(r)
}

func (s *storm) starts(name string) []string {
	text, _ := os.ReadFile(filepath.Join(s.dir, name))
	return strings.Fields(string(text))
}

// file returns the configuration of a round: the server "stable" is always the same, "other" is another
// or none, and so are the rules, except one, and settings of servers.
func (s *storm) file(n int) (*config.File, error) {
	entry := func(name string, args ...string) map[string]any {
		return map[string]any{"command": s.binary, "args": args, "env": map[string]string{startsVariable: filepath.Join(s.dir, name)}}
	}
	servers := map[string]any{"stable": entry("stable"), "quiet": entry("quiet")} // of one server, names would not have a prefix
	if n%20 > 0 {
		servers["other"] = entry("other", fmt.Sprint("-round=", n%7))
	}
	rules := []map[string]any{{"name": "never", "when": "tool.name == 'forbidden'", "do": "deny"}}
	for i := range n % 5 {
		rules = append(rules, map[string]any{"when": fmt.Sprintf("has(args.n%d) && args.n%d > %d", i, i, n), "do": "deny"})
	}
	text, err := json.Marshal(map[string]any{"mcpServers": servers, "patchbay": map[string]any{
		"policy":   map[string]any{"default": "allow", "rules": rules},
		"profiles": map[string]any{"p": map[string]any{"tools": []string{fmt.Sprintf("stable__p%d*", n%3)}}},
		"servers":  map[string]any{"stable": map[string]any{"idle": "30m"}},
	}})
	if err != nil {
		return nil, err
	}
	return config.Parse(text)
}

func startStorm(t *testing.T) *storm {
	t.Helper()
	s := &storm{dir: t.TempDir(), key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))}
	var err error
	if s.binary, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	s.log, err = audit.Open(&audit.Options{Dir: filepath.Join(s.dir, "audit"), Key: s.key, Strict: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.file(0)
	if err != nil {
		t.Fatal(err)
	}
	s.host, err = host.Open(t.Context(), first, &host.Options{Logger: slog.New(slog.DiscardHandler), Pins: true, Recorder: s.log,
		Configure: func(f *config.File, o *host.Options) (config.Section, error) {
			p, err := celpolicy.New(f, nil)
			if err != nil {
				return nil, err
			}
			if o.Policy = nil; p != nil {
				o.Policy = p
			}
			return gatewayconfig.Read(f)
		}})
	if err != nil {
		t.Fatal(err)
	}
	s.url = serve(t, gateway.New(s.host, &gateway.Options{Keys: []string{key}, Logger: slog.New(slog.DiscardHandler)})) + "/mcp"
	return s
}

func (s *storm) connect(t *testing.T) *mcp.Client {
	t.Helper()
	c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(s.url, &mcphttp.TransportOptions{Client: &http.Client{Transport: s},
		Header: http.Header{"Authorization": {"Bearer " + key}}}), &mcp.ClientOptions{Revision: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// load calls a tool until ctx ends, and checks each result.
func (s *storm) load(ctx context.Context, t *testing.T, tool string, check func(r *mcp.CallToolResult) bool) {
	c := s.connect(t)
	defer c.Close()
	for ctx.Err() == nil {
		r, err := c.CallTool(t.Context(), tool, nil)
		if check != nil && (err != nil || !check(r)) {
			t.Errorf("%s: got %+v, %v", tool, r, err)
			return
		}
	}
}

// During many changes of servers, rules and profiles, with pins and a strict audit log, a server that none
// of them changes keeps its process, and its callers their sessions and calls. The rule that stays is
// always in force, every call is recorded, and no goroutine, descriptor or process is left.
func TestReloadStormWithPolicyPinsAndAudit(t *testing.T) {
	mcptest.NoLeaks(t)
	files := openDescriptors()
	t.Run("storm", func(t *testing.T) { runStorm(t, startStorm(t)) })
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for begin := time.Now(); openDescriptors() > files && time.Since(begin) < time.Minute; {
		time.Sleep(20 * time.Millisecond)
	}
	if n := openDescriptors(); n > files {
		t.Errorf("%d descriptors, want the %d of before", n, files)
	}
}

func openDescriptors() int {
	all, _ := os.ReadDir("/proc/self/fd")
	return len(all)
}

func runStorm(t *testing.T, s *storm) {
	if err := s.host.Start(t.Context(), "stable"); err != nil { // a call waits for 5 seconds, which may not be enough
		t.Fatal(err)
	}
	c := s.connect(t)
	r, err := c.CallTool(t.Context(), "stable__pid", nil)
	if err != nil {
		t.Fatal(err)
	}
	pid := r.Text()
	isStable := func(r *mcp.CallToolResult) bool {
		s.calls.Add(1)
		return !r.IsError && r.Text() == pid
	}
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for range 3 {
		load.Go(func() { s.load(ctx, t, "stable__pid", isStable) })
	}
	load.Go(func() { s.load(ctx, t, "stable__slow", isStable) })
	load.Go(func() {
		s.load(ctx, t, "stable__forbidden", func(r *mcp.CallToolResult) bool { return r.IsError && strings.Contains(r.Text(), "never") })
	})
	load.Go(func() { s.load(ctx, t, "other__pid", nil) }) // fails while the server is removed
	begin := time.Now()
	for n := range *stormRounds {
		f, err := s.file(n + 1)
		if err == nil {
			_, err = s.host.Reload(t.Context(), f)
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
	}
	took := time.Since(begin)
	cancel()
	load.Wait()
	if err := errors.Join(c.Close(), s.host.Close(), s.log.Close()); err != nil {
		t.Error(err)
	}
	if starts := s.starts("stable"); len(starts) != 1 || starts[0] != pid {
		t.Errorf("processes %v of the server that did not change, want only %s", starts, pid)
	}
	const clients = 7
	if n := s.opened.Load(); n != clients {
		t.Errorf("%d sessions were opened, want one of each of %d clients", n, clients)
	}
	s.check(t)
	t.Logf("%d changes in %v, %d calls of the server that did not change, %d processes of the other", *stormRounds, took, s.calls.Load(),
		len(s.starts("other")))
}

// check checks that no process is left, and that each call is in the log.
func (s *storm) check(t *testing.T) {
	for _, pid := range slices.Concat(s.starts("stable"), s.starts("quiet"), s.starts("other")) {
		id, _ := strconv.Atoi(pid)
		for begin := time.Now(); syscall.Kill(id, 0) == nil; time.Sleep(20 * time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatalf("process %s still runs", pid)
			}
		}
	}
	dir := filepath.Join(s.dir, "audit")
	report, err := audit.Verify(dir, &audit.VerifyOptions{Keys: []ed25519.PublicKey{s.key.Public().(ed25519.PublicKey)}})
	if err = errors.Join(err, report.Err()); err != nil {
		t.Error(err)
	}
	ended := int64(0)
	for e, err := range audit.Read(dir) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Event == string(event.End) && e.Server == "stable" && e.Target != "forbidden" {
			ended++
		}
		if e.Event == string(event.Intent) && e.Target == "forbidden" {
			t.Fatalf("a call that a rule denies was sent: %s", e.Raw)
		}
	}
	if n := s.calls.Load() + 1; ended != n {
		t.Errorf("%d calls are recorded, want %d", ended, n)
	}
}
