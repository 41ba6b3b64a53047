package jsonscan_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

func TestOneLineReplacesLineBreaks(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"{\"a\":1}":                 "{\"a\":1}",
		"\r\n{\n\"a\":\r\"\\n\"}\n": "  { \"a\": \"\\n\"} ",
	} {
		got := []byte(text)
		jsonscan.OneLine(got)
		if string(got) != want {
			t.Errorf("OneLine(%q) = %q, want %q", text, got, want)
		}
	}
}
