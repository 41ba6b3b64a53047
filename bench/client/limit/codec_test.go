package main

import (
	"encoding/json"
	"testing"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

func TestCodecsEncodeAndDecodeAlike(t *testing.T) {
	for _, era := range []echo.Era{echo.Modern, echo.Session} {
		for _, c := range []codec{newCanned(era), &standard{era: era}} {
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
				t.Errorf("%T, %s: %s", c, era, text)
			}
			answer := []byte(`{"jsonrpc":"2.0","id":100000007,"result":{"content":[{"type":"text","text":"` + echo.Message + `"}]}}`)
			if text, err := c.text(answer); err != nil || text != echo.Message {
				t.Errorf("%T: decoded response = %q, %v", c, text, err)
			}
			if _, err := c.text([]byte(`{"jsonrpc":"2.0","id":100000007,"error":{"code":1,"message":"moo"}}`)); err == nil {
				t.Errorf("%T accepts an error response as a result", c)
			}
			if id, err := answerID(answer); err != nil || id != firstID+7 {
				t.Errorf("response id = %d, %v", id, err)
			}
		}
	}
}

func TestFirstMessageOfABody(t *testing.T) {
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
