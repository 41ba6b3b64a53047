package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
)

const paid = `{"eventId":"evt_1","name":"order.paid","timestamp":"2026-02-19T16:00:00Z","data":{},"cursor":"7"}`

// post sends a signed message to a receiver and returns the response.
func post(t testing.TB, r http.Handler, secret webhook.Secret, subscription, id, body string,
	change func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-MCP-Subscription-Id", subscription)
	webhook.Sign(req.Header, id, time.Now(), []byte(body), secret)
	if change != nil {
		change(req)
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w
}

func newRoute(t *testing.T) (*webhook.Receiver, *webhook.Route, webhook.Secret, *inbox) {
	t.Helper()
	r, secret, box := webhook.NewReceiver(nil), webhook.NewSecret(), &inbox{}
	route, err := r.Add(secret, box.handle)
	if err != nil {
		t.Fatal(err)
	}
	return r, route, secret, box
}

func wantStatus(t testing.TB, what string, got *httptest.ResponseRecorder, want int) {
	t.Helper()
	if got.Code != want {
		t.Errorf("%s: got status %d, want %d", what, got.Code, want)
	}
}

func TestReceiverRefuses(t *testing.T) {
	r, route, secret, box := newRoute(t)
	route.Bind("sub_1")
	header := func(name, value string) func(*http.Request) {
		return func(req *http.Request) { req.Header.Set(name, value) }
	}
	for name, tt := range map[string]struct {
		subscription, body string
		secret             webhook.Secret
		change             func(*http.Request)
		want               int
	}{
		"another secret":  {secret: webhook.NewSecret(), want: 401},
		"unknown":         {subscription: "sub_2", want: 503},
		"GET":             {change: func(req *http.Request) { req.Method = http.MethodGet }, want: 405},
		"a form":          {change: header("Content-Type", "application/x-www-form-urlencoded"), want: 415},
		"no type":         {change: func(req *http.Request) { req.Header.Del("Content-Type") }, want: 415},
		"no id":           {change: func(req *http.Request) { req.Header.Del("Webhook-Id") }, want: 401},
		"no subscription": {change: func(req *http.Request) { req.Header.Del("X-MCP-Subscription-Id") }, want: 401},
		"another time":    {change: header("Webhook-Timestamp", "1700000000"), want: 401},
		"too old": {change: func(req *http.Request) {
			webhook.Sign(req.Header, "evt_1", time.Now().Add(-6*time.Minute), []byte(paid), secret)
		}, want: 401},
		"a large body":      {body: strings.Repeat("x", webhook.MaxBody+1), want: 413},
		"not JSON":          {body: "x", want: 400},
		"a list":            {body: "[]", want: 400},
		"null":              {body: "null", want: 400},
		"another event":     {body: strings.Replace(paid, "evt_1", "evt_2", 1), want: 400},
		"duplicate members": {body: strings.Replace(paid, "{", `{"eventId":"evt_1",`, 1), want: 400},
		"no data":           {body: strings.Replace(paid, `"data":{},`, "", 1), want: 400},
		"data of a list":    {body: strings.Replace(paid, `{},`, "[],", 1), want: 400},
		"no name":           {body: strings.Replace(paid, `order.paid`, "", 1), want: 400},
		"no time":           {body: strings.Replace(paid, `2026`, "x", 1), want: 400},
		"an unknown type":   {body: `{"type":"other"}`, want: 400},
		"an empty end":      {body: `{"type":"terminated"}`, want: 400},
		"no challenge":      {body: `{"type":"verification"}`, want: 400},
		"a large challenge": {body: `{"type":"verification","challenge":"` + strings.Repeat("x", 2000) + `"}`, want: 400},
	} {
		if tt.subscription == "" {
			tt.subscription = "sub_1"
		}
		if tt.secret == (webhook.Secret{}) {
			tt.secret = secret
		}
		if tt.body == "" {
			tt.body = paid
		}
		wantStatus(t, name, post(t, r, tt.secret, tt.subscription, "evt_1", tt.body, tt.change), tt.want)
	}
	box.want(t)
	wantStatus(t, "the event", post(t, r, secret, "sub_1", "evt_1", paid, nil), 200)
	box.want(t, "evt_1")
}

func TestReceiverAnswersOnlySignedChallenges(t *testing.T) {
	r, _, secret, box := newRoute(t)
	const challenge = `{"type":"verification","challenge":"n\"once"}`
	foreign := post(t, r, webhook.NewSecret(), "sub_1", "msg_verification_1", challenge, nil)
	if foreign.Code/100 == 2 || strings.Contains(foreign.Body.String(), "once") {
		t.Errorf("a foreign challenge: got %d %s, want a refusal", foreign.Code, foreign.Body)
	}
	got := post(t, r, secret, "sub_1", "msg_verification_2", challenge, nil)
	if got.Code != 200 || got.Body.String() != `{"challenge":"n\"once"}` ||
		got.Header().Get("Content-Type") != "application/json" {
		t.Errorf("got %d %s, want the challenge", got.Code, got.Body)
	}
	wantStatus(t, "an event of the subscription", post(t, r, secret, "sub_1", "evt_1", paid, nil), 200)
	wantStatus(t, "an event of another subscription", post(t, r, secret, "sub_2", "evt_1", paid, nil), 503)
	box.want(t, "evt_1")
}

func TestReceiverRecognizesRepetitions(t *testing.T) {
	r, _, secret, box := newRoute(t)
	body := func(n int) string { return strings.Replace(paid, "evt_1", fmt.Sprint("evt_", n), 1) }
	send := func(n, want int) {
		t.Helper()
		wantStatus(t, fmt.Sprint("event ", n), post(t, r, secret, "sub_1", fmt.Sprint("evt_", n), body(n), nil), want)
	}
	box.err = errors.New("not now")
	send(1, 503)
	box.err = nil
	send(1, 200)
	send(1, 200)
	box.want(t, "evt_1")
	box.err = fmt.Errorf("stale: %w", webhook.ErrRefuse)
	send(2, 410)
	box.err = nil
	send(2, 200)
	box.want(t)
	for n := range 1100 {
		send(n+10, 200)
	}
	box.want(t, ids(10, 1109)...)
	send(1109, 200)
	box.want(t)
	send(10, 200) // forgotten
	box.want(t, "evt_10")
}

func TestMessageThatIsBeingHandledIsNotHandledTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, secret, n := webhook.NewReceiver(nil), webhook.NewSecret(), 0
		release := make(chan struct{})
		_, err := r.Add(secret, func(context.Context, *webhook.Message) error {
			n++
			<-release
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		first := make(chan int)
		go func() { first <- post(t, r, secret, "sub_1", "evt_1", paid, nil).Code }()
		synctest.Wait()
		wantStatus(t, "the repetition", post(t, r, secret, "sub_1", "evt_1", paid, nil), 503)
		close(release)
		if code := <-first; code != 200 || n != 1 {
			t.Errorf("got status %d after %d calls, want 200 after a call", code, n)
		}
	})
}

func TestReceiverRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, route, old, box := newRoute(t)
		route.Bind("sub_1")
		next := webhook.NewSecret()
		route.Rotate(next)
		route.Rotate(next)
		wantStatus(t, "the old secret", post(t, r, old, "sub_1", "evt_1", paid, nil), 200)
		wantStatus(t, "the new secret", post(t, r, next, "sub_1", "evt_1", paid, nil), 200)
		box.want(t, "evt_1")
		pass(11 * time.Minute)
		wantStatus(t, "the old secret, later", post(t, r, old, "sub_1", "evt_1", paid, nil), 401)
		wantStatus(t, "the new secret, later", post(t, r, next, "sub_1", "evt_1", paid, nil), 200)
		route.Close()
		wantStatus(t, "a closed route", post(t, r, next, "sub_1", "evt_1", paid, nil), 503)
	})
}

func TestSecretsWithoutASubscriptionAreLimited(t *testing.T) {
	r := webhook.NewReceiver(nil)
	add := func() (*webhook.Route, error) {
		return r.Add(webhook.NewSecret(), func(context.Context, *webhook.Message) error { return nil })
	}
	var last *webhook.Route
	for range 64 {
		route, err := add()
		if err != nil {
			t.Fatal(err)
		}
		last = route
	}
	if _, err := add(); !errors.Is(err, webhook.ErrTooMany) {
		t.Errorf("got error %v, want ErrTooMany", err)
	}
	last.Bind("sub_1")
	if _, err := add(); err != nil {
		t.Errorf("after a subscription is known: got error %v, want success", err)
	}
}

// Any signed body is either refused or handled as what it says, and nothing of it is lost.
func FuzzReceiver(f *testing.F) {
	f.Add([]byte(paid))
	f.Add([]byte(`{"type":"gap","cursor":"1"}`))
	f.Add([]byte(`{"type":"terminated","error":{"code":-32024,"message":"Forbidden","data":{"reason":"x"}}}`))
	f.Add([]byte(`{"type":"verification","challenge":"x"}`))
	f.Add([]byte(`{"type":null}`))
	secret := webhook.NewSecret()
	f.Fuzz(func(t *testing.T, body []byte) {
		r := webhook.NewReceiver(nil)
		var got *webhook.Message
		if _, err := r.Add(secret, func(_ context.Context, m *webhook.Message) error { got = m; return nil }); err != nil {
			t.Fatal(err)
		}
		w := post(t, r, secret, "sub_1", "evt_1", string(body), nil)
		switch {
		case got == nil && w.Code == 200:
			var sent, answer map[string]any
			if json.Unmarshal(body, &sent) != nil || json.Unmarshal(w.Body.Bytes(), &answer) != nil ||
				sent["type"] != "verification" || sent["challenge"] != answer["challenge"] {
				t.Fatalf("%s was answered with %s", body, w.Body)
			}
		case got != nil && (got.Type == "") != (got.Event != nil),
			got != nil && (got.Type == "terminated") != (got.Error != nil):
			t.Fatalf("%s was handled as %+v", body, got)
		case got != nil && got.Event != nil && (got.Event.ID != "evt_1" || !bytes.Contains(body, got.Event.Data)):
			t.Fatalf("%s was handled as %+v", body, got.Event)
		}
	})
}
