package tasks

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A task that the client accepts from a server is valid.
func FuzzDecodeTask(f *testing.F) {
	const times = `"createdAt":"2026-01-02T03:04:05Z","lastUpdatedAt":"2026-01-02T03:04:05Z"`
	for _, seed := range []string{
		`{"taskId":"a","status":"working",` + times + `,"ttlMs":null,"pollIntervalMs":1}`,
		`{"taskId":"a","status":"working",` + times + `,"ttl":60000,"pollInterval":1e9}`,
		`{"taskId":"a","status":"completed","result":{"content":[]}}`,
		`{"taskId":"a","status":"failed","error":{"code":-32603,"message":"x","data":[1]}}`,
		`{"taskId":"a","status":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{}},"\u006b2":{"method":"x"}}}`,
		`{"taskId":"a","status":"cancelled","statusMessage":"\ud83d\ude00"}`,
		`{"task":{"taskId":"a","status":"working"}}`,
		`{"taskId":"a","status":"failed","error":{"code":1,"message":"x"},"result":1}`,
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, is2025 bool) {
		var form clientForm = clientExtension{}
		if is2025 {
			form = client2025{}
		}
		if s, err := form.decodeCreated(raw); err == nil {
			checkTask(t, s)
		}
		s, err := form.decodeTask(raw)
		if err != nil {
			return
		}
		checkTask(t, s)
		if is2025 {
			return
		}
		switch s.Status {
		case StatusCompleted:
			if mcp.RawResult(s.Result).ResultType() != driver.ResultComplete || s.Result[0] != '{' {
				t.Errorf("the result is %s", s.Result)
			}
		case StatusFailed:
			if s.Error == nil || !s.Error.Remote() {
				t.Errorf("the error is %#v", s.Error)
			}
		case StatusInputRequired:
			if len(s.requests) != len(s.InputRequests) {
				t.Errorf("%d input requests under %d keys", len(s.requests), len(s.InputRequests))
			}
			for _, q := range s.requests {
				if s.InputRequests[q.key].Method == "" || !bytes.Contains(raw, q.raw) {
					t.Errorf("the input request %q is %s", q.key, q.raw)
				}
			}
		}
	})
}

func checkTask(t *testing.T, s *seenTask) {
	const age = 101 * 365 * 24 * time.Hour
	known := strings.Contains(" working input_required completed failed cancelled ", " "+string(s.Status)+" ")
	if s.ID == "" || len(s.ID) > maxTaskID || !known || s.TTL < 0 || s.TTL > age || s.PollInterval < 0 ||
		s.PollInterval > age {
		t.Errorf("accepted %+v", s)
	}
}
