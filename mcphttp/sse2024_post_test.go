package mcphttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
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

// The process of the stream checks the principal, and messages between processes contain no secret.
func TestSSE_PassedPostsBelongToTheirPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := startReplicas(t, core, nil)
		f.at(0)
		c := f.initializedSSE(t.Context(), "Authorization: ann", "Cookie: secret")
		id := strings.TrimPrefix(c.query, "sessionId=")
		topic := "mcphttp/process/" + id[26:] + "-"
		var mu sync.Mutex
		var payloads []string
		stop, err := f.store.Memory.Subscribe(t.Context(), topic, func(payload []byte) {
			mu.Lock()
			defer mu.Unlock()
			payloads = append(payloads, string(payload))
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		f.at(1)
		c.post(callBody(1, "echo"))
		c.next()
		for _, other := range []string{"Authorization: bob", "Accept: text/plain"} {
			got := f.do(http.MethodPost, callBody(2, "inspect"), "Query: "+c.query, other)
			if got.status != 404 {
				t.Errorf("%s: got %d %s, want 404", other, got.status, got.body)
			}
		}
		if len(payloads) != 3 {
			t.Errorf("got %d messages, want 3", len(payloads))
		}
		for _, payload := range payloads {
			if strings.Contains(payload, "Authorization") || strings.Contains(payload, "secret") ||
				strings.Contains(payload, id) {
				t.Errorf("a message contains a secret: %s", payload)
			}
		}
		forged := strings.Replace(payloads[0], `"Subject":"ann"`, `"Subject":"bob"`, 1)
		forged = strings.Replace(forged, `"echo"`, `"inspect"`, 1)
		if _, err := f.store.Memory.Publish(t.Context(), topic, []byte(forged)); err != nil || forged == payloads[0] {
			t.Errorf("forged %s: %v", forged, err)
		}
		synctest.Wait()
		if len(core.request) > 0 {
			t.Error("the message of another principal was served")
		}
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
