package webhook_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
)

func secretOf(bytes int) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", bytes)))
}

func TestSecrets(t *testing.T) {
	for _, n := range []int{24, 32, 64} {
		s, err := webhook.ParseSecret(secretOf(n))
		if err != nil || s.Reveal() != secretOf(n) {
			t.Errorf("%d bytes: got %q, %v; want the secret", n, s.Reveal(), err)
		}
	}
	for _, text := range []string{
		"", "whsec_", secretOf(23), secretOf(65), secretOf(32)[6:], "WHSEC_" + secretOf(32)[6:], secretOf(32) + "\n",
		secretOf(32) + " ", strings.TrimRight(secretOf(32), "="), strings.Replace(secretOf(32), "a", "-", 1),
		"whsec_" + strings.Repeat("A", 1<<20), secretOf(24) + "====", secretOf(33)[:49] + "\n" + secretOf(33)[49:],
	} {
		if _, err := webhook.ParseSecret(text); err == nil {
			t.Errorf("%.60q: got a secret, want an error", text)
		} else if len(text) > 20 && strings.Contains(err.Error(), text[6:]) {
			t.Errorf("the error %q repeats the secret", err)
		}
	}
	a, b := webhook.NewSecret(), webhook.NewSecret()
	if a == b || a.Reveal() == b.Reveal() {
		t.Error("two new secrets are equal")
	}
	got := fmt.Sprintf("%v %s %+v %#v", a, a, a, a)
	if strings.Contains(got, a.Reveal()[6:]) || strings.Count(got, "hidden") != 4 {
		t.Errorf("formatting reveals the secret: %s", got)
	}
}

// The values come from the reference library of Standard Webhooks.
func TestKnownSignature(t *testing.T) {
	secret, err := webhook.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1614265330, 0)
	header, body := http.Header{}, []byte(`{"test": 2432232314}`)
	webhook.Sign(header, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, body, secret)
	if got := header.Get("webhook-signature"); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("got signature %s, want that of the reference", got)
	}
	if err := webhook.Verify(header, at, body, secret); err != nil {
		t.Error(err)
	}
}

func TestVerify(t *testing.T) {
	now, body := time.Unix(1_800_000_000, 0), []byte(`{"a":1}`)
	old, secret, other := webhook.NewSecret(), webhook.NewSecret(), webhook.NewSecret()
	signed := func(change func(http.Header)) http.Header {
		h := http.Header{}
		webhook.Sign(h, "evt_1", now, body, secret, old)
		change(h)
		return h
	}
	set := func(name, value string) func(http.Header) { return func(h http.Header) { h.Set(name, value) } }
	signature := signed(func(http.Header) {}).Get("webhook-signature")
	for name, tt := range map[string]struct {
		change  func(http.Header)
		now     time.Time
		body    string
		secrets []webhook.Secret
		ok      bool
	}{
		"the new secret":      {secrets: []webhook.Secret{secret}, ok: true},
		"the old secret":      {secrets: []webhook.Secret{old}, ok: true},
		"several secrets":     {secrets: []webhook.Secret{other, old}, ok: true},
		"another secret":      {secrets: []webhook.Secret{other}},
		"no secret":           {secrets: []webhook.Secret{}},
		"another body":        {body: `{"a":2}`},
		"another id":          {change: set("webhook-id", "evt_2")},
		"another time":        {change: set("webhook-timestamp", "1800000001")},
		"5 minutes later":     {now: now.Add(5 * time.Minute), ok: true},
		"6 minutes later":     {now: now.Add(6 * time.Minute)},
		"6 minutes before":    {now: now.Add(-6 * time.Minute)},
		"other versions":      {change: set("webhook-signature", "v1a,AAAA "+signature+" v2,x"), ok: true},
		"only other versions": {change: set("webhook-signature", strings.ReplaceAll(signature, "v1,", "v1a,"))},
		"a short signature":   {change: set("webhook-signature", "v1,AAAA")},
		"no signature":        {change: func(h http.Header) { h.Del("webhook-signature") }},
		"two signatures":      {change: func(h http.Header) { h.Add("webhook-signature", "v1,AAAA") }},
		"no id":               {change: func(h http.Header) { h.Del("webhook-id") }},
		"two ids":             {change: func(h http.Header) { h.Add("webhook-id", "evt_1") }},
		"an id with a space":  {change: set("webhook-id", "evt 1")},
		"a long id":           {change: set("webhook-id", strings.Repeat("x", 300))},
		"no time":             {change: func(h http.Header) { h.Del("webhook-timestamp") }},
		"a fraction":          {change: set("webhook-timestamp", "1800000000.0")},
		"a leading zero":      {change: set("webhook-timestamp", "01800000000")},
		"a negative time":     {change: set("webhook-timestamp", "-1")},
		"a large time":        {change: set("webhook-timestamp", "99999999999999999999")},
		"a time of overflow":  {change: set("webhook-timestamp", "9223372036854775807")},
	} {
		if tt.change == nil {
			tt.change = func(http.Header) {}
		}
		if tt.now.IsZero() {
			tt.now = now
		}
		if tt.secrets == nil {
			tt.secrets = []webhook.Secret{secret}
		}
		if tt.body == "" {
			tt.body = string(body)
		}
		err := webhook.Verify(signed(tt.change), tt.now, []byte(tt.body), tt.secrets...)
		if tt.ok != (err == nil) || err != nil && !errors.Is(err, webhook.ErrSignature) {
			t.Errorf("%s: got error %v, want success %t", name, err, tt.ok)
		}
	}
}

func FuzzVerify(f *testing.F) {
	f.Add("evt_1", "1800000000", "v1,AAAA v1,BBBB", []byte(`{}`))
	f.Add("a.1", "0", "v1a,AAAA", []byte(``))
	secret := webhook.NewSecret()
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte) {
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {timestamp}, "Webhook-Signature": {signature}}
		now := time.Unix(1_800_000_000, 0)
		if err := webhook.Verify(h, now, body, secret); err == nil {
			t.Fatalf("%v was accepted, and the secret is unknown", h)
		}
		webhook.Sign(h, id, now, body, secret)
		h.Set("Webhook-Signature", signature+" "+h.Get("Webhook-Signature"))
		err := webhook.Verify(h, now, body, secret)
		if err != nil && len(id) > 0 && len(id) < 200 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz_0123456789") == "" &&
			strings.Count(signature, "v1,") < 16 && len(signature) < 3000 {
			t.Fatalf("a signed message was refused: %v", err)
		}
	})
}
