package gateway_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// newKey makes a key and returns its secret.
func newKey(t *testing.T, store *gateway.KeyStore, k gateway.Key) string {
	t.Helper()
	secret, err := store.Create(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// keyed returns a gateway with a store of keys.
func keyed(t *testing.T, u *upstreams, text string) (*gateway.Gateway, *gateway.KeyStore) {
	t.Helper()
	store := gateway.NewKeyStore(&state.Memory{})
	return gateway.New(u.newHost(t, text), &gateway.Options{Keys: []string{key}, KeyStore: store,
		Logger: slog.New(slog.DiscardHandler)}), store
}

// connections returns the clients of a key over every revision and transport.
func connections(t *testing.T, url, secret string) (all []*mcp.Client) {
	t.Helper()
	for _, revision := range append(mcptest.Revisions(), "HTTP+SSE") {
		isSSE := revision == "HTTP+SSE"
		if isSSE {
			revision = "2024-11-05"
		}
		c, err := connect(t, url, revision, isSSE, "Authorization", "Bearer "+secret)
		if err != nil {
			t.Fatal(revision, isSSE, err)
		}
		all = append(all, c)
	}
	return all
}

// Each principal has own instances, over every revision and transport, and two keys of one principal have
// the same ones. The local user is another caller.
func TestKeysHavePrincipals(t *testing.T) {
	mcptest.NoLeaks(t)
	u := &upstreams{}
	g, store := keyed(t, u, `{"mcpServers": {"one": {"command": "one"}}}`)
	url := serve(t, g) + "/mcp"
	secrets := []string{
		newKey(t, store, gateway.Key{Name: "ann"}),
		newKey(t, store, gateway.Key{Name: "ann-ci", Subject: "ann"}),
		newKey(t, store, gateway.Key{Name: "bob"}), key,
	}
	for _, secret := range secrets {
		for _, c := range connections(t, url, secret) {
			if res, err := c.CallTool(t.Context(), "whoami", nil); err != nil || res.IsError {
				t.Errorf("call: %+v, %v", res, err)
			}
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var subjects []string
	for _, c := range u.callers {
		text := "local"
		if c.Principal != nil {
			text = c.Principal.Issuer + "/" + c.Principal.Subject
		}
		subjects = append(subjects, text)
	}
	if slices.Sort(subjects); !slices.Equal(subjects, []string{"local", "patchbay:key/ann", "patchbay:key/bob"}) {
		t.Errorf("instances of %q, want one for each principal", subjects)
	}
	for _, h := range u.headers {
		if h["Authorization"] != nil {
			t.Error("a server got a key")
		}
	}
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// A key of one principal does not open the sessions of another, nor do keys with other limits.
func TestSessionsAreOfOneKey(t *testing.T) {
	g, store := keyed(t, &upstreams{}, twoServers)
	h := g.Handler()
	ann := newKey(t, store, gateway.Key{Name: "ann"})
	w := send(h, "POST", "/mcp", initialize, "Authorization", "Bearer "+ann)
	session := w.Header().Get("Mcp-Session-Id")
	if w.Code != 200 || session == "" {
		t.Fatalf("initialize: %d %s", w.Code, w.Body)
	}
	const list = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	for name, k := range map[string]gateway.Key{
		"bob": {Name: "bob"}, "fewer servers": {Name: "ann2", Subject: "ann", Servers: []string{"one"}},
		"read only": {Name: "ann3", Subject: "ann", ReadOnly: true},
	} {
		w := send(h, "POST", "/mcp", list, "Authorization", "Bearer "+newKey(t, store, k), "Mcp-Session-Id", session)
		if w.Code != 404 {
			t.Errorf("%s: %d %s, want 404", name, w.Code, w.Body)
		}
	}
	if w := send(h, "POST", "/mcp", list, "Authorization", "Bearer "+ann, "Mcp-Session-Id", session); w.Code != 200 {
		t.Errorf("its own session: %d %s", w.Code, w.Body)
	}
}

// What a key does not open has the status 404, like what does not exist, and is in no list.
func TestKeysAreLimited(t *testing.T) {
	g, store := keyed(t, &upstreams{}, twoServers)
	h := g.Handler()
	for name, c := range map[string]struct {
		key   gateway.Key
		paths map[string]string // the tools of two servers by path, or the status
	}{
		"everything":                    {gateway.Key{}, map[string]string{"/mcp": "one__ two__", "/mcp/p/code": "two__", "/mcp/s/one": "plain"}},
		"a profile":                     {gateway.Key{Profile: "code"}, map[string]string{"/mcp": "two__", "/mcp/p/code": "two__", "/mcp/s/one": "404", "/mcp/s/two": "404", "/mcp/p/x": "404"}},
		"a profile that does not exist": {gateway.Key{Profile: "gone"}, map[string]string{"/mcp": "404", "/mcp/p/code": "404", "/mcp/p/gone": "404"}},
		"a server":                      {gateway.Key{Servers: []string{"one"}}, map[string]string{"/mcp": "one__", "/mcp/p/code": "", "/mcp/s/one": "plain", "/mcp/s/two": "404"}},
		"both":                          {gateway.Key{Servers: []string{"one"}, Profile: "code"}, map[string]string{"/mcp": "", "/mcp/s/two": "404"}},
		"prompts":                       {gateway.Key{Only: []policy.ActionKind{policy.ActionGet}}, map[string]string{"/mcp": "", "/mcp/s/one": ""}},
		"read only":                     {gateway.Key{ReadOnly: true}, map[string]string{"/mcp": "", "/mcp/s/one": ""}},
	} {
		c.key.Name = strings.ReplaceAll(name, " ", "-")
		secret := newKey(t, store, c.key)
		for path, want := range c.paths {
			w := request(h, "POST", path, "Authorization", "Bearer "+secret)
			body := w.Body.String()
			got := strings.TrimSpace(strings.Join(slices.DeleteFunc([]string{"one__", "two__"},
				func(s string) bool { return !strings.Contains(body, `"name":"`+s) }), " "))
			if got == "" && strings.Contains(body, `"name":"whoami"`) {
				got = "plain"
			}
			if w.Code != 200 {
				got = "404"
			}
			if got != want || w.Code != 200 && w.Code != 404 {
				t.Errorf("%s, %s: %d %q, want %q", name, path, w.Code, body, want)
			}
		}
	}
	secret := newKey(t, store, gateway.Key{Name: "last", Servers: []string{"one"}})
	hidden := request(h, "POST", "/mcp/s/two", "Authorization", "Bearer "+secret).Body.String()
	unknown := request(h, "POST", "/mcp/s/owt", "Authorization", "Bearer "+secret).Body.String()
	if strings.ReplaceAll(hidden, "two", "owt") != unknown {
		t.Errorf("a hidden server: %q, an unknown one: %q, want the same", hidden, unknown)
	}
}

// A revoked key ends its streams and is refused, over every revision and transport. Another key of the
// principal goes on.
func TestRevokedKeysEnd(t *testing.T) {
	mcptest.NoLeaks(t)
	g, store := keyed(t, &upstreams{}, twoServers)
	url := serve(t, g) + "/mcp"
	revoked := newKey(t, store, gateway.Key{Name: "ann"})
	other := newKey(t, store, gateway.Key{Name: "other", Subject: "ann"})
	var streams []*stream
	for _, secret := range []string{revoked, other} {
		for _, revision := range mcptest.Revisions() {
			for _, sse := range []bool{false, true} {
				if !sse || revision == "2024-11-05" {
					streams = append(streams, openStream(t, url, revision, secret, sse))
				}
			}
		}
	}
	if _, err := store.Revoke(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	for n, s := range streams {
		if n >= len(streams)/2 {
			select {
			case <-s.ended:
				t.Errorf("stream %s of another key has ended", s.name)
			default:
			}
			continue
		}
		select {
		case <-s.ended:
		case <-time.After(time.Minute): // it takes a second, more only on a busy machine
			t.Errorf("stream %s of the revoked key has not ended", s.name)
		}
	}
	if w := request(g.Handler(), "POST", "/mcp", "Authorization", "Bearer "+revoked); w.Code != 401 {
		t.Errorf("the revoked key: %d, want 401", w.Code)
	}
	if w := request(g.Handler(), "POST", "/mcp", "Authorization", "Bearer "+other); w.Code != 200 {
		t.Errorf("the other key: %d, want 200", w.Code)
	}
}

// Expired, revoked, wrong and missing keys have the same response. New keys are known at once.
func TestKeysEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, store := keyed(t, &upstreams{}, twoServers)
		h := g.Handler()
		status := func(secret string) int {
			return request(h, "POST", "/mcp", "Authorization", "Bearer "+secret).Code
		}
		first := newKey(t, store, gateway.Key{Name: "first"})
		if status(first) != 200 {
			t.Error("the first key is refused")
		}
		short := newKey(t, store, gateway.Key{Name: "short", Expires: time.Now().Add(time.Hour)})
		if status(short) != 200 {
			t.Error("a new key is refused")
		}
		time.Sleep(time.Hour - time.Second)
		if status(short) != 200 {
			t.Error("a key is refused before its end")
		}
		time.Sleep(time.Second)
		if _, err := store.Revoke(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		want := request(h, "POST", "/mcp")
		for name, secret := range map[string]string{"expired": short, "revoked": first, "wrong": "patchbay_" + gateway.NewKey()} {
			w := request(h, "POST", "/mcp", "Authorization", "Bearer "+secret)
			if w.Code != 401 || w.Body.String() != want.Body.String() || len(w.Header()) != len(want.Header()) {
				t.Errorf("%s key: %d %v %q, want the response without a key", name, w.Code, w.Header(), w.Body)
			}
		}
		all, err := store.List(t.Context())
		if err != nil || len(all) != 1 || all[0].Used.IsZero() || time.Since(all[0].Used) > 2*time.Minute+time.Hour {
			t.Errorf("keys %+v, %v, want the last use of the expired one", all, err)
		}
	})
}

// The use of a key is written at most once a minute.
func TestUseOfAKeyIsWrittenOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &countedState{}
		store := gateway.NewKeyStore(state)
		g := gateway.New((&upstreams{}).newHost(t, twoServers), &gateway.Options{KeyStore: store})
		h := g.Handler()
		secret := newKey(t, store, gateway.Key{Name: "ann"})
		state.writes = 0
		for range 180 {
			request(h, "POST", "/mcp", "Authorization", "Bearer "+secret)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		state.mu.Lock()
		defer state.mu.Unlock()
		if state.writes != 3 {
			t.Errorf("%d writes in 3 minutes, want 3", state.writes)
		}
	})
}

// A silentState does not answer on demand.
type silentState struct {
	state.Memory
	silent atomic.Bool
}

func (s *silentState) List(ctx context.Context, kind string) iter.Seq2[state.Entry, error] {
	if s.silent.Load() {
		<-ctx.Done()
		return func(yield func(state.Entry, error) bool) { yield(state.Entry{}, ctx.Err()) }
	}
	return s.Memory.List(ctx, kind)
}

// While the store does not answer, the first request waits for it, and no other, not even after
// many unknown keys, about which the gateway cannot decide. The gateway notices by itself that the store answers again.
func TestKeysOfAStoreThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &silentState{}
		store := gateway.NewKeyStore(state)
		g := gateway.New((&upstreams{}).newHost(t, twoServers), &gateway.Options{KeyStore: store,
			Logger: slog.New(slog.DiscardHandler)})
		h := g.Handler()
		ann, bob := newKey(t, store, gateway.Key{Name: "ann"}), newKey(t, store, gateway.Key{Name: "bob"})
		want := func(secret string, code int, wait time.Duration) {
			t.Helper()
			begin := time.Now()
			if got := request(h, "POST", "/mcp", "Authorization", "Bearer "+secret).Code; got != code {
				t.Errorf("got %d, want %d", got, code)
			}
			if waited := time.Since(begin); waited > wait {
				t.Errorf("the request waited %v, want at most %v", waited, wait)
			}
		}
		want(ann, 200, 0)
		want(bob, 200, 0)
		state.silent.Store(true)
		<-time.After(2 * time.Second)
		want(ann, 200, 2*time.Second)
		for i := range 20 {
			wrong := gateway.KeyPrefix + strings.Repeat("x", 30+i)
			begin := time.Now()
			w := sendFrom(h, fmt.Sprintf("192.0.2.%d:1", i), "POST", "/mcp", "", "Authorization", "Bearer "+wrong)
			if w.Code != 503 || time.Since(begin) > 0 { // the key may be new
				t.Errorf("an unknown key: got %d after %v, want 503 at once", w.Code, time.Since(begin))
			}
			want(ann, 200, 0)
			<-time.After(time.Second)
		}
		if _, err := store.Revoke(t.Context(), "bob"); err != nil {
			t.Fatal(err)
		}
		want(bob, 200, 0) // nobody can know
		<-time.After(10 * time.Second)
		want(ann, 503, 0)
		state.silent.Store(false)
		<-time.After(5 * time.Second)
		want(ann, 200, 0)
		want(bob, 401, 0)

		state.silent.Store(true)
		<-time.After(time.Second)
		want(ann, 200, 2*time.Second)
		<-time.After(1500 * time.Millisecond) // a read is in progress
		begin := time.Now()
		if err := g.Shutdown(t.Context()); err != nil || time.Since(begin) > 0 {
			t.Errorf("Shutdown: %v after %v", err, time.Since(begin))
		}
	})
}

// A countedState counts writes, and fails on demand.
type countedState struct {
	state.Memory
	mu     sync.Mutex
	writes int
	fails  bool
}

func (s *countedState) CompareAndSet(ctx context.Context, kind, key string, version uint64, value []byte) error {
	s.mu.Lock()
	s.writes++
	s.mu.Unlock()
	return s.Memory.CompareAndSet(ctx, kind, key, version, value)
}

func (s *countedState) List(ctx context.Context, kind string) iter.Seq2[state.Entry, error] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails {
		return func(yield func(state.Entry, error) bool) { yield(state.Entry{}, errors.New("disk error")) }
	}
	return s.Memory.List(ctx, kind)
}

// While the store cannot be read, keys are used for 30 seconds, and then refused: one may have been
// revoked. The key of the local user is not in the store.
func TestKeysThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &countedState{}
		store := gateway.NewKeyStore(state)
		g := gateway.New((&upstreams{}).newHost(t, twoServers), &gateway.Options{KeyStore: store, Keys: []string{key},
			Logger: slog.New(slog.DiscardHandler)})
		h := g.Handler()
		secret := newKey(t, store, gateway.Key{Name: "ann"})
		status := func() int { return request(h, "POST", "/mcp", "Authorization", "Bearer "+secret).Code }
		if status() != 200 {
			t.Error("refused before the failure")
		}
		setFails := func(fails bool) {
			state.mu.Lock()
			defer state.mu.Unlock()
			state.fails = fails
		}
		setFails(true)
		time.Sleep(29 * time.Second)
		if status() != 200 {
			t.Error("refused after 29 seconds")
		}
		time.Sleep(2 * time.Second)
		if got := status(); got != 503 {
			t.Errorf("after 31 seconds: %d, want 503", got)
		}
		if w := request(h, "POST", "/mcp", "Authorization", "Bearer "+key); w.Code != 200 {
			t.Errorf("the local user: %d, want 200", w.Code)
		}
		setFails(false)
		<-time.After(2 * time.Second)
		if status() != 200 {
			t.Error("refused after the store can be read again")
		}
	})
}

// An address with many wrong keys gets 429, which delays no valid key and no other address.
func TestWrongKeysOfAnAddressAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := keyed(t, &upstreams{}, twoServers)
		from := func(addr, secret string) int {
			return sendFrom(g.Handler(), addr, "POST", "/mcp", listTools, "Authorization", "Bearer "+secret,
				"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list").Code
		}
		wrong := gateway.NewKey()
		for n := range 31 {
			want := http.StatusUnauthorized
			if n == 30 {
				want = http.StatusTooManyRequests
			}
			if got := from("[2001:db8::1:2:3]:1", wrong); got != want {
				t.Errorf("wrong key %d: %d, want %d", n, got, want)
			}
		}
		if got := from("[2001:db8::9]:1", wrong); got != http.StatusTooManyRequests {
			t.Errorf("another address of the network: %d, want 429", got)
		}
		if got := from("192.0.2.9:1", wrong); got != http.StatusUnauthorized {
			t.Errorf("another address: %d, want 401", got)
		}
		if got := from("[2001:db8::1:2:3]:1", key); got != http.StatusOK {
			t.Errorf("a valid key: %d, want 200", got)
		}
		time.Sleep(time.Minute)
		if got := from("[2001:db8::1:2:3]:1", wrong); got != http.StatusUnauthorized {
			t.Errorf("after a minute: %d, want 401", got)
		}
	})
}

func TestKeyStore(t *testing.T) {
	state := &state.Memory{}
	store := gateway.NewKeyStore(state)
	for name, k := range map[string]gateway.Key{
		"no name": {}, "a path": {Name: "../x"}, "a long name": {Name: strings.Repeat("a", 65)},
		"a control character": {Name: "a", Subject: "a\nb"}, "a past end": {Name: "a", Expires: time.Now().Add(-time.Second)},
		"an unknown kind": {Name: "a", Only: []policy.ActionKind{"sing"}},
	} {
		if _, err := store.Create(t.Context(), k); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	secret := newKey(t, store, gateway.Key{Name: "ann"})
	if !strings.HasPrefix(secret, gateway.KeyPrefix) || len(secret) != len(gateway.KeyPrefix)+32 {
		t.Errorf("secret of %d characters, want the prefix and 32", len(secret))
	}
	for e := range state.List(t.Context(), "key") {
		if strings.Contains(string(e.Value), secret[len(gateway.KeyPrefix):]) {
			t.Error("the store has the secret")
		}
	}
	if _, err := store.Create(t.Context(), gateway.Key{Name: "ann"}); !errors.Is(err, gateway.ErrKeyExists) {
		t.Errorf("a second key: %v, want ErrKeyExists", err)
	}
	if k, err := store.Revoke(t.Context(), "ann"); err != nil || k.Subject != "ann" {
		t.Errorf("Revoke: %+v, %v", k, err)
	}
	if _, err := store.Revoke(t.Context(), "ann"); !errors.Is(err, gateway.ErrUnknownKey) {
		t.Errorf("a second Revoke: %v, want ErrUnknownKey", err)
	}
}

// A key whose entry has members of a later version, which may be limits, opens nothing.
func TestKeysOfLaterVersionsAreIgnored(t *testing.T) {
	state := &state.Memory{}
	store := gateway.NewKeyStore(state)
	secret := newKey(t, store, gateway.Key{Name: "ann"})
	value, version, err := state.Get(t.Context(), "key", "ann")
	if err != nil {
		t.Fatal(err)
	}
	later := strings.Replace(string(value), "{", `{"hours":"9-17",`, 1)
	if err := state.CompareAndSet(t.Context(), "key", "ann", version, []byte(later)); err != nil {
		t.Fatal(err)
	}
	g := gateway.New((&upstreams{}).newHost(t, twoServers), &gateway.Options{KeyStore: store, Logger: slog.New(slog.DiscardHandler)})
	if w := request(g.Handler(), "POST", "/mcp", "Authorization", "Bearer "+secret); w.Code != 401 {
		t.Errorf("%d, want 401", w.Code)
	}
	if _, err := store.List(t.Context()); err == nil {
		t.Error("List: no error")
	}
	if _, err := store.Revoke(t.Context(), "ann"); err != nil {
		t.Errorf("Revoke: %v", err)
	}
}

// A stream is an open subscription of a client.
type stream struct {
	name  string
	ended chan struct{}
}

// openStream opens a subscription, over HTTP+SSE if sse is set.
func openStream(t *testing.T, url, revision, secret string, sse bool) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	transport := http.DefaultTransport.(*http.Transport).Clone()
	do := func(method, body string, header ...string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Authorization": {"Bearer " + secret}, "Content-Type": {"application/json"},
			"Accept": {"application/json, text/event-stream"}}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		res, err := transport.RoundTrip(r)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %+v, %v", method, revision, res, err)
		}
		return res
	}
	var res *http.Response
	switch {
	case sse:
		res = do("GET", "", "Accept", "text/event-stream")
	case revision == "2026-07-28":
		res = do("POST", strings.Replace(strings.Replace(listTools, "tools/list", "subscriptions/listen", 1), `"params":{`,
			`"params":{"notifications":{"toolsListChanged":true},`, 1), "Mcp-Protocol-Version", revision,
			"Mcp-Method", "subscriptions/listen")
	default:
		opened := do("POST", strings.Replace(initialize, "2025-11-25", revision, 1))
		_, _ = io.Copy(io.Discard, opened.Body)
		opened.Body.Close()
		res = do("GET", "", "Accept", "text/event-stream", "Mcp-Session-Id", opened.Header.Get("Mcp-Session-Id"))
	}
	s := &stream{revision, make(chan struct{})}
	go func() {
		defer close(s.ended)
		_, _ = io.Copy(io.Discard, res.Body)
	}()
	t.Cleanup(func() {
		cancel()
		<-s.ended
		res.Body.Close()
		transport.CloseIdleConnections()
	})
	return s
}

// records keeps records.
type records struct {
	mu  sync.Mutex
	all []*event.Record
}

func (r *records) Record(record *event.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := *record
	r.all = append(r.all, &own)
	return nil
}

// Uses, refusals and ends of keys are recorded, without the keys.
func TestKeysAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept records
		var lines []string
		var mu sync.Mutex
		f, err := config.Parse([]byte(twoServers))
		if err != nil {
			t.Fatal(err)
		}
		h, err := host.Open(t.Context(), f, &host.Options{Recorder: &kept, Dial: func(_ context.Context, s *config.Server) (mcp.Transport, error) {
			return mcp.InMemory((&upstreams{}).newServer(s.Name)), nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		store := gateway.NewKeyStore(&state.Memory{})
		g := gateway.New(h, &gateway.Options{KeyStore: store, Keys: []string{key},
			Logger: slog.New(logHandler{&mu, &lines, slog.DiscardHandler})})
		ann := newKey(t, store, gateway.Key{Name: "ann", Expires: time.Now().Add(time.Hour)})
		wrong := "patchbay_" + gateway.NewKey()
		for _, secret := range []string{ann, wrong, key} {
			request(g.Handler(), "POST", "/mcp", "Authorization", "Bearer "+secret)
		}
		synctest.Wait()
		time.Sleep(time.Hour)
		request(g.Handler(), "POST", "/mcp", "Authorization", "Bearer "+ann)
		synctest.Wait()
		mu.Lock()
		text := strings.Join(lines, "\n")
		mu.Unlock()
		kept.mu.Lock()
		defer kept.mu.Unlock()
		var got []string
		for _, r := range kept.all {
			if r.Event != event.Login {
				continue
			}
			text += string(r.Detail)
			who := "-"
			if r.Caller != nil {
				who = r.Caller.Principal.Subject
			}
			got = append(got, who+" "+string(r.Detail))
		}
		want := []string{
			`ann {"outcome":"accepted","key":"ann"}`,
			`- {"outcome":"refused","reason":"wrong key","remote":"10.`,
			`ann {"outcome":"ended","reason":"expired key","key":"ann"}`,
			`ann {"outcome":"refused","reason":"expired key","key":"ann","remote":"10.`,
		}
		if slices.Sort(got); !slices.EqualFunc(got, slices.Sorted(slices.Values(want)), strings.HasPrefix) {
			t.Errorf("records %q, want %q", got, want)
		}
		for _, secret := range []string{ann, wrong, key} {
			if strings.Contains(text, strings.TrimPrefix(secret, gateway.KeyPrefix)) {
				t.Errorf("a log or a record has a key:\n%s", text)
			}
		}
	})
}

// No value of the header and no entry of the store makes a request valid that has no valid key.
func FuzzAuthorization(f *testing.F) {
	secret := gateway.KeyPrefix + strings.Repeat("a", 32) // the same in all processes
	hash := sha256.Sum256([]byte(secret))
	value := fmt.Appendf(nil, `{"name":"ann","subject":"ann","created":"2026-01-01T00:00:00Z","hash":"%x"}`, hash)
	for _, header := range []string{"", "Bearer", "Bearer " + secret, "bearer  " + secret, "Basic x", "Bearer patchbay_", "DPoP x"} {
		f.Add(header, value)
		f.Add(header, []byte(`{"name":"x","hash":"00"}`))
	}
	file, err := config.Parse([]byte(`{"mcpServers": {"one": {"command": "x"}}}`))
	if err != nil {
		f.Fatal(err)
	}
	h, err := host.Open(context.Background(), file, &host.Options{Dial: func(context.Context, *config.Server) (mcp.Transport, error) {
		return nil, errors.New("not dialled")
	}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { h.Close() })
	f.Fuzz(func(t *testing.T, header string, entry []byte) {
		state := &state.Memory{}
		if err := state.CompareAndSet(t.Context(), "key", "ann", 0, append([]byte{}, entry...)); err != nil {
			t.Fatal(err)
		}
		g := gateway.New(h, &gateway.Options{KeyStore: gateway.NewKeyStore(state), Logger: slog.New(slog.DiscardHandler)})
		w := request(g.Handler(), "DELETE", "/mcp/s/unknown", "Authorization", header)
		isRight := strings.Contains(header, secret) && strings.Contains(strings.ToLower(string(entry)), hex.EncodeToString(hash[:]))
		if w.Code != 401 && !(w.Code == 404 && isRight) {
			t.Errorf("%q, %q: %d, want 401", header, entry, w.Code)
		}
	})
}
