package main

import (
	"encoding/json"
	"testing"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

func TestCodecsEncodeAndDecodeAlike(t *testing.T) {
	for _, era := range []echo.Era{echo.Modern, echo.Session} {
		for _, c := range []codec{newPreparedCodec(era), &jsonCodec{era: era}} {
			text, err := c.request(firstID+7, echo.Message)
			if err != nil {
				t.Fatal(err)
			}
			var got request
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatalf("%T, %s: %v in %s", c, era, err, text)
			}
			if got.ID != firstID+7 || got.Method != "tools/call" || got.Params.Name != echo.Tool ||
				got.Params.Arguments["message"] != echo.Message || (got.Params.Meta != nil) != (era == echo.Modern) {
				t.Errorf("%T, %s: got %s, want a call of %s", c, era, text, echo.Tool)
			}
			answer := []byte(`{"jsonrpc":"2.0","id":100000007,"result":{"content":[{"type":"text","text":"` +
				echo.Message + `"}]}}`)
			if text, err := c.text(answer); err != nil || text != echo.Message {
				t.Errorf("%T: decoded response = %q, %v, want %q", c, text, err, echo.Message)
			}
			failed := []byte(`{"jsonrpc":"2.0","id":100000007,"error":{"code":1,"message":"failed"}}`)
			if _, err := c.text(failed); err == nil {
				t.Errorf("%T: text of an error response: no error, want one", c)
			}
			if id, err := answerID(answer); err != nil || id != firstID+7 {
				t.Errorf("response id = %d, %v, want %d", id, err, firstID+7)
			}
		}
	}
}

func TestFirstMessageOfABodyIsFound(t *testing.T) {
	for body, want := range map[string]string{
		`{"id":1}`:                                 `{"id":1}`,
		"event: message\ndata: {\"id\":1}\n\n":     `{"id":1}`,
		"data: {\"id\":1}\n\ndata: {\"id\":2}\n\n": `{"id":1}`,
	} {
		if got := string(firstMessage([]byte(body))); got != want {
			t.Errorf("first message of %q = %q, want %q", body, got, want)
		}
	}
}
