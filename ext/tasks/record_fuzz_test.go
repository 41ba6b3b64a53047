package tasks_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Any record decodes or is an error. A decoded record encodes to the same.
func FuzzRecord(f *testing.F) {
	for _, seed := range []string{
		`{"format":1,"tool":"t","phase":"working","updated":1,"ttl":1000,"poll":1000,"params":{"name":"t"}}`,
		`{"format":1,"tool":"t","phase":"waiting","updated":1,"ttl":1000,"poll":1000,"params":{},"keys":1,"open":{"a.1":{"key":"a","request":{"method":"roots/list"}}}}`,
		`{"format":1,"tool":"t","phase":"done","updated":1,"ttl":1000,"poll":1,"result":{"content":[]},"isError":true}`,
		`{"format":1,"tool":"t","phase":"done","updated":1,"ttl":1000,"poll":1,"failed":true,"error":{"code":-1,"message":"m"}}`,
		`{"format":1,"tool":"t","phase":"done","updated":1,"ttl":1000,"poll":1,"cancelled":true}`,
		`{"format":2}`, `{"format":1,"phase":"other"}`, `null`, ``, `[]`,
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, done bool) {
		created := time.UnixMilli(1e12)
		r := tasks.Record{ID: "id", Created: created, Expires: created, Done: done, Version: 3, Data: data}
		once, ext, of2025, err := tasks.Reseal(r)
		if err != nil {
			return
		}
		if once.Done != done || ext.Final() != done || of2025.Final() != done || !once.Expires.After(created) {
			t.Errorf("done %t became %t, %s, %s, expires %v", done, once.Done, ext, of2025, once.Expires)
		}
		again, ext2, _, err := tasks.Reseal(once)
		if err != nil || !bytes.Equal(once.Data, again.Data) || ext2 != ext {
			t.Errorf("%s\nbecame %s: %v", once.Data, again.Data, err)
		}
		if head, head2025, err := tasks.Head(once); err != nil || head != ext || head2025 != of2025 {
			t.Errorf("%s\nis %s and %s, by its head %s and %s: %v", once.Data, ext, of2025, head, head2025, err)
		}
	})
}

// Params are decoded as encoding/json/v2 does, whose names have one case, or refused with
// CodeInvalidParams.
func FuzzTaskParams(f *testing.F) {
	for _, seed := range []string{
		`{"taskId":"x"}`, `{"taskId":"x","inputResponses":{"a":{}}}`, `{"taskId":1}`, `{"taskId":"x","inputResponses":[]}`,
		`{}`, `null`, `{"taskId":"x","taskId":"y"}`, `{"taskId":null}`, `{"cursor":"MTAuaWQ"}`, `{"cursor":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		isParams := func(err error) bool {
			e, ok := err.(*mcp.Error)
			return ok && e.Code == mcp.CodeInvalidParams
		}
		id, n, err := tasks.TaskParams(raw)
		var std struct {
			TaskID         *string                    `json:"taskId"`
			InputResponses map[string]json.RawMessage `json:"inputResponses"`
		}
		lenient := jsonv2.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
		switch stdErr := jsonv2.Unmarshal(raw, &std, lenient); {
		case err != nil:
			if !isParams(err) {
				t.Errorf("%v", err)
			}
		case stdErr != nil:
			t.Errorf("invalid params %s: %v", raw, stdErr)
		case std.TaskID == nil || id != *std.TaskID || n != len(std.InputResponses):
			t.Errorf("%s: id %q, %d responses; encoding/json/v2 reads %v, %d", raw, id, n, std.TaskID,
				len(std.InputResponses))
		}
		if c, err := tasks.Cursor2025(raw); err != nil && !isParams(err) || err == nil && c.ID == "" &&
			!c.Created.IsZero() {
			t.Errorf("cursor %+v, %v", c, err)
		}
		for _, method := range []string{"elicitation/create", "sampling/createMessage", "roots/list", "other"} {
			if tasks.IsResponse(method, raw) && (len(raw) == 0 || raw[0] != '{') {
				t.Errorf("%s accepts the response %s", method, raw)
			}
		}
	})
}
