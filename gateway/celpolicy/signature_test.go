package celpolicy_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

func macOf(key, text string) string {
	mac := hmac.New(sha256.New, []byte(key))
	_, _ = io.WriteString(mac, text)
	return hex.EncodeToString(mac.Sum(nil))
}

// respondSigned responds to a request with a signature.
func respondSigned(w http.ResponseWriter, request, body string) {
	_, request, _ = strings.Cut(request, ",v1=")
	t := strconv.FormatInt(time.Now().Unix(), 10)
	w.Header().Set(celpolicy.Header, "t="+t+",v1="+macOf(hookKey, t+"."+request+"."+body))
	_, _ = io.WriteString(w, body)
}

// A response that the program of a hook or webhook has not signed does not decide.
func TestUnsignedResponsesDoNotDecide(t *testing.T) {
	const allow = `{"do": "allow", "decision": "once"}`
	for name, c := range map[string]struct {
		respond func(w http.ResponseWriter, signature, mac string, now int64)
		want    bool
	}{
		"signed": {func(w http.ResponseWriter, signature, _ string, _ int64) {
			respondSigned(w, signature, allow)
		}, true},
		"4 minutes old": {func(w http.ResponseWriter, _, mac string, now int64) {
			t := strconv.FormatInt(now-240, 10)
			w.Header().Set(celpolicy.Header, "t="+t+",v1="+macOf(hookKey, t+"."+mac+"."+allow))
			_, _ = io.WriteString(w, allow)
		}, true},
		"unsigned": {func(w http.ResponseWriter, _, _ string, _ int64) { _, _ = io.WriteString(w, allow) }, false},
		"another key": {func(w http.ResponseWriter, _, mac string, now int64) {
			w.Header().Set(celpolicy.Header, fmt.Sprintf("t=%d,v1=%s", now, macOf("another key of 16", fmt.Sprintf("%d.%s.%s", now, mac, allow))))
			_, _ = io.WriteString(w, allow)
		}, false},
		"another body": {func(w http.ResponseWriter, signature, _ string, _ int64) {
			signed := httptest.NewRecorder()
			respondSigned(signed, signature, `{"do": "deny", "decision": "deny"}`)
			w.Header().Set(celpolicy.Header, signed.Header().Get(celpolicy.Header))
			_, _ = io.WriteString(w, allow)
		}, false},
		"of another request": {func(w http.ResponseWriter, _, _ string, _ int64) {
			respondSigned(w, "t=1,v1="+macOf(hookKey, "1.{}"), allow)
		}, false},
		"the signature of the request": {func(w http.ResponseWriter, signature, _ string, _ int64) {
			w.Header().Set(celpolicy.Header, signature)
			_, _ = io.WriteString(w, allow)
		}, false},
		"6 minutes old": {func(w http.ResponseWriter, _, mac string, now int64) {
			t := strconv.FormatInt(now-360, 10)
			w.Header().Set(celpolicy.Header, "t="+t+",v1="+macOf(hookKey, t+"."+mac+"."+allow))
			_, _ = io.WriteString(w, allow)
		}, false},
		"of the future": {func(w http.ResponseWriter, _, mac string, now int64) {
			t := strconv.FormatInt(now+360, 10)
			w.Header().Set(celpolicy.Header, "t="+t+",v1="+macOf(hookKey, t+"."+mac+"."+allow))
			_, _ = io.WriteString(w, allow)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				signature := r.Header.Get(celpolicy.Header)
				at, mac, _ := strings.Cut(strings.TrimPrefix(signature, "t="), ",v1=")
				if mac != macOf(hookKey, at+"."+string(body)) {
					t.Errorf("the request has the signature %q", signature)
				}
				c.respond(w, signature, mac, time.Now().Unix())
			}))
			defer s.Close()
			p := celpolicy.WithHookTime(mustCompile(t, fmt.Sprintf(
				`{"hook": {"url": %q, "secret": "KEY"}, "rules": [{"do": "hook"}]}`, s.URL)), time.Minute)
			d := p.Decide(t.Context(), call("fs", "t", `{"text": "`+name+`"}`))
			if allowed := d.Do == policy.OutcomeAllow; allowed != c.want || !c.want && !strings.Contains(d.Reason, "signed") &&
				!strings.Contains(d.Reason, celpolicy.Header) {
				t.Errorf("the hook: %v (%s), want allowed %t", d.Do, d.Reason, c.want)
			}
			ask, err := celpolicy.Webhook(&gatewayconfig.Webhook{URL: s.URL, Secret: "KEY"}, func(string) (string, bool) {
				return hookKey, true
			})
			if err != nil {
				t.Fatal(err)
			}
			answer, err := ask(context.Background(), &approval.Pending{ID: name})
			if allowed := err == nil && answer == approval.Once; allowed != c.want {
				t.Errorf("the webhook: %q, %v, want allowed %t", answer, err, c.want)
			}
		})
	}
}
