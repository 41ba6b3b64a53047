package mcphttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// The stream is at the first process, and each POST arrives at the next process.
func TestSSE_PostsAtOtherProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := startReplicas(t, core, nil)
		c := f.initializedSSE(t.Context(), "Authorization: ann", "Cookie: secret", "X-Test: yes")
		for n := range 6 {
			c.post(callBody(n, "echo"))
			if e := c.next(); !strings.Contains(string(e.Data), fmt.Sprintf(`"id":%d,"result"`, n)) {
				t.Errorf("got %s, want the result of call %d", e.Data, n)
			}
		}
		for process := range f.handlers {
			f.at(process)
			c.post(callBody(7, "inspect"))
			req := <-core.request
			sent := http.Header(req.Header).Get("X-Test")
			if req.Principal == nil || req.Principal.Subject != "ann" || sent != "yes" {
				t.Errorf("process %d: got principal %+v and header %v", process, req.Principal, req.Header)
			}
			c.next()
			c.post(callBody(8, "sample"))
			q := c.question(november2024)
			f.at(process + 1)
			c.post(answerTo(q.ID, "Eve"))
			if e := c.next(); !strings.Contains(string(e.Data), "Eve") {
				t.Errorf("got %s, want the result", e.Data)
			}
			c.post(callBody(9, "wait"))
			<-core.started
			f.at(process + 2)
			c.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`)
			if cause := <-core.causes; !errors.Is(cause, mcp.ErrCancelled) {
				t.Errorf("got %v, want the cancellation", cause)
			}
		}
	})
}

// follow calls receive for each message to the process of the stream, before the message is confirmed.
func (c *sseClient) follow(f *replicas, receive func(payload []byte)) {
	c.t.Helper()
	process := strings.TrimPrefix(c.query, "sessionId=")[26:]
	stop, err := f.store.Memory.Subscribe(c.t.Context(), "mcphttp/process/"+process+"-", receive)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(stop)
}

// The process of the stream checks the principal, and messages between processes contain no secret.
func TestSSE_PassedPostsBelongToTheirPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := startReplicas(t, core, nil)
		f.at(0)
		c := f.initializedSSE(t.Context(), "Authorization: ann", "Cookie: secret")
		var mu sync.Mutex
		var payloads []string
		c.follow(f, func(payload []byte) {
			mu.Lock()
			defer mu.Unlock()
			payloads = append(payloads, string(payload))
		})
		f.at(1)
		c.post(callBody(1, "echo"))
		c.next()
		for _, other := range []string{"Authorization: bob", "Accept: text/plain"} {
			got := f.do(http.MethodPost, callBody(2, "inspect"), "Query: "+c.query, other)
			if got.status != 404 {
				t.Errorf("%s: got %d %s, want 404", other, got.status, got.body)
			}
		}
		if len(payloads) != 3 || len(core.request) > 0 {
			t.Errorf("got %d messages, want 3; served %d of another principal", len(payloads), len(core.request))
		}
		for _, payload := range payloads {
			for _, secret := range []string{"Authorization", "secret", `"ann"`, "tenant", c.query[len("sessionId="):]} {
				if strings.Contains(payload, secret) {
					t.Errorf("a message contains %s: %s", secret, payload)
				}
			}
		}
	})
}

// Only headers that may differ for each message are passed on. All others are those of the GET, as is the
// principal with its claims.
func TestSSE_PassedHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := startReplicas(t, core, nil)
		f.at(0)
		c := f.initializedSSE(t.Context(), "Authorization: ann", "X-Api-Key: of GET", "Baggage: of=GET")
		passed := make(chan []byte, 1)
		c.follow(f, func(payload []byte) { passed <- payload })
		f.at(1)
		c.headers = []string{"Authorization: ann", "Accept: application/json", "Traceparent: 00-1-2-00",
			"MCP-Protocol-Version: 2024-11-05", "X-Api-Key: secret", "X-Amzn-Oidc-Data: secret",
			"Cf-Access-Jwt-Assertion: secret", "X-Forwarded-Access-Token: secret", "X-Forwarded-For: 192.0.2.1",
			"Last-Event-ID: secret", "User-Agent: secret"}
		c.post(callBody(1, "inspect"))
		var got struct{ Post struct{ Header http.Header } }
		if err := json.Unmarshal(<-passed, &got); err != nil {
			t.Fatal(err)
		}
		sent := http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"},
			"Traceparent": {"00-1-2-00"}, "Mcp-Protocol-Version": {"2024-11-05"}}
		if !reflect.DeepEqual(got.Post.Header, sent) {
			t.Errorf("the bus carried %v, want %v", got.Post.Header, sent)
		}
		want := sent.Clone()
		want["Authorization"], want["X-Api-Key"] = []string{"ann"}, []string{"of GET"}
		want["User-Agent"], want["Accept-Encoding"] = []string{"Go-http-client/1.1"}, []string{"gzip"}
		req := <-core.request
		if !reflect.DeepEqual(http.Header(req.Header), want) {
			t.Errorf("the handler received %v, want %v", req.Header, want)
		}
		if req.Principal == nil || req.Principal.Claims["tenant"] != int64(7) {
			t.Errorf("got the principal %+v, want the claims of the GET", req.Principal)
		}
	})
}

// The messages of a caller that wait for the process of the stream are bounded, as are the bytes of
// messages in progress there.
func TestSSE_PassedPostsAreBounded(t *testing.T) {
	if raceDetector {
		t.Skip("64 MiB of messages take 45 s with the race detector")
	}
	synctest.Test(t, func(t *testing.T) {
		f := startReplicas(t, newTestCore(), &mcphttp.Options{MaxInFlightPerPrincipal: 80})
		f.at(0)
		c := f.initializedSSE(t.Context(), "Authorization: ann")
		f.at(1)
		large, refused := strings.Repeat("x", 1<<20-4<<10), 0
		for n := range 70 {
			got := c.send(strings.Replace(callBody(n, "wait"), "hi", large, 1))
			switch {
			case got.status == 429 && strings.Contains(got.body, "bytes of requests"):
				refused++
			case got.status != 202:
				t.Fatalf("message %d: got %d %s", n, got.status, got.body)
			}
		}
		if refused < 5 || refused > 6 {
			t.Errorf("%d of 70 messages of almost 1 MiB were refused, want all after 64 MiB", refused)
		}
		f.store.drops.Store(true)
		var waiting sync.WaitGroup
		for range 80 {
			waiting.Go(func() { c.send(callBody(100, "echo")) })
		}
		synctest.Wait()
		if got := c.send(callBody(101, "echo")); got.status != 429 {
			t.Errorf("after 80 messages that wait: got %d %s, want 429", got.status, got.body)
		}
		waiting.Wait()
		f.store.drops.Store(false)
	})
}

// A bus may deliver a receipt more than once, before the client's request continues.
func TestSSE_RepeatedReceiptIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startReplicas(t, newTestCore(), nil)
		f.at(0)
		c := f.initializedSSE(t.Context())
		c.follow(f, func(payload []byte) {
			var got struct{ Post struct{ ID, From string } }
			if err := json.Unmarshal(payload, &got); err != nil || got.Post.From == "" {
				t.Errorf("got %s, %v", payload, err)
			}
			receipt := fmt.Appendf(nil, `{"post":{"id":%q}}`, got.Post.ID)
			for range 3 {
				if _, err := f.store.Publish(t.Context(), "mcphttp/process/"+got.Post.From+"-", receipt); err != nil {
					t.Error(err)
				}
			}
		})
		f.at(1)
		c.post(callBody(1, "echo"))
		c.next()
	})
}

func TestSSE_PassedPostFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startReplicas(t, newTestCore(), nil)
		f.at(0)
		ctx, disconnect := context.WithCancel(t.Context())
		c := f.initializedSSE(ctx)
		id := strings.TrimPrefix(c.query, "sessionId=")
		f.at(1)
		want := func(what string, got response, status int) {
			t.Helper()
			if got.status != status {
				t.Errorf("%s: got %d %s, want %d", what, got.status, got.body, status)
			}
		}
		post := func(id string) response { return f.do(http.MethodPost, callBody(1, "echo"), "Query: sessionId="+id) }
		want("a batch", c.send("["+callBody(1, "echo")+"]"), 400)
		want("a large message", c.send(strings.Replace(callBody(1, "echo"), "hi", strings.Repeat("x", 1<<20), 1)), 413)
		want("another session", post(strings.Repeat("A", 26)+id[26:]), 404)
		want("a process that is gone", post(id[:26]+"AAAAAAAA"), 404)
		published := f.store.published.Load()
		for _, id := range []string{id[:26], id + "A", id[:33], id[:26] + "AAAA*AAA", "*" + id[1:], ""} {
			want(id, post(id), 404)
		}
		if got := f.store.published.Load(); got != published {
			t.Errorf("%d messages were published for ids of another form, want none", got-published)
		}
		f.store.busFails.Store(true)
		want("the bus fails", c.send(callBody(1, "echo")), 503)
		f.store.busFails.Store(false)
		f.store.drops.Store(true)
		begin := time.Now()
		want("a lost message", c.send(callBody(1, "echo")), 504)
		if waited := time.Since(begin); waited != 5*time.Second {
			t.Errorf("the client waited for %v, want 5s", waited)
		}
		f.store.drops.Store(false)
		c.post(callBody(2, "echo"))
		if e := c.next(); !strings.Contains(string(e.Data), `"id":2`) {
			t.Errorf("got %s, want the result", e.Data)
		}
		disconnect()
		synctest.Wait()
		want("after the end of the stream", c.send(callBody(3, "echo")), 404)
	})
}
